// The list: every run a row, filtered, sorted, and changed in place while runs go on.

import { COLUMNS, STATUSES } from "./cells.js";
import { el } from "./dom.js";
import { number } from "./format.js";
import { studies } from "./studies.js";
import { welcome } from "./welcome.js";

const AT_ONCE = 200; // rows drawn; more on demand, so that a thousand runs do not freeze the page
const MOST_COMPARED = 50;
const WORDS = ["name", "plan", "status"]; // columns that begin with the first letter, numbers with the largest

export class List {
  constructor(section, folder) {
    this.rows = new Map(); // id -> row, as the server says it
    this.drawn = new Map(); // id -> {row, node}
    this.chosen = new Set();
    this.sorted = { key: "created", down: true };
    this.status = ""; // the only one shown
    this.limit = AT_ONCE;
    this.build(section, folder);
  }

  // Changes from the server.
  apply(changes) {
    if (changes.all) this.rows = new Map();
    for (const row of changes.rows) this.rows.set(row.id, row);
    for (const id of changes.gone) this.rows.delete(id);
    for (const id of [...this.chosen]) if (!this.rows.has(id)) this.chosen.delete(id);
    this.draw();
  }

  build(section, folder) {
    this.counts = el("div", { class: "counts", role: "group", "aria-label": "Show runs of one status" });
    this.search = el("input", {
      type: "search", placeholder: "Filter by name, plan, model, data, status", "aria-label": "Filter runs",
      autocomplete: "off", spellcheck: "false", input: () => this.from({}),
    });
    this.heads = COLUMNS.map(({ key, title, number: kind }) =>
      el("th", { scope: "col", class: kind ? "number" : null },
        el("button", { type: "button", click: () => this.sort(key) }, title)));
    const select = el("th", { scope: "col" }, el("span", { class: "unseen" }, "Compare"));
    this.body = el("tbody");
    this.table = el("div", { class: "scroll runs" },
      el("table", { "aria-label": "Runs" }, el("thead", {}, el("tr", {}, select, this.heads)), this.body));
    this.nothing = el("p", { class: "soft" }, "No run matches the filter.");
    this.more = el("button", { type: "button", class: "more", click: () => this.showMore() });
    this.tray = el("div", { class: "tray", role: "region", "aria-label": "Selected runs" });
    this.empty = welcome(folder);
    this.full = el("div", {},
      el("div", { class: "tools" }, this.search, this.counts), this.table, this.nothing, this.more, this.tray);
    this.studies = el("div");
    section.replaceChildren(this.empty, this.full, this.studies);
  }

  showStudies(found) {
    this.studies.replaceChildren(...studies(found));
    this.draw();
  }

  sort(key) {
    const down = this.sorted.key === key ? !this.sorted.down : !WORDS.includes(key);
    this.from({ sorted: { key, down } });
  }

  // Another choice of runs is shown from its first row on.
  from(changed) {
    Object.assign(this, changed, { limit: AT_ONCE });
    this.draw();
  }

  showMore() {
    this.limit += AT_ONCE;
    this.draw();
  }

  draw() {
    this.empty.hidden = this.rows.size > 0 || this.studies.hasChildNodes();
    this.full.hidden = this.rows.size === 0;
    const visible = this.visible();
    this.place(visible.slice(0, this.limit));
    this.nothing.hidden = visible.length > 0;
    this.table.hidden = visible.length === 0;
    this.more.hidden = visible.length <= this.limit;
    this.more.textContent = `Show more of ${number(visible.length)} runs`;
    COLUMNS.forEach(({ key }, at) => {
      const direction = this.sorted.down ? "descending" : "ascending";
      if (key === this.sorted.key) this.heads[at].setAttribute("aria-sort", direction);
      else this.heads[at].removeAttribute("aria-sort");
    });
    this.drawCounts();
    this.drawTray();
  }

  visible() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = [...this.rows.values()].filter((row) =>
      (!this.status || row.status === this.status) && words.every((word) => searched(row).includes(word)));
    const { key, value = (row) => row[key] } = COLUMNS.find((column) => column.key === this.sorted.key);
    return kept.sort((one, other) => ordered(value(one), value(other), this.sorted.down));
  }

  // Rows in their order; those that have not changed are left as they are.
  place(rows) {
    rows.forEach((row, at) => {
      const node = this.node(row);
      const there = this.body.children[at] ?? null;
      if (there !== node) this.body.insertBefore(node, there);
    });
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
  }

  node(row) {
    const known = this.drawn.get(row.id);
    if (known?.row === row) return known.node;
    const cells = COLUMNS.map(({ key, title, show, number: kind }) =>
      el("td", { class: kind ? `${key} number` : key, "data-title": title }, show(row)));
    const node = known?.node ?? el("tr", {}, this.box(row), cells);
    if (known) COLUMNS.forEach(({ still }, at) => still || node.children[at + 1].replaceWith(cells[at]));
    this.drawn.set(row.id, { row, node });
    return node;
  }

  box(row) {
    const box = el("input", {
      type: "checkbox", "aria-label": `Compare ${row.name}`, change: () => this.choose(row.id, box.checked),
    });
    box.checked = this.chosen.has(row.id);
    return el("td", { class: "select" }, el("label", {}, box));
  }

  choose(id, on) {
    if (on) this.chosen.add(id);
    else this.chosen.delete(id);
    this.drawTray();
  }

  clear() {
    this.chosen.clear();
    for (const { node } of this.drawn.values()) node.querySelector("input").checked = false;
    this.drawTray();
  }

  drawTray() {
    const count = this.chosen.size;
    this.tray.hidden = count === 0;
    if (this.tray.dataset.count === String(count)) return; // else a button would lose the focus
    this.tray.dataset.count = count;
    const words = count === 1 ? "1 run selected: select another"
      : count > MOST_COMPARED ? `${count} runs selected, of at most ${MOST_COMPARED}` : `${count} runs selected`;
    const compare = () => { location.hash = `compare=${[...this.chosen].join(",")}`; };
    const disabled = count < 2 || count > MOST_COMPARED;
    this.tray.replaceChildren(
      el("span", {}, words),
      el("button", { type: "button", class: "strong", disabled, click: compare }, "Compare"),
      el("button", { type: "button", click: () => this.clear() }, "Clear"));
  }

  drawCounts() {
    const counts = Object.fromEntries(STATUSES.map((status) => [status, 0]));
    for (const row of this.rows.values()) counts[row.status] += 1;
    const state = JSON.stringify([this.status, counts]);
    if (this.counts.dataset.state === state) return;
    this.counts.dataset.state = state;
    const button = (status, words, count) =>
      el("button", {
        type: "button", "aria-pressed": String(this.status === status), click: () => this.from({ status }),
      }, el("b", {}, number(count)), ` ${words}`);
    this.counts.replaceChildren(
      button("", this.rows.size === 1 ? "run" : "runs", this.rows.size),
      ...STATUSES.filter((status) => counts[status]).map((status) => button(status, status, counts[status])));
  }
}

function searched(row) {
  return [row.name, row.folder, row.case, row.plan, row.model, row.data, row.status].join(" ").toLowerCase();
}

function ordered(one, other, down) {
  const unknown = (value) => value === null || value === undefined;
  if (unknown(one) || unknown(other)) return Number(unknown(one)) - Number(unknown(other)); // last, either way
  const order = typeof one === "number" ? one - other : String(one).localeCompare(other, "en", { numeric: true });
  return down ? -order : order;
}
