"""Finding the fastest plan: candidates, the shortlist, the contest, what is remembered."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyhands import api
from manyhands.config import Config, with_values
from manyhands.errors import PlanError, RunError
from manyhands.machine.detect import detect
from manyhands.machine.machine import Core, Machine
from manyhands.measure.plan_benchmark import BenchmarkResult, benchmark
from manyhands.plan.layer_rules import NamedSplit
from manyhands.plan.sharding import on
from manyhands.plan.spec import parse
from manyhands.runs import run_folder
from manyhands.train.plan_constraints import resolve
from manyhands.tune.plan import candidates, choose
from manyhands.tune.plan.candidates import Candidate
from manyhands.tune.plan.choose import SearchResult

BOUND = "precision=fp32,layout=contiguous,kernels=own,compile=off,capture=off,feed=device,workers=0"
SMALL = with_values(
    Config(),
    {
        "model.name": "mlp",
        "data.name": "synthetic:8,2",
        "data.size": 600,
        "train.batch_size": 64,
        "train.epochs": 1,
        "model.width": 0.1,
    },
)


def machine(cores: int) -> Machine:
    return Machine("", "", tuple(Core(number, number, 0, 0) for number in range(cores)), 2**34)


def test_candidates_share_out_the_cores() -> None:
    plans = candidates.processes(parse("auto"), 4, "image", machine(8))
    assert {plan.name for plan in plans} == {"data:4"}
    assert {plan.threads for plan in plans} == {2}
    assert {(plan.precision, plan.layout) for plan in plans} == {
        (precision, layout) for precision in ("bf16", "fp32") for layout in ("channels_last", "contiguous")
    }


def test_what_the_user_says_stays() -> None:
    plans = candidates.processes(parse("auto,precision=fp32,allocator=default"), 1, "text", machine(8))
    (plan,) = plans
    assert (plan.name, plan.precision, plan.layout, plan.allocator) == ("serial", "fp32", "contiguous", "default")


def test_shortlist_has_the_best_and_one_process() -> None:
    def candidate(words: str, predicted: float) -> Candidate:
        return Candidate(parse(words), predicted)

    found = [
        candidate("data:4,precision=bf16", 10.0),
        candidate("data:4,precision=fp32", 10.3),
        candidate("data:2", 11.0),
        candidate("data:8", 16.0),
        candidate("serial,precision=bf16", 30.0),
        candidate("serial,precision=fp32", 31.0),
    ]
    assert [str(each.plan) for each in candidates.shortlist(found)] == [
        "data:4,precision=bf16",
        "data:4,precision=fp32",
        "data:2",
        "serial,precision=bf16",
    ]


def test_references_are_pytorchs_defaults() -> None:
    plans = [each.plan for each in candidates.references(parse("auto"), SMALL, machine(2))]
    assert [plan.name for plan in plans] == ["plain", "ddp:2"]
    assert {(plan.precision, plan.allocator, plan.feed) for plan in plans} == {("fp32", "default", "loader")}


def test_the_search_is_repaid() -> None:
    plain, best = Candidate(parse("plain"), None, 20.0), Candidate(parse("serial"), 9.0, 10.0)
    assert SearchResult(best, (best, plain), seconds=1.0).repaid_after == 101
    assert SearchResult(plain, (best, plain), seconds=1.0).repaid_after is None


@pytest.mark.long
def test_plans_take_turns(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone and as ranks."""
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    here = detect()
    words = (f"serial,{BOUND}", f"data:2,{BOUND},backend=shm")
    plans = [resolve(parse(each), SMALL, here) for each in words]
    turns = benchmark(SMALL, plans, rounds=2)
    assert [turn.plan for turn in turns] == plans
    assert [turn.error for turn in turns] == [None, None]
    assert all(len(turn.rounds) == 2 and turn.step_ms > 0 for turn in turns)


def test_a_model_that_does_not_run(tmp_path: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    (tmp_path / "broken.py").write_text(
        "from torch import nn\n\n\nclass Broken(nn.Linear):\n    def forward(self, x):\n"
        "        assert not self.training, 'no training today'\n        return super().forward(x)\n\n\n"
        "def build(classes, shape):\n    return Broken(shape[0], classes)\n"
    )
    config = with_values(SMALL, {"model.name": f"{tmp_path / 'broken.py'}:build", "model.width": 1.0})
    (turn,) = benchmark(config, [resolve(parse(f"serial,{BOUND}"), config, detect())], rounds=1)
    assert turn.rounds == ()
    assert "no training today" in (turn.error or "")


def faked(monkeypatch: pytest.MonkeyPatch, times: dict[str, float]) -> list[list[str]]:
    """A contest that measures what it is told; what was asked of it."""
    asked: list[list[str]] = []

    def pretend(config: Config, plans: Any, rounds: int = 1) -> list[BenchmarkResult]:
        asked.append([plan.name for plan in plans])
        return [
            BenchmarkResult(plan, (times[plan.name],)) if plan.name in times else BenchmarkResult(plan, (), "broken")
            for plan in plans
        ]

    monkeypatch.setattr(choose, "benchmark", pretend)
    return asked


@pytest.mark.long
def test_the_fastest_that_was_measured_wins(shared_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was predicted; the second time the answer is known, and nothing is measured."""
    times = {"plain": 1.0, "serial": 2.0, "data:2": 3.0, "ddp:2": 4.0}
    asked = faked(monkeypatch, times)
    here = replace(detect(), cores=detect().cores[:2])
    answer = choose.search_plan(parse("auto"), SMALL, here)
    assert answer.best.plan.name == "plain"
    assert {"plain", "serial", "ddp:2"} <= set(asked[0])
    assert answer.repaid_after is None
    assert not answer.known
    predicted = [each for each in answer.candidates if each.predicted_ms is not None]
    assert {each.plan.name for each in predicted} == {"serial", "data:2"}
    again = choose.search_plan(parse("auto"), SMALL, here)
    assert again.known
    assert again.best == answer.best
    assert len(asked) == 1
    other = choose.search_plan(parse("auto"), with_values(SMALL, {"train.batch_size": 32}), here)
    assert not other.known
    assert json.loads(json.dumps(other.to_json()))["search"]["proposals"] == len(predicted)


def test_nothing_runs(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    monkeypatch.setattr(choose, "_tried", lambda *_: ([Candidate(parse("plain"), failed="broken")], {}))
    with pytest.raises(RunError, match="mlp does not run: broken"):
        choose.search_plan(parse("auto"), SMALL, detect())


def test_a_damaged_answer_is_searched_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = Candidate(parse("plain"), None, 1.0, 0.1)
    monkeypatch.setattr(choose, "_tried", lambda *_: ([best], {}))
    here = detect()
    assert choose.search_plan(parse("auto"), SMALL, here).best == best
    (kept,) = (home / "found").glob("*.json")
    kept.write_text("{}")
    assert not choose.search_plan(parse("auto"), SMALL, here).known
    assert choose.search_plan(parse("auto"), SMALL, here).known


def test_of_plans_that_differ_in_single_layers_the_right_one_is_remembered(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_sample = Candidate(parse("data:2"), 2.0, 2.1, 0.1)
    named = NamedSplit("dense_1", on(0, parameter=2))
    best = Candidate(replace(by_sample.plan, layers=(named,)), None, 1.1, 0.1)
    monkeypatch.setattr(choose, "_tried", lambda *_: ([by_sample, best], {}))
    assert choose.search_plan(parse("auto"), SMALL, detect()).best == best
    again = choose.search_plan(parse("auto"), SMALL, detect())
    assert again.known
    assert again.best == best
    assert again.to_json()["plan"] == "data:2, 1 layer apart"
    assert [each["name"] for each in again.to_json()["candidates"]] == ["data:2", "data:2, 1 layer apart"]


def test_auto_inside_another_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PlanError, match="without torchrun"):
        api.start(SMALL, parse("auto"), None)


@pytest.mark.parametrize("words", ["serial", "data:2", pytest.param("owt:2", marks=pytest.mark.long)])
def test_auto_trains_what_was_found(
    words: str, shared_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    plan = resolve(parse(f"{words},{BOUND}"), SMALL, detect())
    best = Candidate(plan, 2.5, 3.0, 0.1)
    monkeypatch.setattr(choose, "search_plan", lambda *_: SearchResult(best, (best,), 12.5))
    run = api.start(SMALL, parse("auto"), tmp_path / "run")
    assert run.status == "finished"
    assert run.result is not None
    assert run.result["predicted_step_ms"] == 2.5
    assert run.result["seconds"]["search"] >= 12.5
    assert run.result["seconds"]["total"] >= 12.5
    assert run_folder.load(tmp_path / "run").record["search"]["candidates"][0]["name"] == str(plan)
