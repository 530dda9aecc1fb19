"""Import graph: which module of ours imports which, at its top or inside a function."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "manyhands"


@dataclass(frozen=True)
class Import:
    """One module imports another; `inside` names the function in which it does, "" at the top."""

    module: str
    imported: str
    inside: str
    line: int


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Each module by its name below the package, "" for the package itself."""
    named = {".".join(path.relative_to(source).with_suffix("").parts): path for path in sorted(source.rglob("*.py"))}
    return {name.removesuffix("__init__").removesuffix("."): path for name, path in named.items()}


def imports(source: Path = SOURCE) -> list[Import]:
    """All imports of ours; what is imported for types alone does not count."""
    every = modules(source)
    return [each for name, path in every.items() for each in _of(name, path, every, source.name)]


def _of(name: str, path: Path, every: Mapping[str, Path], package: str) -> Iterator[Import]:
    for node, inside in _walk(ast.parse(path.read_text()), ""):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            wanted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for full in wanted:
            if full.split(".")[0] == package and (target := _target(full, every, package)) != name:
                yield Import(name, target, inside, node.lineno)


def _walk(node: ast.AST, inside: str) -> Iterator[tuple[ast.AST, str]]:
    """All nodes with the outermost function that each stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child, inside
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _walk(child, inside or (child.name if is_function else ""))


def _target(full: str, every: Mapping[str, Path], package: str) -> str:
    """The module that `import full`, or `from … import …`, loads."""
    name = full.removeprefix(package).removeprefix(".")
    while name and name not in every:
        name = name.rpartition(".")[0]
    return name
