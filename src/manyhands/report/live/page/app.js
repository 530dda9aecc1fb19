// The page: which view the address names, and the server's events that keep it up to date.

import { Compare } from "./compare.js";
import { Detail } from "./detail.js";
import { el } from "./dom.js";
import { List } from "./list.js";

const AGAIN = 1000; // milliseconds between two looks at a run that goes on
const RETRY = 2000; // after the server did not answer

const sections = Object.fromEntries(["list", "run", "compare"].map((name) => [name, document.getElementById(name)]));
const list = new List(sections.list, document.querySelector("meta[name=manyhands-folder]").content);
const views = { run: new Detail(sections.run), compare: new Compare(sections.compare) };

let tag = ""; // the state of the server's list that this page knows
let studies = ""; // and that of its studies
let source = null; // of events
let open = null; // the view of some runs, null while the list is shown
let watched = new Set(); // those runs
let timer = null;

// The token has done its work: the server has set a cookie, and the address may be shown to others.
if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", `/${location.hash}`);

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
window.addEventListener("hashchange", () => view(true));
// A browser opens only some six connections to a host: a page that nobody sees gives its own back.
document.addEventListener("visibilitychange", () => (document.hidden ? rest() : listen()));
view(false);
begin();

async function asked(address) {
  const answer = await fetch(address);
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

async function begin() {
  try {
    apply(await asked("/api/runs"));
    listen();
  } catch {
    sign("reconnecting");
    setTimeout(begin, RETRY);
  }
}

function listen() {
  if (document.hidden || source || !tag) return;
  source = new EventSource(`/events?since=${tag}`);
  source.addEventListener("open", () => sign("live"));
  source.addEventListener("message", (event) => apply(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    sign("reconnecting");
    if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    rest();
    setTimeout(listen, RETRY);
  });
}

function rest() {
  source?.close();
  source = null;
}

function sign(state) {
  const node = document.getElementById("sign");
  if (node.textContent !== state) node.textContent = state;
  node.className = `sign ${state}`;
}

function apply(changes) {
  tag = changes.tag;
  list.apply(changes);
  warn(changes.warnings);
  if (changes.studies !== studies) learn(changes.studies);
  if (!open) document.title = title();
  const touched = [...changes.rows.map((row) => row.id), ...changes.gone];
  if (touched.some((id) => watched.has(id))) later();
}

async function learn(state) {
  studies = state;
  try {
    list.showStudies((await asked("/api/studies")).studies);
  } catch {
    studies = ""; // the next change asks again
  }
}

function title() {
  const running = [...list.rows.values()].filter((row) => row.status === "running").length;
  return `${running ? `${running} running` : "Runs"} – manyhands`;
}

function warn(words) {
  const node = document.getElementById("warnings");
  const told = JSON.stringify(words);
  if (node.dataset.told === told) return; // else an opened list would close
  node.dataset.told = told;
  const count = words.length === 1 ? "1 warning" : `${words.length} warnings`;
  const box = el("details", { class: "note" },
    el("summary", {}, `${count}: some files are skipped or not read in full`),
    el("ul", {}, words.map((each) => el("li", {}, each))));
  node.replaceChildren(...(words.length ? [box] : []));
}

// Show what the address names: #run=ID, #compare=ID,ID, or the list.
function view(moved) {
  const named = new URLSearchParams(location.hash.slice(1));
  const name = Object.keys(views).find((each) => named.get(each)) ?? "list";
  const ids = named.get(name)?.split(",") ?? [];
  watched = new Set(ids);
  open = views[name] ?? null;
  for (const [each, section] of Object.entries(sections)) section.hidden = each !== name;
  if (moved) scrollTo(0, 0);
  if (!open) document.title = title();
  else {
    open.open(ids);
    show(moved);
  }
}

async function show(moved) {
  const [shown, address] = [open, open.address];
  const still = () => open === shown && shown.address === address; // and no other view was asked for meanwhile
  let value = null;
  let failure = "";
  try {
    value = await asked(address);
  } catch (error) {
    failure = error.message;
  }
  if (!still()) return;
  if (value) shown.show(value);
  else shown.fail(failure);
  if (moved) shown.section.querySelector("h1")?.focus({ preventScroll: true });
}

function later() {
  timer ??= setTimeout(() => {
    timer = null;
    if (open) show(false);
  }, AGAIN);
}
