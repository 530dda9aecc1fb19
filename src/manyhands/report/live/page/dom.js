// Elements: whatever text enters the page goes in as text, never as HTML.

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// A table that scrolls within itself where it is wider than the page; after `words` columns come numbers.
export function table(caption, columns, rows, words = 1) {
  const kind = (at) => (at < words ? null : "number");
  const heads = columns.map((name, at) => el("th", { scope: "col", class: kind(at) }, name));
  const body = rows.map((cells) =>
    el("tr", {}, cells.map((cell, at) =>
      el(at ? "td" : "th", { scope: at ? null : "row", class: kind(at) }, cell ?? "–"))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body)));
}

// Names and their values, as many side by side as there is room for.
export function pairs(entries) {
  return el("dl", { class: "pairs" },
    entries.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

export function card(title, ...content) {
  return el("section", { class: "card" }, el("h2", {}, title), content);
}

export function figure(label) {
  return el("div", { class: "plot", role: "figure", "aria-label": label });
}

export function chip(status) {
  return el("span", { class: `chip ${status}` }, status);
}

export function note(words) {
  return el("p", { class: "note" }, words);
}

// Buttons of which one is pressed.
export function choice(label, options, chosen, choose) {
  const buttons = options.map(([value, words]) =>
    el("button", { type: "button", "aria-pressed": String(value === chosen), click: () => pick(value) }, words));
  function pick(value) {
    options.forEach(([each], at) => buttons[at].setAttribute("aria-pressed", String(each === value)));
    choose(value);
  }
  return el("span", { class: "choice", role: "group", "aria-label": label }, buttons);
}
