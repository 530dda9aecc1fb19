"""Holds the order of rooms by planting what breaks it, the torch-free list and the shape of the source tree."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "manyhands"
MOST_MODULES = 15  # in a folder; in cli one a command

# Each of these, with all that is below it where it is a folder, is imported without torch: what the command line and
# the launcher need, and a rank before it is on its cores.
TORCH_FREE = [
    "manyhands",
    "manyhands.api",
    "manyhands.cli.main",
    "manyhands.comm.launch",
    "manyhands.comm.process_setup",
    "manyhands.comm.ranks.rank_info",
    "manyhands.comm.rendezvous",
    "manyhands.config",
    "manyhands.graph",
    "manyhands.machine",
    "manyhands.plan",
    "manyhands.report",
    "manyhands.runs",
    "manyhands.simulate.cost",
    "manyhands.simulate.search",
    "manyhands.simulate.step",
    "manyhands.studies.study",
    "manyhands.timeline",
    "manyhands.train.launch",
    "manyhands.train.rank",
    "manyhands.train.user_script.launch",
    "manyhands.train.worker",
]
NEED_TORCH = ("graph.idle", "graph.trace", "graph.hook_trace", "machine.probe")

PLANTED = {
    "upward": ("plan/axis.py", "from manyhands.engine import parallelize\n"),
    "upward, inside a function": ("plan/axis.py", "def later():\n    from manyhands.train import create\n"),
    "round": ("plan/axis.py", "def later():\n    from manyhands.plan import plan\n"),
    "a report that trains": ("report/gather.py", "from manyhands.train import create\n"),
    "a room that nobody knows": ("nosuch.py", '"""A room."""\n'),
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def rooms_hold(source: Path) -> bool:
    """Whether import-linter finds the contracts of pyproject.toml kept."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache', '--no-logo'])"
    environment = {"PYTHONPATH": str(source.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=source.parents[1], env=environment, capture_output=True)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


@pytest.mark.parametrize("planted", [None, *PLANTED])
def test_the_order_of_rooms_is_held(tmp_path: Path, planted: str | None) -> None:
    """As it is; and not with an import of each kind that it forbids."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    source = tmp_path / "src" / "manyhands"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    if planted is not None:
        name, code = PLANTED[planted]
        with (source / name).open("a") as file:
            file.write(code)
    assert rooms_hold(source) == (planted is None)


@pytest.mark.parametrize("module", TORCH_FREE)
def test_torch_free(module: str) -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        f"top = importlib.import_module({module!r})\n"
        f"if {module!r} != 'manyhands' and hasattr(top, '__path__'):\n"
        "    for each in pkgutil.walk_packages(top.__path__, top.__name__ + '.'):\n"
        f"        if each.name.removeprefix('manyhands.') not in {NEED_TORCH!r}:\n"
        "            importlib.import_module(each.name)\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"{module} imports torch"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_says_what_it_is(path: Path) -> None:
    told = ast.get_docstring(ast.parse(path.read_text()))
    assert told, "a module begins with one sentence that says what it is"
    if path.name == "__init__.py" and path.parent not in (SOURCE, SOURCE / "recipes"):
        assert "? Start reading at `" in told, "a folder says which question it answers, and where to start"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_folders_stay_small() -> None:
    counts = {folder: len([*folder.glob("*.py")]) - 1 for folder in {path.parent for path in modules()}}
    assert {
        folder.name: count for folder, count in counts.items() if count > MOST_MODULES and folder.name != "cli"
    } == {}
