// Timelines: what each lane was busy with, measured and, where there is one, predicted, on one axis to zoom into.

import { card, el, figure } from "./dom.js";
import { figure as digits, number } from "./format.js";
import { colour, draw, plain, touch } from "./plots.js";

const STEP = "layers of one step"; // has a clock of its own, which begins with the step
const COLOURS = {
  setup: 0, search: 4, compile: 5, train: 1, step: 1, eval: 3, evaluate: 3, checkpoint: 2, layers: 6,
  forward: 6, backward: 2, update: 3, feed: 5, transfer: 4, collective: 7,
};
const LANE = 46; // pixels

export class Timelines {
  constructor() {
    this.node = el("div");
    this.shown = "";
  }

  show(timelines) {
    const told = JSON.stringify(timelines);
    if (told === this.shown) return; // else a zoom would be lost
    this.shown = told;
    const spans = Object.entries(timelines).flatMap(([kind, timeline]) => spansOf(kind, timeline));
    const left = Object.values(timelines).reduce((sum, each) => sum + (each?.left_out ?? 0), 0);
    const note = left ? `${number(left)} shorter events are left out.` : "";
    this.node.replaceChildren();
    this.add("Timeline", spans.filter((span) => span.lane !== STEP), note);
    this.add("One step, layer by layer", spans.filter((span) => span.lane === STEP), "");
  }

  add(title, spans, note) {
    if (!spans.length) return;
    const lanes = [...new Set(spans.map(label))];
    const plot = figure(title);
    plot.classList.add("gantt");
    plot.style.height = `${150 + LANE * lanes.length}px`;
    const how = touch.matches ? "The buttons zoom in and out."
      : "Drag over a part, or use the buttons, to zoom in; double-click to see all again.";
    this.node.append(card(title, plot, el("p", { class: "soft" }, `${how} ${note}`)));
    gantt(plot, spans, lanes);
  }
}

function spansOf(kind, timeline) {
  return (timeline?.events ?? []).map(([lane, name, category, start, duration]) =>
    ({ kind, lane: timeline.lanes[lane], name, category, start, duration }));
}

function label(span) {
  return plain(span.kind === "measured" ? span.lane : `${span.lane}, ${span.kind}`, 30);
}

function gantt(plot, spans, lanes) {
  const end = spans.reduce((latest, span) => Math.max(latest, span.start + span.duration), 0);
  const [unit, size] = end > 5000 ? ["seconds", 1000] : ["milliseconds", 1];
  const categories = [...new Set(spans.map((span) => span.category))];
  return draw(plot, () => ({
    traces: categories.map((category, at) => {
      const some = spans.filter((span) => span.category === category);
      return {
        type: "bar", orientation: "h", width: 0.7, name: plain(category, 20),
        y: some.map(label), base: some.map((span) => span.start / size), x: some.map((span) => span.duration / size),
        text: some.map((span) => plain(span.name)), textposition: "none",
        customdata: some.map((span) => [digits(span.start / size), digits(span.duration / size)]),
        hovertemplate: `%{text}<br>at %{customdata[0]}, for %{customdata[1]} ${unit}<extra></extra>`,
        marker: { color: colour(COLOURS[category] ?? 1 + (at % 7)), line: { width: 0 } },
      };
    }),
    layout: {
      barmode: "overlay",
      showlegend: true,
      xaxis: { title: { text: unit } },
      yaxis: { fixedrange: true, categoryorder: "array", categoryarray: [...lanes].reverse(), showgrid: false },
    },
  }));
}
