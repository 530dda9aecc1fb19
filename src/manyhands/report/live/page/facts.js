// Facts: what does not change while a run trains: plan, layers, config, machine, how to make it again.

import { card, el, pairs, table } from "./dom.js";
import { cell, figure, number, seconds, times } from "./format.js";

const PHASES = { setup: 0, search: 4, compile: 5, train: 1, eval: 3, checkpoint: 2, layers: 6 };

export function facts(record) {
  return [
    phases(record.result?.seconds ?? {}),
    plan(record),
    el("div", { class: "columns" },
      layers(record.layers ?? []), el("div", {}, machine(record), trials(record.trials ?? []))),
    config(record.config ?? {}),
    record.command ? card("The command that makes it again", el("pre", {}, cell(record.command))) : null,
  ].filter(Boolean);
}

function phases(spent) {
  const known = Object.entries(spent).filter(([name, value]) => name !== "total" && value > 0);
  if (!known.length) return null;
  const all = known.reduce((sum, [, value]) => sum + value, 0);
  const shade = (name) => `background: var(--c${PHASES[name] ?? 7})`;
  const parts = known.map(([name, value]) => el("span", { style: `flex-grow: ${value / all}; ${shade(name)}` }));
  const words = known.map(([name, value]) =>
    el("li", {}, el("i", { style: shade(name) }), `${name} ${seconds(value)}`));
  return card("Where the time went",
    el("div", { class: "phases", "aria-hidden": "true" }, parts),
    el("ul", { class: "legend" }, words, el("li", {}, `all ${seconds(spent.total ?? all)}`)));
}

function plan(record) {
  const options = Object.entries(record.plan ?? {}).map(([name, value]) => [name, cell(value)]);
  return card("Plan", el("p", {}, el("code", {}, cell(record.plan_words))), pairs(options));
}

function layers(found) {
  if (!found.length) return null;
  const columns = ["layer", "kind", "parameters", "forward ms", "backward ms", "ratio"];
  const sum = (key) => found.reduce((all, each) => all + (each[key] ?? 0), 0);
  const keys = ["parameters", "forward_ms", "backward_ms"];
  const all = { name: "all", kind: "", ...Object.fromEntries(keys.map((key) => [key, sum(key)])) };
  const rows = [...found, all].map((each) => [
    cell(each.name), cell(each.kind), number(each.parameters), figure(each.forward_ms), figure(each.backward_ms),
    times(each.forward_ms ? each.backward_ms / each.forward_ms : NaN),
  ]);
  return card("Layers", table("Layers, and what each costs in a step", columns, rows, 2));
}

// The plans that were measured first, by what tells them from each other.
function trials(found) {
  if (!found.length) return null;
  const words = found.map((each) => cell(each.plan).split(","));
  const common = (word) => word.includes("=") && words.every((each) => each.includes(word));
  const failed = found.some((each) => each.error);
  const columns = ["plan", "step ms", "first ms", ...(failed ? ["error"] : [])];
  const rows = found.map((each, at) => {
    const told = words[at].filter((word) => !common(word)).join(", ");
    return [told, figure(each.step_ms), figure(each.first_ms), ...(failed ? [cell(each.error)] : [])];
  });
  return card("What was tried before", table("Plans that were measured before the training", columns, rows));
}

function config(found) {
  const isTable = (value) => value && typeof value === "object" && !Array.isArray(value);
  const keys = Object.entries(found).flatMap(([section, values]) =>
    isTable(values) ? Object.entries(values).map(([key, value]) => [`${section}.${key}`, cell(value)])
      : [[section, cell(values)]]);
  if (!keys.length) return null;
  return card("Config", el("details", {}, el("summary", {}, `${keys.length} keys`), pairs(keys)));
}

function machine(record) {
  const ranks = (record.ranks ?? []).map((rank) => `${cell(rank?.rank)} on cores ${cell(rank?.cores)}`);
  const known = [
    ["machine", record.machine_words], ["host", record.machine?.host], ["system", record.machine?.system],
    ["ranks", ranks.join("; ")], ...Object.entries(record.versions ?? {}),
  ].filter(([, value]) => value);
  return card("Machine and versions", pairs(known.map(([name, value]) => [name, cell(value)])));
}
