"""Plans side by side on several sets of cores."""

from pathlib import Path
from typing import Any

from manyhands.config import Config
from manyhands.machine.detect import detect
from manyhands.plan.spec import parse
from manyhands.runs import run_folder
from manyhands.studies.compare import by_affinity, cases

SERIAL = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off"
SMALL = ("--data", "synthetic:4,2", "--set", "data.size=200", "--batch-size", 50, "--epochs", 1, "--repeats", 1)


def test_every_plan_on_every_set() -> None:
    plans = [(words, parse(words)) for words in ("plain", "data:2")]
    made = cases(Config(), plans, by_affinity(["0;1", "auto", "0,1"]))
    assert [case.label for case in made] == [
        f"{plan} @ {cores}" for plan in ("plain", "data:2") for cores in ("0;1", "auto", "0,1")
    ]
    assert [case.config.cpu.affinity for case in made] == ["0;1", "auto", "0,1"] * 2
    assert [case.plan.name for case in made] == ["plain"] * 3 + ["data:2"] * 3
    assert [(case.label, case.config) for case in cases(Config(), plans)] == [("plain", Config()), ("data:2", Config())]


def test_a_training_runs_where_it_is_told(manyhands: Any, tmp_path: Path) -> None:
    core = detect().cores[-1].id
    twice = ("--affinity", core, "--affinity", f" {core}")
    said = manyhands("compare", "mlp", "--plan", SERIAL, *twice, *SMALL, "--out", tmp_path / "c", "--json")
    assert said.code == 0, said.err
    (row,) = said.json["rows"]
    assert row["plan"] == f"{SERIAL} @ {core}"
    assert row["samples_per_s"]["mean"] > 0
    (run,) = run_folder.find(tmp_path / "c")
    assert run.record["ranks"][0]["cores"] == [core]
    assert run.record["plan"]["threads"] == 1


def test_cores_that_are_not_here(manyhands: Any, tmp_path: Path) -> None:
    first = str(detect().cores[0].id)
    said = manyhands("compare", "mlp", "--plan", SERIAL, "--affinity", first, "--affinity", f"{first},999", *SMALL,
                     "--out", tmp_path / "c")  # fmt: skip
    assert said.code == 2
    assert f"cpu.affinity={first},999: cores [999] are not here" in said.error
    assert not (tmp_path / "c").exists()


def test_a_plan_that_names_its_cores(manyhands: Any, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('axes = ["serial"]\ncores = [[0]]\n')
    said = manyhands("compare", "mlp", "--plan", tmp_path / "plan.toml", "--affinity", "0", *SMALL)
    assert said.code == 2
    assert "names its cores itself" in said.error
