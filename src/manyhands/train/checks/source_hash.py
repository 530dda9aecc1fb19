"""Source hash: whether a run's model code and data are still those with which it began, by checksum.

The code is the user's own file with every file of his that it imports; nothing is imported to find them.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from manyhands.data.dataset import Dataset
from manyhands.errors import DataError, ModelError
from manyhands.progress import say
from manyhands.runs import run_folder

INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
SOURCE, DATA = "source_sha256", "data_sha256"  # in run.json; runs of before have neither


def check_code(run: run_folder.Run, *, allowed: bool = False) -> None:
    """Refuse weights of one model for the code of another."""
    model = str(run.record["config"]["model"]["name"])
    if ":" not in model:
        return
    known, now = run.record.get(SOURCE), source_hash(model)
    if known is None or now is None:
        say(f"whether the code of {model} has changed since the run began was not checked: no checksum of it is known")
    elif known != now and allowed:
        say(f"the code of {model} has changed since the run began, which --changed-code allows")
    elif known != now:
        raise ModelError(
            f"the code of {model}, or of a file that it imports, has changed since the run began: put it back, train "
            "anew, or say --changed-code where what it computes is the same"
        )


def check_data(run: run_folder.Run, dataset: Dataset) -> None:
    """Refuse to go on with other data."""
    known = run.record.get(DATA)
    if known is None:
        say(
            f"whether the data of {dataset.source} have changed since the run began was not checked: no checksum of "
            "them is known"
        )
    elif known != dataset.checksum:
        raise DataError(
            f"the data of {dataset.source} have changed since the run began: put them back, or begin a new run"
        )


def source_hash(model: str) -> str | None:
    """Of `file.py:factory` or `package.module:factory`; None of a zoo model, which the version tells."""
    source = model.rpartition(":")[0]
    if not source:
        return None
    folder = Path(source).expanduser().resolve().parent if source.endswith(".py") else Path.cwd()
    first = Path(source).expanduser().resolve() if source.endswith(".py") else _found(source, folder)
    if first is None or not first.is_file():
        return None
    digest = hashlib.sha256()
    for path in _files(first, folder):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(first: Path, folder: Path) -> list[Path]:
    """It and what it imports, directly or not, outside of installed packages; in the order in which they are found."""
    found, left = [first], [first]
    while left:
        path = left.pop()
        for name in _imports(path):
            other = _found(name, folder)
            if other is not None and other not in found and not str(other).startswith(INSTALLED):
                found.append(other)
                left.append(other)
    return found


def _imports(path: Path) -> Iterator[str]:
    """Names of modules, and of what is taken from them, which may be modules too."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = _package(path, node.level) if node.level else ""
            base = ".".join(filter(None, (home, node.module)))
            if base:
                yield base
            yield from (".".join(filter(None, (base, each.name))) for each in node.names)


def _package(path: Path, level: int) -> str:
    """The package that a relative import of so many dots begins at."""
    names: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names[: len(names) - level + 1])


def _found(name: str, folder: Path) -> Path | None:
    """The file of a module, looked for as the model's own imports are; nothing is imported for it."""
    for home in (folder, *map(Path, sys.path)):
        path = home.joinpath(*name.split("."))
        for each in (path.with_suffix(".py"), path / "__init__.py"):
            with suppress(OSError):
                if each.is_file():
                    return each.resolve()
    return None
