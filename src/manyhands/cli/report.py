"""`manyhands report`: runs as a page, and as Markdown, CSV and pictures if wanted."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from manyhands.cli import options, output, outputs
from manyhands.files import make_folder, write_bytes, write_texts
from manyhands.progress import say
from manyhands.report.charts.spec import Chart

Paths = Annotated[
    list[Path],
    typer.Argument(parser=options.run_folder, metavar="PATH...", help="Runs, or folders that hold runs."),
]


def report(
    paths: Paths,
    page: Annotated[Path, typer.Option("-o", "--out", parser=outputs.file_name, help="The page: one file.")] = Path(
        "report.html"
    ),
    md: Annotated[
        Path | None, typer.Option("--md", parser=outputs.file_name, help="The tables as Markdown, too.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", parser=outputs.file_name, help="A row a run as CSV, too.")
    ] = None,
    figures: Annotated[Path | None, typer.Option("--figures", help="A folder for plots as PNG and SVG, too.")] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Make a page of runs, comparisons or studies: one file that opens offline, the finding first."""
    output.set_output(as_json, quiet)
    from manyhands.report.gather import gather
    from manyhands.report.page import page as pages
    from manyhands.report.text import csv_export, markdown  # plotly comes in here: --help must not wait for it

    wanted = {"--md": md, "--csv": csv, "--figures": figures}
    outputs.check({"-o": page, "--md": md, "--csv": csv}, folder=figures)
    given = [word for name, path in wanted.items() if path for word in (name, str(path))]
    found = gather(paths, shlex.join(["manyhands", "report", *map(str, paths), "-o", str(page), *given]))
    for folder, reason in found.skipped:
        say(f"warning: left out {folder}: {reason}")
    texts = {page: pages.page(found)}
    if md:
        texts[md] = markdown.markdown(found)
    if csv:
        texts[csv] = csv_export.csv_of(found.rows)
    if figures:
        make_folder(figures)  # a name that cannot be one is refused before anything is written
    write_texts(texts)
    drawn = _draw(found.drawn, figures) if figures else []
    if output.wants_json():
        output.emit(
            {
                "page": str(page),
                "md": str(md) if md else None,
                "csv": str(csv) if csv else None,
                "figures": [str(path) for path in drawn],
                "runs": sum(len(row.runs) for row in found.rows),
                "skipped": [{"folder": str(folder), "reason": reason} for folder, reason in found.skipped],
                "finding": found.finding,
            }
        )
        return
    print(found.finding)
    for name, made in {"page": page, "markdown": md, "csv": csv, "figures": figures}.items():
        if made:
            print(f"{name}: {made}")


def _draw(charts: Iterable[Chart], folder: Path) -> list[Path]:
    """Each chart as PNG and as SVG, by its name; a name that is taken gets a number."""
    from manyhands.report import matplotlib_backend  # matplotlib

    written: list[Path] = []
    for chart in charts:
        same = sum(path.stem.partition(".")[0] == chart.name for path in written) // 2
        name = f"{chart.name}.{same + 1}" if same else chart.name
        for path, content in (
            (folder / f"{name}.png", matplotlib_backend.png(chart)),
            (folder / f"{name}.svg", matplotlib_backend.svg(chart)),
        ):
            write_bytes(path, content)
            written.append(path)
    return written
