// Cells: what a row of the list shows under each column.

import { chip, el, svg } from "./dom.js";
import { about, figure, moment, number, percent, plan, progress, seconds } from "./format.js";

export const STATUSES = ["running", "stalled", "failed", "interrupted", "finished"];

// `still` cells are not drawn again when a row changes, so that what has the focus in them keeps it.
export const COLUMNS = [
  { key: "name", title: "Run", show: named, value: (row) => `${row.folder}/${row.name}`, still: true },
  { key: "plan", title: "Plan", show: planned },
  { key: "status", title: "Status", show: standing, value: (row) => STATUSES.indexOf(row.status) },
  { key: "loss", title: "Loss", show: fallen, number: true },
  { key: "samples_per_s", title: "Samples/s", show: (row) => [number(row.samples_per_s)], number: true },
  { key: "accuracy", title: "Accuracy", show: scored, number: true },
  { key: "seconds", title: "Training", show: (row) => [seconds(row.seconds)], number: true },
  { key: "created", title: "Begun", show: (row) => [moment(row.created)], number: true },
];

function named(row) {
  return [el("a", { href: `#run=${row.id}` }, row.name), el("small", {}, about(row))];
}

function planned(row) {
  const words = plan(row.plan);
  return [el("span", { title: row.plan }, words.axes), el("small", {}, words.options)];
}

function standing(row) {
  if (row.status !== "running") {
    const why = row.error === row.status ? null : row.error;
    return [chip(row.status), why && el("small", { title: why }, why)];
  }
  const { share, words } = progress(row);
  return [chip("running"), bar(share), el("small", {}, words)];
}

function fallen(row) {
  return [sparkline(row.spark ?? []), el("span", { class: "figure" }, figure(row.loss))];
}

function scored(row) {
  const how = row.tested ? "on the test set" : "on the validation set";
  return [el("span", { title: row.accuracy === null ? null : how }, percent(row.accuracy))];
}

export function bar(share) {
  const now = share === null ? null : Math.round(100 * share);
  const meaning = { "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": now };
  return el("span", { class: "progress", role: "progressbar", ...meaning },
    el("span", { style: `width: ${now ?? 0}%` }));
}

function sparkline(values) {
  if (values.length < 2) return null;
  const least = Math.min(...values);
  const height = Math.max(...values) - least || 1;
  const x = (at) => ((60 * at) / (values.length - 1)).toFixed(1);
  const y = (value) => (17 - (15 * (value - least)) / height).toFixed(1);
  const points = values.map((value, at) => `${x(at)},${y(value)}`).join(" ");
  return svg("svg", { class: "spark", viewBox: "0 0 60 18", "aria-hidden": "true" }, svg("polyline", { points }));
}
