"""The studies' tables: trained on each machine by `run`, then written for all machines by `page`.

python benchmarks/studies.py run --out here [--full] [--repeats 2] [epochs …]
python benchmarks/studies.py page here there … --into benchmarks/results/studies

A page keeps what it says of other machines than those of the folders.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from manyhands.report.gather import gather
from manyhands.report.text.markdown import markdown
from manyhands.studies import recipe


def run(out: Path, names: list[str], options: list[str]) -> None:
    """Every study in a folder of its own; one that was begun there before is finished."""
    for name in names or recipe.names():
        subprocess.run([sys.executable, "-m", "manyhands", "study", name, "--out", out / name, *options], check=False)


def page(folders: list[Path], into: Path) -> None:
    """A file a study, with a part for each machine that it was trained on."""
    into.mkdir(parents=True, exist_ok=True)
    for name in recipe.names():
        parts = dict(_part(folder / name) for folder in folders if (folder / name / "study.json").exists())
        if parts:
            path = into / f"{name}.md"
            parts = _parts_of(path.read_text()) | parts if path.exists() else parts
            path.write_text("\n".join([f"# {recipe.read(name).title}\n", *parts.values()]))
            print(path, len(parts))


def _part(folder: Path) -> tuple[str, str]:
    """A machine, and the report of one study there under it as the heading."""
    report = gather([folder], f"python benchmarks/studies.py page {folder.parent.name}")
    _, _, body = markdown(report).partition("\n")
    machine = report.studies[0].here
    return machine, f"## {machine}\n{body}"


def _parts_of(text: str) -> dict[str, str]:
    """The parts of a page, by machine."""
    _, *parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return {part.partition("\n")[0].removeprefix("## "): part.rstrip("\n") + "\n" for part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    trains = commands.add_parser("run")
    trains.add_argument("names", nargs="*")
    trains.add_argument("--out", type=Path, required=True)
    trains.add_argument("--full", action="store_true")
    trains.add_argument("--repeats")
    writes = commands.add_parser("page")
    writes.add_argument("folders", nargs="+", type=Path)
    writes.add_argument("--into", type=Path, default=Path("benchmarks/results/studies"))
    told = parser.parse_args()
    if told.command == "page":
        page(told.folders, told.into)
        return
    repeats = ["--repeats", told.repeats] if told.repeats else []
    run(told.out, told.names, [*(["--full"] if told.full else []), *repeats])


if __name__ == "__main__":
    main()
