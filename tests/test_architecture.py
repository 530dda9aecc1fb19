"""Holds the import table, the torch-free list and the shape of the source tree."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "manyhands"
FOR_ALL = {"errors", "files", "progress", "timeline"}
FOUNDATION = {"models", "optim", "graph", "machine"}
BELOW_RUNS = FOUNDATION | {"plan", "data", "comm", "cost", "simulate", "search", "engine"}

# docs/architecture.md says why; this table is the one that is enforced.
MAY_IMPORT: dict[str, set[str]] = {
    **{room: set() for room in FOR_ALL | FOUNDATION | {"recipes"}},
    "plan": {"graph", "machine"},
    "data": {"machine"},
    "comm": {"machine", "plan"},
    "cost": {"graph", "machine", "plan", "comm"},
    "simulate": {"graph", "machine", "plan", "cost"},
    "search": {"graph", "machine", "plan", "cost", "simulate"},
    "engine": {"graph", "machine", "plan", "comm", "data", "optim"},
    "runs": BELOW_RUNS,
    "report": {"runs.store"},
    "cli": BELOW_RUNS | {"runs", "report", "recipes"},
    "__init__": BELOW_RUNS | {"runs"},
    "__main__": {"cli"},
}

TORCH_FREE = [
    "manyhands",
    "manyhands.timeline",
    "manyhands.plan",
    "manyhands.graph",
    "manyhands.simulate",
    "manyhands.runs.run_folder",
    "manyhands.report",
    "manyhands.cli.main",
    "manyhands.machine",
]


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    """The names below `manyhands` that a file imports, e.g. "runs.run_folder"."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "manyhands":
            for alias in node.names:
                yield f"{node.module}.{alias.name}".removeprefix("manyhands.")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("manyhands."):
                    yield alias.name.removeprefix("manyhands.")


def allowed(room: str, imported: str) -> bool:
    first = imported.split(".")[0]
    if first == room or first in FOR_ALL:
        return True
    return any(imported == name or imported.startswith(f"{name}.") for name in MAY_IMPORT[room])


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_follow_the_table(path: Path) -> None:
    wrong = [name for name in imports_of(path) if not allowed(room_of(path), name)]
    assert not wrong, f"{room_of(path)} may not import {wrong}"


def test_the_table_names_every_room() -> None:
    assert {room_of(path) for path in modules()} <= MAY_IMPORT.keys()


def test_the_check_itself_can_fail() -> None:
    assert not allowed("engine", "search.chain")
    assert not allowed("report", "runs.config")
    assert allowed("report", "runs.store.load")


@pytest.mark.parametrize("module", TORCH_FREE)
def test_torch_free(module: str) -> None:
    """Each of these, with all its submodules where it is a package of the list, imports without torch."""
    code = (
        "import importlib, pkgutil, sys\n"
        f"top = importlib.import_module({module!r})\n"
        f"if {module!r} != 'manyhands' and hasattr(top, '__path__'):\n"
        "    for each in pkgutil.walk_packages(top.__path__, top.__name__ + '.'):\n"
        "        if each.name not in ('manyhands.graph.idle', 'manyhands.graph.trace', 'manyhands.graph.hook_trace',\n"
        "                             'manyhands.machine.probe'):\n"
        "            importlib.import_module(each.name)\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"{module} imports torch"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "a module begins with one sentence that says what it is"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
