// What an empty folder shows: how the first run comes into it.

import { el } from "./dom.js";

export function welcome(folder) {
  const quoted = /^[\w@%+=:,./-]+$/.test(folder) ? folder : `'${folder.replaceAll("'", "'\\''")}'`;
  return el("div", { class: "welcome" },
    el("h1", {}, "No runs yet"),
    el("p", {}, "This page waits: the first run appears by itself as soon as it begins. In another terminal, type"),
    el("pre", {}, `manyhands train convnet --out ${quoted}/first`),
    el("p", {}, "or let plans train side by side:"),
    el("pre", {}, `manyhands compare convnet --plan plain --plan serial --out ${quoted}/compared`));
}
