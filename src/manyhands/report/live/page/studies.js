// The studies of the folder: what each found, and its table beside the published one.

import { el, note, table } from "./dom.js";

export function studies(found) {
  return found.map((each) => (each.error ? note(`${each.name}: ${each.error}`) : study(each)));
}

function study(told) {
  const facts = Object.entries(told.facts).filter(([, words]) => words);
  return el("details", { class: "card study" },
    el("summary", {}, el("b", {}, told.title), el("span", { class: "soft" }, ` study by ${told.by} · ${told.name}`)),
    el("p", {}, told.finding),
    table(told.title, told.columns, told.lines, told.words),
    told.notes.map(note),
    facts.map(([name, words]) => el("p", { class: "soft" }, `${name}: ${words}`)));
}
