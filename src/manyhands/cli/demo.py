"""`manyhands demo`: plain PyTorch beside manyhands in a few minutes, with a picture and a page to show."""

import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from manyhands import api
from manyhands.cli import options, output
from manyhands.cli.compare import show
from manyhands.errors import StorageError
from manyhands.files import make_folder, storage_errors, write_bytes, write_text
from manyhands.plan.spec import parse
from manyhands.runs import run_folder
from manyhands.studies import compare as comparison

MODEL, DATA, EPOCHS, SIZE = "convnet", "digits", "2", 20_000
PLANS = ("plain", "auto", "auto,precision=fp32")
MARKER = ".manyhands-demo"
WRITTEN = ("index.html", "demo.png", "compare.json")


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder for runs, picture and page.")] = Path("demo"),
    settings: Annotated[list[str] | None, typer.Option("--set", hidden=True)] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> int:
    """Train a small convnet with plain PyTorch and with manyhands, and show both side by side."""
    output.set_output(as_json, quiet)
    settings = [f"data.size={SIZE}", *(settings or [])]
    config = options.make_config(MODEL, DATA, EPOCHS, None, None, settings)
    _clear(out)
    found = api.resolved(parse("auto"), config)
    # In fp32 too, for those who want nothing else: the same plan, which spares a second search.
    plans = [parse("plain"), found, replace(found, precision="fp32")]
    result = comparison.compare(config, list(zip(PLANS, plans, strict=True)), repeats=1, out=out)
    from manyhands.report import matplotlib_backend
    from manyhands.report.data.group import Group
    from manyhands.report.gather import of_groups
    from manyhands.report.page import page  # plotly and matplotlib come in here: --help must not wait for them

    groups = [
        Group(row["plan"], tuple(run_folder.load(Path(folder)) for folder in row["runs"])) for row in result["rows"]
    ]
    report = of_groups(groups, _command(settings))
    verdict = report.finding
    html, picture = out / "index.html", out / "demo.png"
    write_bytes(picture, matplotlib_backend.picture([*report.drawn][:2], verdict))
    write_text(html, page.page(report))
    if output.wants_json():
        output.emit({**result, "finding": verdict, "page": str(html), "picture": str(picture)})
    else:
        show(result)
        print(f"{verdict}\npage: {html}\npicture: {picture}")
    return 1 if any(row["failed"] for row in result["rows"]) else 0


def _clear(out: Path) -> None:
    """A folder with our mark; what an earlier demo wrote there goes, anything else is not ours to touch."""
    with storage_errors(out):
        if out.is_dir() and any(out.iterdir()):
            if not (out / MARKER).exists():
                raise StorageError(f"the folder {out} is not empty and holds no earlier demo: choose another --out")
            for each in (*out.glob("[0-9]-*-r[0-9]"), *(out / name for name in WRITTEN)):
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink(missing_ok=True)
        make_folder(out)
        (out / MARKER).touch()


def _command(settings: list[str]) -> str:
    """The comparison as a command that takes other models, data and plans as well."""
    plans = [word for plan in PLANS for word in ("--plan", plan)]
    changes = [word for setting in settings for word in ("--set", setting)]
    words = ["manyhands", "compare", MODEL, "--data", DATA, *plans, "--epochs", EPOCHS, "--repeats", "1"]
    return shlex.join([*words, *changes])
