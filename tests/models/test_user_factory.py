"""A user's own factory, from a file and from a module, and all the ways in which it can fail."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from manyhands.errors import ModelError
from manyhands.models.zoo import Options, Shapes, build

SHAPES = Shapes(3, (1, 4, 4), None)

SOURCE = """
from dataclasses import dataclass
from torch import nn
from neighbour import HIDDEN

@dataclass
class Sizes:
    hidden: "int" = HIDDEN

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.output = nn.Linear(Sizes().hidden, classes)

def flat(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))

def by_keywords(**given):
    assert set(given) == {"classes", "shape", "vocabulary"}
    return nn.Linear(given["shape"][-1], given["classes"])

def without(): return nn.Linear(1, 1)
def with_default(classes, hidden=7): return nn.Linear(hidden, classes)
def demanding(classes, layers): return nn.Linear(1, 1)
def failing(classes): raise ValueError("two\\nlines")
def leaving(): raise SystemExit(3)
def nothing(): pass
number = 7
"""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "users_model.py").write_text(SOURCE)
    (tmp_path / "neighbour.py").write_text("HIDDEN = 5\n")
    (tmp_path / "broken.py").write_text("import no_such_package_anywhere\n")
    (tmp_path / "typo.py").write_text("def make(:\n")
    monkeypatch.chdir(tmp_path)
    for name in ("users_model", "neighbour", "broken", "typo"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("factory", ["flat", "by_keywords", "without", "with_default", "Net"])
def test_a_factory_takes_what_it_asks_for(folder: Path, factory: str) -> None:
    from_file = build(f"{folder}/users_model.py:{factory}", SHAPES, seed=3)
    relative = build(f"users_model.py:{factory}", SHAPES, seed=3)
    from_module = build(f"users_model:{factory}", SHAPES, seed=3)
    for other in (relative, from_module):
        pairs = zip(from_file.parameters(), other.parameters(), strict=True)
        assert all(torch.equal(one, two) for one, two in pairs)


def test_it_leaves_the_path_and_the_random_state(folder: Path) -> None:
    path, state = list(sys.path), torch.random.get_rng_state()
    assert isinstance(build("users_model.py:flat", SHAPES), nn.Sequential)
    assert sys.path == path
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent.py:make", "no file absent.py"),
        ("absent.module:make", "module absent.module cannot be imported .ModuleNotFoundError"),
        ("broken.py:make", "broken.py cannot be imported .ModuleNotFoundError.*no_such_package"),
        ("typo.py:make", "typo.py cannot be imported .SyntaxError"),
        ("users_model.py:", "does not name a factory"),
        (":make", "does not name a factory"),
        ("users_model.py:fla", "has no 'fla'; it has: Sizes, Net, flat"),
        ("users_model.py:number", "no callable 'number'"),
        ("users_model.py:demanding", "needs 'layers': a factory gets classes, shape, vocabulary"),
        ("users_model.py:failing", r"failed with ValueError: two lines when called with \(classes=3\)"),
        ("users_model.py:leaving", "failed with SystemExit"),
        ("users_model.py:nothing", "returned NoneType, not an nn.Module"),
        ("users_model.py", "file.py:factory"),
    ],
)
def test_failures_are_told_in_one_line(folder: Path, name: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        build(name, SHAPES)
    assert "\n" not in str(caught.value)


def test_options_are_for_the_zoo(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"model.width is for zoo models"):
        build("users_model.py:flat", SHAPES, Options(width=2.0))
