// Words for numbers; what is unknown is a dash.

const UNKNOWN = "–";

export function number(value, digits = 0) {
  if (!Number.isFinite(value)) return UNKNOWN;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// As many digits as people compare: 2.31, 0.0412, 1.2e-7.
export function figure(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) < 1000 ? 4 : 6 });
}

export function percent(value, digits = 1) {
  return Number.isFinite(value) ? `${(100 * value).toFixed(digits)} %` : UNKNOWN;
}

export function times(ratio) {
  if (!Number.isFinite(ratio)) return UNKNOWN;
  return `${ratio.toFixed(ratio >= 10 ? 0 : ratio >= 1.5 ? 1 : 2)}x`;
}

export function seconds(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  if (value < 0.1) return `${(1000 * value).toFixed(0)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
}

export function moment(text) {
  const when = new Date(text ?? NaN);
  if (Number.isNaN(when.getTime())) return UNKNOWN;
  const clock = when.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false });
  const today = when.toDateString() === new Date().toDateString();
  return today ? clock : `${when.toLocaleDateString("en", { month: "short", day: "numeric" })}, ${clock}`;
}

// A plan's words: its axes, and the options that decide most.
export function plan(words) {
  const all = (words ?? "").split(",");
  const option = (name) => all.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1);
  const threads = option("threads");
  const many = threads && (threads === "1" ? "1 thread" : `${threads} threads`);
  return {
    axes: all.filter((word) => !word.includes("=")).join(",") || UNKNOWN,
    options: [option("device"), option("precision"), many].filter(Boolean).join(", "),
  };
}

// The share of the steps that is done, and the words for it; null while a run prepares itself.
export function progress(row) {
  const share = row.steps > 0 && row.step !== null ? Math.min(1, row.step / row.steps) : null;
  const left = Number.isFinite(row.left) ? `, ${seconds(row.left)} left` : "";
  return { share, words: share === null ? "preparing" : `${percent(share, 0)}${left}` };
}

// What a run is about, beside its name.
export function about(row) {
  return [row.case, [row.model, row.data].filter(Boolean).join(" on "), row.folder].filter(Boolean).join(" · ");
}

// What tells each of some runs from the others: its name, with the folder where names are the same.
export function labels(rows) {
  const alike = (row) => rows.filter((other) => other.name === row.name).length > 1;
  return rows.map((row) => (row.folder && alike(row) ? `${row.folder}/${row.name}` : row.name));
}

export function cell(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (Array.isArray(value) && value.every((each) => typeof each !== "object")) return value.join(", ") || UNKNOWN;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
