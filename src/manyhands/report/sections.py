"""Sections: the parts of the page under its summary, each a function from rows to HTML."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from manyhands.report import plots, summary
from manyhands.report.html import Html, fill, join, paragraph, section, table
from manyhands.report.summary import Row
from manyhands.runs.store import Run

PHASES = {
    "setup": "start-up",
    "search": "search",
    "compile": "compile",
    "train": "train",
    "eval": "evaluate",
    "checkpoint": "checkpoint",
    "layers": "time layers",
    "other": "other",
}
PHASE_COLOURS = dict(
    zip(PHASES, ("#56B4E9", "#E69F00", "#CC79A7", "#0072B2", "#009E73", "#F0E442", "#D55E00", "#999999"), strict=True)
)
PLANS = {
    "plain": "the usual PyTorch script with its defaults",
    "serial": "one device at its best: what is not said is filled with what measured fastest here",
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
}


def of(rows: Sequence[Row], command: str) -> Iterator[Html]:
    """All parts, in their order; one that has nothing to show is left out."""
    yield _results(rows)
    yield _curves(rows)
    if fastest := summary.fastest_run(rows):
        yield _layers(rows, fastest)
    if any(row.finished for row in rows):
        yield _phases(rows)
    yield _plans(rows)
    yield from (_trials(row, run) for row in rows for run in row.runs[:1] if run.record.get("trials"))
    yield _machine(rows)
    yield section("Make it again", fill("<pre>$command</pre>", command=command))


def _results(rows: Sequence[Row]) -> Html:
    columns = ["plan", "precision", "samples/s", "speed-up", "training seconds", "test accuracy, %", "n"]
    lines = [
        (
            _dotted(row.label, colour),
            _precision(row),
            summary.spread(row.speed),
            "–" if row.speedup is None else f"{row.speedup:.2f}x",
            summary.spread(row.seconds, 1),
            summary.spread(row.accuracy, 2, scale=100),
            len(row.finished),
        )
        for row, colour in zip(rows, plots.colours(rows), strict=True)
    ]
    errors = (paragraph(f"{row.label}: {error}", "error") for row in rows for error in row.errors)
    deviation = paragraph(
        "± is the sample deviation over n runs; samples/s leaves out the first steps of a training, which warm up.",
        "soft",
    )
    return section("Side by side", table(columns, lines, words=2), join(errors), deviation)


def _precision(row: Row) -> str:
    return ", ".join(dict.fromkeys(str(run.record.get("plan", {}).get("precision", "–")) for run in row.runs))


def _dotted(label: str, colour: str) -> Html:
    return fill('<span class="dot" style="background:$colour"></span>$label', colour=colour, label=label)


def _prose(words: str) -> Html:
    """A cell that may break its lines."""
    return fill('<div class="prose">$words</div>', words=words)


def _figure(svg: bytes, name: str, words: str) -> Html:
    """A figure inside the page; its ids get a name of their own, since a page may hold several figures."""
    inline = svg.decode().partition("<svg")[2]
    inline = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", inline)
    return fill('<figure><svg role="img" aria-label="$words"$svg</figure>', words=words, svg=Html(inline))


def _curves(rows: Sequence[Row]) -> Html:
    figures = (
        _figure(plots.speed_svg(rows), "speed", "Samples a second by plan"),
        _figure(plots.curves_svg(rows), "curves", "Training loss against seconds of training"),
    )
    return section("Speed and learning", fill('<div class="figures">$figures</div>', figures=join(figures)))


def _layers(rows: Sequence[Row], run: Run) -> Html:
    layers: list[dict[str, Any]] = run.record["layers"]
    label = next(row.label for row in rows if run in row.runs)
    lines = [
        (
            each["name"],
            each["kind"],
            f"{each['parameters']:,}",
            summary.number(each["forward_ms"], 2),
            summary.number(each["backward_ms"], 2),
            summary.times(summary.ratio(each)),
        )
        for each in [*layers, summary.total(layers, "all")]
    ]
    columns = ["layer", "kind", "parameters", "forward ms", "backward ms", "ratio"]
    figure = _figure(plots.layers_svg(layers), "layers", "Forward and backward milliseconds by layer")
    return section(
        "Where a step's time goes",
        paragraph(f"Each layer of {label} timed apart, on the input that it really gets.", "soft"),
        fill('<div class="figures uneven">$figure$table</div>', figure=figure, table=table(columns, lines, words=2)),
    )


def _phases(rows: Sequence[Row]) -> Html:
    runs = [(row, run, _seconds(run)) for row in rows for run in row.finished]
    longest = max(sum(seconds.values()) for _, _, seconds in runs)
    used = [phase for phase in PHASES if any(seconds[phase] >= 0.05 for _, _, seconds in runs)]
    legend = join(fill("<span>$entry</span>", entry=_dotted(PHASES[phase], PHASE_COLOURS[phase])) for phase in used)
    lines = [
        (
            run.name,
            _bar(seconds, longest),
            *(summary.number(seconds[phase], 1) for phase in used),
            summary.number(sum(seconds.values()), 1),
        )
        for _, run, seconds in runs
    ]
    columns = ["run", "", *(PHASES[phase] for phase in used), "total"]
    return section(
        "Where the seconds went",
        fill('<div class="legend">$legend</div>', legend=legend),
        table(columns, lines, words=2),
    )


def _seconds(run: Run) -> dict[str, float]:
    """Seconds by phase, with what no phase accounts for."""
    told: dict[str, float] = (run.result or {}).get("seconds", {})
    seconds = {phase: told.get(phase, 0.0) for phase in PHASES}
    seconds["other"] = max(0.0, told.get("total", 0.0) - sum(seconds.values()))
    return seconds


def _bar(seconds: dict[str, float], longest: float) -> Html:
    parts = (
        fill(
            '<i style="background:$colour;width:$share%"></i>',
            colour=PHASE_COLOURS[phase],
            share=f"{100 * value / longest:.2f}",
        )
        for phase, value in seconds.items()
    )
    return fill('<div class="bar">$parts</div>', parts=join(parts))


def _plans(rows: Sequence[Row]) -> Html:
    """The options of every plan side by side; those that differ are bold."""
    plans = [row.runs[0].record.get("plan", {}) for row in rows]
    names = dict.fromkeys(name for plan in plans for name in plan if name not in ("axes", "cores"))
    lines = []
    for name in names:
        values = [str(plan.get(name, "–")) for plan in plans]
        differ = len(set(values)) > 1
        cells = [fill("<b>$value</b>", value=value) if differ else value for value in values]
        lines.append((name, *cells, _prose(MEANINGS.get(name, ""))))
    words = (fill('<p class="words"><code>$plan</code></p>', plan=row.runs[0].plan) for row in rows)
    known = [(name, PLANS[name]) for name in dict.fromkeys(row.label.split(",")[0] for row in rows) if name in PLANS]
    return section(
        "The plans",
        *(fill("<p><b>$name</b>: $words.</p>", name=name, words=words) for name, words in known),
        table(["option", *(row.label for row in rows), ""], lines, words=len(rows) + 2),
        paragraph("As words for --plan:", "soft"),
        *words,
    )


def _trials(row: Row, run: Run) -> Html:
    """What was measured before a plan was settled, told by the options that differ."""
    trials: list[dict[str, Any]] = run.record["trials"]
    options = [str(each["plan"]).split(",") for each in trials]
    common = set.intersection(*map(set, options))
    lines = [
        (
            ", ".join(word for word in words if word not in common) or row.label,
            "taken" if each["plan"] == run.plan else "",
            summary.number(each["step_ms"], 1),
            summary.number(each["first_ms"], 0),
        )
        for each, words in zip(trials, options, strict=True)
    ]
    return section(
        f"What was tried for {row.label}",
        paragraph(
            "Each for some real steps, in this run or in an earlier one that is remembered. – did not run here.", "soft"
        ),
        table(["tried", "", "ms a step", "first steps, ms"], lines, words=2),
    )


def _machine(rows: Sequence[Row]) -> Html:
    records = [run.record for row in rows for run in row.runs]
    machines = dict.fromkeys(str(each.get("machine_words", "–")) for each in records)
    systems = dict.fromkeys(str(each.get("machine", {}).get("system", "")) for each in records)
    versions = dict.fromkeys(
        ", ".join(f"{name} {version}" for name, version in each.get("versions", {}).items()) for each in records
    )
    facts = [
        ("machine", "; ".join(machines)),
        ("system", "; ".join(systems)),
        ("versions", "; ".join(versions)),
        ("runs", ", ".join(run.name for row in rows for run in row.runs)),
    ]
    lines = [(name, _prose(value)) for name, value in facts]
    return section("Machine and versions", table(["", ""], lines, words=2))
