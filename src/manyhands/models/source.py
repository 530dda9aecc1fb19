"""Source: a checksum of a user's own model code, with every file of his that it imports."""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


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
