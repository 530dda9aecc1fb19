"""A study: the recipe is read, what this machine lacks is left out, and the finding follows the numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyhands.cli.study import show
from manyhands.errors import ConfigError, InputError
from manyhands.machine.detect import detect
from manyhands.plan.words import parse
from manyhands.runs import store, study
from manyhands.runs.config import Config

CLAIM = {"words": "more cores gain under 1 % over one", "gain_below": 0.01}
TINY = """
source = "a made-up source"
hardware = "a made-up machine"
differs = "in everything"
plan = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off"
repeats = 1
claim = {{ words = "more cores gain under 1 % over one", gain_below = 0.01 }}
axes = {{ affinity = {sets} }}
[base]
model.name = "mlp"
data.name = "{data}"
train = {{ batch_size = 50, epochs = 1 }}
[small]
data.size = 200
[full]
data.size = 400
[[published]]
affinity = "{first}"
time_ms = 1000
[[published]]
affinity = "900,901"
time_ms = 500
"""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Writes a recipe with sets of this machine and one that no machine has; gives the sets that are here."""

    def write(data: str = "synthetic:4,2", most: int = 2) -> list[str]:
        cores = [str(core.id) for core in detect().cores]
        sets = [",".join(cores[:count]) for count in range(1, min(len(cores), most) + 1)]
        folder = tmp_path / "recipes"
        folder.mkdir()
        text = TINY.format(sets=json.dumps([*sets, "900,901"]), data=data, first=cores[0])
        (folder / "tiny.toml").write_text(text)
        monkeypatch.setattr(study, "recipes", lambda: folder)
        return sets

    return write


@pytest.mark.parametrize("name", study.names())
def test_the_shipped_recipes(name: str) -> None:
    recipe = study.read(name)
    for full in (False, True):
        assert isinstance(recipe.config(full), Config)
    assert recipe.config(False) != recipe.config(True)
    parse(recipe.plan)
    assert recipe.repeats >= 3
    assert recipe.published
    assert recipe.source
    assert recipe.differs


def test_the_published_affinity_table() -> None:
    recipe = study.read("affinity")
    rows = study.with_gains(recipe.published)
    assert [row["affinity"] for row in rows] == list(recipe.axes["affinity"])
    assert [f"{100 * row['gain']:.2f}" for row in rows] == ["198.04", "100.00", "199.91", "172.38"]
    counted = [{**row, "n": 1, "time_ms": {"mean": row["time_ms"], "std": 0.0}} for row in rows]
    assert "holds here" in study.finding(recipe.claim, counted, rows)  # as it did there


def row(affinity: str, mean: float | None, std: float = 0.0, n: int = 3) -> study.Row:
    return {"affinity": affinity, "time_ms": None if mean is None else {"mean": mean, "std": std}, "n": n}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([row("0", 2000, 10), row("0,1", 1000, 10)], "does not hold here: cores 0,1 took 1.00 ± 0.01 s against 2.00 ±"),
        ([row("0", 2000, 10), row("0,1", 1000, 10)], "on 0, 0.50 times as long (there 2.00 times)."),
        ([row("0", 1000, 1), row("0,1", 2000, 1)], "holds here: cores 0,1 took 2.00 ± 0.00 s"),
        ([row("0", 1000, 1), row("0,1", 995, 1)], "holds here"),
        ([row("0", 1000, 50), row("0,1", 960, 50)], "cannot be told from noise here"),
        ([row("0", 3), row("0,1", 2), row("0-3", 1), row("0-7", 4)], "cores 0-3 took"),
        ([row("0", 2000, n=1), row("0,1", 1000, n=1)], "single runs do not tell noise."),
        ([row("0", 1000)], "cannot be tested here"),
        ([row("0", None), row("0,1", 1000)], "cannot be tested here"),
    ],
)
def test_finding(rows: list[study.Row], told: str) -> None:
    published: list[study.Row] = [{"affinity": "0", "time_ms": 500}, {"affinity": "0,1", "time_ms": 1000}]
    said = study.finding(CLAIM, rows, published)
    assert said.startswith("The source's finding that more cores gain under 1 % over one")
    assert told in said


def test_a_study(
    manyhands: Any, tiny: Callable[..., list[str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sets = tiny()
    said = manyhands("study", "tiny", "--out", tmp_path / "s", "--json")
    assert said.code == 0, said.err
    found = said.json
    assert json.loads((tmp_path / "s" / "study.json").read_text()) == found
    assert [(each["affinity"], each["cores"], each["n"]) for each in found["rows"]] == [
        (each, each.count(",") + 1, 1) for each in sets
    ]
    assert all(f"threads={each['cores']}" in each["bound"] for each in found["rows"])
    ranks = [run.record["ranks"][0]["cores"] for run in store.find(tmp_path / "s")]
    assert [",".join(map(str, sorted(each))) for each in ranks] == sets
    assert min(each["gain"] for each in found["rows"]) == 1
    assert [each["gain"] for each in found["published"]] == [1, 2]
    assert found["left_out"] == [{"affinity": "900,901", "missing": [900, 901]}]
    assert found["differs"] == "in everything"
    assert found["finding"].startswith("The source's finding")
    show(found)
    shown = capfd.readouterr().out
    for told in ("published", "200.00 %", "not here", "has no 900, 901", "a made-up machine", "finding: ", "differs: "):
        assert told in shown


def test_a_missing_data_set(manyhands: Any, tiny: Callable[..., list[str]], tmp_path: Path) -> None:
    tiny(data="tweets", most=1)
    said = manyhands("study", "tiny", "--out", tmp_path / "s", "--quiet")
    assert said.code == 2
    assert "the files of tweets are not here" in said.error
    assert "manyhands data get tweets" in said.error
    assert not (tmp_path / "s").exists()


def test_an_unknown_study(manyhands: Any) -> None:
    said = manyhands("study", "afinity")
    assert said.code == 2
    assert "unknown study 'afinity': did you mean 'affinity'? Allowed: " in said.error


def test_no_set_is_here(tiny: Callable[..., list[str]]) -> None:
    tiny(most=0)
    with pytest.raises(InputError, match="none of its sets of cores is here; this machine has"):
        study.run(study.read("tiny"), False, None)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [("repeats", "repeat", "repeat, repeats missing or unknown"), ("affinity = [", "tides = [", "one of affinity")],
)
def test_a_bad_recipe(tiny: Callable[..., list[str]], tmp_path: Path, old: str, new: str, told: str) -> None:
    tiny()
    path = tmp_path / "recipes" / "tiny.toml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=told):
        study.read("tiny")
