// Runs side by side: their figures, the keys in which they differ, and their curves on top of each other.

import { Curves, scatter } from "./curves.js";
import { card, chip, el, figure, note, table } from "./dom.js";
import { cell, figure as digits, labels, number, percent, seconds, times } from "./format.js";
import { look } from "./plots.js";

export class Compare {
  constructor(section) {
    this.section = section;
  }

  open(ids) {
    this.address = `/api/compare?${ids.map((id) => `run=${encodeURIComponent(id)}`).join("&")}`;
    this.head = el("div");
    this.figures = el("div");
    this.points = figure("Seconds of training and accuracy");
    this.curves = new Curves(card("Time and accuracy", this.points));
    this.rest = el("div", { hidden: true }, this.figures, this.curves.nodes);
    this.section.replaceChildren(el("p", {}, el("a", { href: "#" }, "← All runs")), this.head, this.rest);
  }

  show({ rows, curves, differs, warnings }) {
    const names = labels(rows);
    const title = `${rows.length} ${rows.length === 1 ? "run" : "runs"} compared`;
    document.title = `${title} – manyhands`;
    this.head.replaceChildren(el("h1", { tabindex: "-1" }, title), ...warnings.map(note));
    this.figures.replaceChildren(figures(rows, names), differences(differs, names));
    this.rest.hidden = false;
    this.curves.show(names.map((label, at) => ({ label, curve: curves[at] })));
    scatter(this.points, rows, names);
  }

  fail(words) {
    const title = "These runs cannot be compared";
    this.head.replaceChildren(el("h1", { tabindex: "-1" }, title), el("p", { class: "error" }, words));
    this.rest.hidden = true;
  }
}

function figures(rows, names) {
  const columns = ["run", "status", "samples/s", "speed", "accuracy", "loss", "training"];
  const dot = (at) => el("i", { class: "dot", style: `background: var(--c${look(at, rows.length).place})` });
  const cells = rows.map((row, at) => [
    el("span", {}, dot(at), el("a", { href: `#run=${row.id}` }, names[at])),
    chip(row.status),
    number(row.samples_per_s),
    times(row.samples_per_s / (rows[0].samples_per_s ?? NaN)),
    percent(row.accuracy),
    digits(row.loss),
    seconds(row.seconds),
  ]);
  return card("Figures",
    table("Figures of the runs", columns, cells, 2),
    el("p", { class: "soft" }, `Speeds are over that of ${names[0]}.`));
}

function differences(differs, names) {
  const keys = Object.keys(differs);
  const same = "Plan, config, machine and versions are the same in all.";
  if (!keys.length) return card("Where they differ", el("p", { class: "soft" }, same));
  const cells = keys.map((key) => [
    el("code", {}, key), ...differs[key].map((value) => cell(value === "null" ? null : value)),
  ]);
  const caption = "Keys of plan and config in which the runs differ";
  return card("Where they differ", table(caption, ["key", ...names], cells, 1 + names.length));
}
