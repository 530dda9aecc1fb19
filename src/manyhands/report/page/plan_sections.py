"""Sections on plans: their options side by side, and what was tried before one was settled."""

from collections.abc import Iterator, Sequence
from typing import Any

from manyhands.report.data.summary import Row
from manyhands.report.page.html import Html, Section, details, fill, join, paragraph, prose, section, table
from manyhands.stats import number

MOST_PLANS = 8  # side by side; the words of all follow
MOST_TRIED = 12  # cases whose trials are shown

PLANS = {
    "plain": "the usual PyTorch script with its defaults",
    "ddp": "the usual DistributedDataParallel script with its defaults",
    "serial": "one device at its best: what is not said is filled with what measured fastest here",
    "data": "ranks that share each batch, and add up their gradients after it",
}
MEANINGS = {
    "device": "where the model computes",
    "precision": "of matrix products and convolutions; weights stay in fp32",
    "layout": "the order of an image's numbers in memory",
    "allocator": "keep: freed memory stays with the process",
    "kernels": "own: manyhands' faster stand-ins for some of torch's CPU layers",
    "compile": "torch.compile",
    "capture": "the step as one CUDA graph",
    "feed": "loader: torch's DataLoader; device: the whole set lies in the device's memory",
    "workers": "loader processes",
    "threads": "inside one operation",
    "backend": "how ranks add up their gradients",
    "compress": "what is done to gradients before they are sent",
    "shard": "what of optimizer and weights a rank keeps only its part of",
}


def plans(rows: Sequence[Row]) -> Section:
    """The options of every plan side by side; those that differ are bold."""
    different = list({row.runs[0].plan: row for row in reversed(rows)}.values())[::-1]
    shown = different[:MOST_PLANS]
    options: list[dict[str, Any]] = [row.runs[0].record.get("plan") or {} for row in shown]
    lines = []
    for name in dict.fromkeys(name for plan in options for name in plan if name not in ("axes", "cores")):
        values = [str(plan.get(name, "–")) for plan in options]
        differ = len(set(values)) > 1
        cells = [fill("<b>$value</b>", value=value) if differ else value for value in values]
        lines.append((name, *cells, prose(MEANINGS.get(name, ""))))
    names = ["all"] if len(different) == 1 and len(rows) > 1 else [row.label for row in shown]
    words = [fill('<p class="words"><code>$plan</code></p>', plan=row.runs[0].plan) for row in different]
    axes = dict.fromkeys(row.runs[0].plan.split(",")[0].partition(":")[0] for row in shown)
    told = join(fill("<p><b>$name</b>: $words.</p>", name=name, words=PLANS[name]) for name in axes if name in PLANS)
    return section(
        "The plans",
        told,
        table(["option", *names, ""], lines, words=len(shown) + 2),
        details(f"As words for --plan ({len(words)})", *words) if len(words) > 3 else join(words),
    )


def trials(rows: Sequence[Row]) -> Iterator[Section]:
    """What was measured before the plan of each case was settled; trials that are remembered count once."""
    seen: list[Any] = []
    tried = []
    for row in rows:
        run = next((run for run in row.runs if run.record.get("trials")), None)
        if run and run.record["trials"] not in seen:
            seen.append(run.record["trials"])
            tried.append(details(f"For {row.label}", _tried(row, run.plan, run.record["trials"])))
    if tried:
        note = "Each for some real steps, in this run or in an earlier one that is remembered. – did not run here."
        yield section("What was tried", paragraph(note, "soft"), *tried[:MOST_TRIED])


def _tried(row: Row, taken: str, every: Sequence[dict[str, Any]]) -> Html:
    """Told by the options that differ."""
    options = [str(each["plan"]).split(",") for each in every]
    common = set.intersection(*map(set, options))
    columns = ["tried", "", "ms a step", "first steps, ms"]
    lines: list[list[object]] = [
        [
            ", ".join(word for word in words if word not in common) or row.label,
            "taken" if each["plan"] == taken else "",
            number(each.get("step_ms"), 1),
            number(each.get("first_ms"), 0),
        ]
        for each, words in zip(every, options, strict=True)
    ]
    if any(each.get("fed") for each in every):
        columns.insert(2, "counted")
        for line, each in zip(lines, every, strict=True):
            line.insert(2, "with loading" if each.get("fed") else "the step alone")
    if any(each.get("error") for each in every):
        columns.append("")
        for line, each in zip(lines, every, strict=True):
            line.append(prose(str(each.get("error") or "")[:300]))
    return table(columns, lines, words=2 if len(columns) == 4 else 3)
