"""`manyhands data list | get | info`."""

from pathlib import Path
from typing import Annotated

import typer

from manyhands.cli import options, output
from manyhands.data import catalog, dataset, download
from manyhands.data.load import load

app = typer.Typer(
    help="Data sets: which are known, get one, look at one.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command("list")
def listing(as_json: output.Json = False, quiet: output.Quiet = False) -> None:
    """The known sets, and whether they are here."""
    output.set_output(as_json, quiet)
    rows = catalog.listing()
    if output.wants_json():
        output.emit({"sets": rows})
        return
    output.table(
        ["name", "kind", "here", "licence"],
        [[row["name"], row["kind"], row["where"] or "no", row["licence"]] for row in rows],
    )


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A name from `manyhands data list`.")],
    folder: Annotated[Path | None, typer.Option("--out", help="Where to put the files.")] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Download a known set, checked against its checksums; goes on where an earlier try broke off."""
    output.set_output(as_json, quiet)
    catalog.by_name(name)
    path = download.get(name, folder)
    if output.wants_json():
        output.emit({"name": name, "path": str(path)})
    else:
        print(path)


@app.command("info")
def about(
    path: Annotated[str, typer.Argument(help="A known name, a path, or synthetic:3x64x64,10.")],
    settings: options.Set = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """What a data set holds."""
    output.set_output(as_json, quiet)
    config = options.make_config(None, path, None, None, None, settings)
    facts = dataset.info(load(path, config.data))
    if output.wants_json():
        output.emit(facts)
        return
    output.table(["", str(facts["name"])], [[key, str(value)] for key, value in facts.items() if key != "name"])
