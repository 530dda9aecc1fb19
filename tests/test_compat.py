"""Torch's private names stand in compat alone, and a torch that nobody has tested is told."""

import ast
from pathlib import Path

import pytest

from manyhands.compat import untested

SOURCE = Path(__file__).parent.parent / "src" / "manyhands"


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.12.1a0+git1234"])
def test_what_was_tested(version: str) -> None:
    assert untested(version) is None


@pytest.mark.parametrize("version", ["2.14.0", "3.0.0+cu140"])
def test_what_was_not(version: str) -> None:
    assert (line := untested(version)) is not None
    assert line.startswith(f"torch {version} is newer than what manyhands was tested with (up to 2.13)")


def private(path: Path) -> set[str]:
    """What a module names of torch that begins with an underscore."""
    tree, found, roots = ast.parse(path.read_text()), set(), {"torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found |= {name for name in names if is_private(name)}
            roots |= {alias.asname or alias.name for alias in node.names if alias.name.islower()}
        elif isinstance(node, ast.Import):
            roots |= {alias.asname for alias in node.names if alias.asname and alias.name.startswith("torch")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and root(node) in roots:
            found.add(node.attr)
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def root(node: ast.AST) -> str:
    """`torch` of `torch.nn.modules`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_private_names_stand_in_one_file() -> None:
    found = {str(path.relative_to(SOURCE)): names for path in SOURCE.rglob("*.py") if (names := private(path))}
    assert found.keys() == {"compat.py"}, found
