// One run: its figures and curves, which follow the training, and below them all that is known of it.

import { bar } from "./cells.js";
import { Curves } from "./curves.js";
import { card, chip, el, note } from "./dom.js";
import { facts } from "./facts.js";
import { about, figure, number, percent, progress, seconds } from "./format.js";
import { Timelines } from "./timeline.js";

const STALLED = "This run says that it is running, but its process is gone and its files have not changed for a while."
  + " `manyhands train --resume` goes on with it.";

export class Detail {
  constructor(section) {
    this.section = section;
  }

  open([id]) {
    this.address = `/api/runs/${encodeURIComponent(id)}`;
    this.said = "";
    this.head = el("div");
    this.curves = new Curves();
    this.timelines = new Timelines();
    this.facts = el("div");
    this.log = el("pre", { class: "log", tabindex: "0", "aria-label": "Log" });
    this.rest = el("div", { hidden: true }, this.curves.nodes, this.timelines.node, this.facts, card("Log", this.log));
    this.section.replaceChildren(el("p", {}, el("a", { href: "#" }, "← All runs")), this.head, this.rest);
  }

  show(run) {
    document.title = `${run.row.name} – manyhands`;
    this.head.replaceChildren(...head(run));
    this.rest.hidden = false;
    this.curves.show([{ label: run.row.name, curve: run.curve }]);
    this.timelines.show(run.timelines);
    const said = JSON.stringify(run.record);
    if (said !== this.said) this.facts.replaceChildren(...facts(run.record)); // else an opened part would close
    this.said = said;
    this.log.parentNode.hidden = !run.log;
    if (this.log.textContent === run.log) return;
    this.log.textContent = run.log;
    this.log.scrollTop = this.log.scrollHeight;
  }

  fail(words) {
    this.head.replaceChildren(el("h1", { tabindex: "-1" }, "No such run"), el("p", { class: "error" }, words));
    this.rest.hidden = true;
  }
}

function head({ row, record, curve, warnings }) {
  return [
    el("div", { class: "title" }, el("h1", { tabindex: "-1" }, row.name), chip(row.status)),
    el("p", { class: "soft" }, about(row)),
    row.status === "running" ? going(row) : null,
    row.status === "stalled" ? note(STALLED) : null,
    record.error && record.error !== row.status ? el("p", { class: "error" }, String(record.error)) : null,
    ...warnings.map(note),
    el("div", { class: "tiles" },
      tile(number(row.samples_per_s), "samples a second"),
      tile(percent(row.accuracy), row.tested ? "test accuracy" : "validation accuracy"),
      tile(figure(row.loss), "training loss"),
      tile(seconds(row.seconds ?? curve.seconds.at(-1)), "of training"),
      record.result?.peak_memory_mb ? tile(`${number(record.result.peak_memory_mb)} MB`, "memory at most") : null,
      record.parameters ? tile(number(record.parameters), "parameters") : null),
  ].filter(Boolean);
}

function going(row) {
  const { share, words } = progress(row);
  const steps = share === null ? "" : `, step ${number(row.step)} of ${number(row.steps)}`;
  return el("div", { class: "wide" }, bar(share), el("span", {}, words + steps));
}

function tile(fact, words) {
  return el("div", { class: "tile" }, el("strong", {}, fact), el("span", {}, words));
}
