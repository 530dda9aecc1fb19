// Curves: the losses and accuracies of one run or of several, by step or by seconds of training.

import { card, choice, el, figure } from "./dom.js";
import { colour, draw, look, plain } from "./plots.js";

const MOST_NAMED = 12; // runs in a legend
const SHARE = { tickformat: ".3~%", minallowed: -0.02, maxallowed: 1.02 };
const UNITS = { step: "step", seconds: "seconds of training" };

export class Curves {
  constructor(...more) {
    this.runs = []; // {label, curve}
    this.along = "step";
    this.scale = "linear";
    this.loss = figure("Training loss");
    this.accuracy = figure("Validation accuracy");
    const by = choice("Curves", [["step", "by step"], ["seconds", "by seconds"]], "step",
      (along) => { this.along = along; this.draw(); });
    const scales = choice("Scale of the loss", [["linear", "linear"], ["log", "log"]], "linear",
      (scale) => { this.scale = scale; this.draw(); });
    this.nodes = [
      el("div", { class: "choices" }, by, scales),
      el("div", { class: "plots" }, card("Loss", this.loss), card("Accuracy", this.accuracy), more),
    ];
  }

  show(runs) {
    this.runs = runs;
    this.draw();
  }

  draw() {
    const { runs, along, scale } = this;
    draw(this.loss, () => ({
      traces: runs.map((run, at) => line(run, look(at, runs.length), run.curve[along], run.curve.loss, "lines")),
      layout: layout(runs, along, { title: { text: "training loss" }, type: scale, exponentformat: "power" }),
    }));
    draw(this.accuracy, () => ({
      traces: runs.map((run, at) => {
        const { marks } = run.curve;
        const mode = marks.step.length > 1 ? "lines+markers" : "markers";
        return line(run, look(at, runs.length), marks[along], marks.val_accuracy, mode);
      }),
      layout: layout(runs, along, { title: { text: "validation accuracy" }, ...SHARE }),
    }));
  }
}

function line(run, { place, dash }, x, y, mode) {
  const color = colour(place);
  const name = plain(run.label);
  return { type: "scatter", mode, name, x, y, line: { color, dash, width: 2 }, marker: { color, size: 8 } };
}

function layout(runs, along, yaxis) {
  return {
    showlegend: runs.length > 1 && runs.length <= MOST_NAMED,
    uirevision: along, // a zoom means nothing along another axis
    xaxis: { title: { text: UNITS[along] }, rangemode: "tozero" },
    yaxis,
  };
}

// How long runs took, and how well they did.
export function scatter(node, rows, labels) {
  return draw(node, () => ({
    traces: rows.map((row, at) => ({
      type: "scatter", mode: "markers", name: plain(labels[at]), x: [row.seconds], y: [row.accuracy],
      cliponaxis: false, marker: { size: 12, color: colour(look(at, rows.length).place) },
    })),
    layout: layout(rows, "seconds", { title: { text: "accuracy" }, ...SHARE }),
  }));
}
