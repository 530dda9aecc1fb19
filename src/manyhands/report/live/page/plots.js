// Plots: Plotly in the colours of the page; loaded from this host when a plot is first needed.

import { el } from "./dom.js";

const BRIGHT = 7; // colours of the palette after the grey of the reference
const DASHES = ["solid", "dash", "dot", "dashdot"]; // for runs beyond the seventh
const narrow = matchMedia("(max-width: 640px)");
export const touch = matchMedia("(pointer: coarse)");

const drawn = new Map(); // node -> function that draws it again
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const again of drawn.values()) again();
});

let loading = null;

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const failed = () => { loading = null; reject(new Error("plotly.js did not load")); };
    const source = document.querySelector("meta[name=manyhands-plotly]").content;
    document.head.append(el("script", { src: source, load: () => resolve(window.Plotly), error: failed }));
  });
  return loading;
}

export function colour(place) {
  return property(`--c${place}`);
}

function property(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The look of the run at a place among so many: the first is grey, since the others are measured by it.
export function look(at, count) {
  const bright = count > 1 ? at - 1 : at;
  if (bright < 0) return { place: 0, dash: "solid" };
  return { place: 1 + (bright % BRIGHT), dash: DASHES[Math.floor(bright / BRIGHT) % DASHES.length] };
}

// Plotly reads a little HTML in names: what comes from a file is made plain. The end of a long one tells most.
export function plain(text, most = narrow.matches ? 30 : 40) {
  const whole = String(text ?? "");
  const cut = whole.length > most ? `…${whole.slice(1 - most)}` : whole;
  return cut.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

// Draw, or draw on: a zoom stays while the data of a running run comes in. `make` gives {traces, layout}.
export async function draw(node, make) {
  const Plotly = await plotly();
  for (const each of drawn.keys()) if (!each.isConnected) drawn.delete(each);
  if (!node.isConnected) return;
  const again = () => {
    const { traces, layout } = make();
    return Plotly.react(node, traces, merged(base(), layout), {
      displaylogo: false,
      showSendToCloud: false, // Plotly's own host is no place for anybody's runs
      plotlyServerURL: "",
      responsive: true,
      displayModeBar: touch.matches ? true : "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", ...(touch.matches ? ["zoom2d", "pan2d"] : [])],
    });
  };
  drawn.set(node, again);
  await again();
}

function base() {
  const [ink, line, soft, paper] = ["--ink", "--line", "--soft", "--card"].map(property);
  const clear = "rgba(0,0,0,0)";
  const title = { standoff: 8, font: { size: 13 } };
  const lines = { gridcolor: line, linecolor: line, zeroline: false };
  const axis = { ...lines, automargin: true, tickfont: { color: soft }, title };
  const legend = { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom" };
  return {
    paper_bgcolor: clear,
    plot_bgcolor: clear,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
    margin: { l: 8, r: 12, t: 30, b: 8 },
    dragmode: touch.matches ? false : "zoom", // a finger on a plot must scroll the page: there, buttons zoom
    hovermode: "closest",
    hoverlabel: { bgcolor: paper, bordercolor: line, font: { color: ink } },
    legend: { ...legend, font: { size: narrow.matches ? 11 : 12 } },
    modebar: { bgcolor: clear, color: soft, activecolor: ink },
    uirevision: "kept",
    xaxis: axis,
    yaxis: axis,
  };
}

function merged(one, other) {
  const result = { ...one };
  for (const [key, value] of Object.entries(other)) {
    const tables = [value, one[key]].every((each) => each && typeof each === "object" && !Array.isArray(each));
    result[key] = tables ? merged(one[key], value) : value;
  }
  return result;
}
