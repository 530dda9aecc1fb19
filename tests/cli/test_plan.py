"""`manyhands plan`, and what it says of bad input."""

from pathlib import Path
from typing import Any

import pytest

from manyhands.plan.spec import parse, read
from manyhands.tune.plan import choose
from manyhands.tune.plan.candidates import Candidate
from manyhands.tune.plan.choose import SearchResult

IMAGES = ("--data", "synthetic:3x224x224,1000", "--batch-size", 256)


def test_a_described_machine_is_planned_by_simulation(manyhands: Any, tmp_path: Path) -> None:
    """AlexNet on four P100: the found plan beats data parallelism and is no worse than one weird trick."""
    out = tmp_path / "plan.toml"
    said = manyhands("plan", "alexnet", *IMAGES, "--machine", "p100x4-ib", "-o", out, "--json")
    assert said.code == 0, said.err
    steps = {row["name"]: row["predicted_step_ms"] for row in said.json["candidates"]}
    assert said.json["predicted_step_ms"] < steps["data:4"]
    assert said.json["predicted_step_ms"] <= steps["owt:4"]
    assert said.json["predicted_step_ms"] < steps["serial"]
    assert all(row["measured_step_ms"] is None for row in said.json["candidates"])
    assert said.json["search"]["proposals"] > 0
    assert said.json["search"]["simulator"] == "delta"
    assert {row["layer"] for row in said.json["why"]} >= {"conv1", "dense_a", "loss"}
    # The file is the plan that was predicted.
    again = manyhands("simulate", "alexnet", *IMAGES, "--machine", "p100x4-ib", "--plan", out, "--json")
    assert again.json["step_ms"] == said.json["predicted_step_ms"]


NARROW = ("alexnet", "--data", "synthetic:3x64x64,200", "--set", "model.width=0.0625", "--batch-size", 32)


@pytest.mark.parametrize(
    "small", [("mlp", "--data", "synthetic:20,2", "--batch-size", 64), NARROW], ids=["mlp", "alexnet"]
)
def test_one_device_is_best_where_it_is(manyhands: Any, tmp_path: Path, small: tuple[Any, ...]) -> None:
    """A small network, of tables or of Tiny ImageNet's sizes, over slow links: leave three of the four alone."""
    out = tmp_path / "plan.toml"
    said = manyhands("plan", *small, "--machine", "edge4-1gbe", "--devices", 4, "-o", out, "--json")
    assert said.code == 0, said.err
    assert said.json["plan"] == "serial"
    assert read(out) == parse("serial")


def test_the_plan_that_was_found_here(manyhands: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, best = Candidate(parse("plain"), None, 20.0, 0.2), Candidate(parse("data:2,threads=1"), 9.0, 10.0, 0.1)
    monkeypatch.setattr(choose, "search_plan", lambda *_: SearchResult(best, (best, plain), 30.0))
    out = tmp_path / "plan.toml"
    said = manyhands("plan", "convnet", "-o", out, "--json")
    assert said.code == 0, said.err
    assert read(out) == best.plan
    assert said.json["plan"] == "data:2,threads=1"
    assert said.json["search"]["repaid_after_steps"] == 3001
    said = manyhands("plan", "convnet", "-o", out)
    assert "repaid after 3,001 steps" in said.out
    assert "10.00 ms" in said.out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--plan", "data:2"], "--plan data:2: a plan is to be found, so say auto"),
        (["--budget", "0"], "--budget 0"),
        (["--devices", "4"], "--devices 4: this machine has what it has"),
        (["--machine", "p100"], "unknown machine 'p100'"),
        (["--machine", "p100x4-ib", "--devices", "0"], "--devices 0"),
        (["--machine", "p100x4-ib", "-o", "/proc/none/plan.toml"], "/proc/none"),
        (["-o", "."], ". is a folder"),
    ],
)
def test_bad_input(manyhands: Any, arguments: list[str], error: str) -> None:
    said = manyhands("plan", "mlp", "--data", "synthetic:20,2", "--batch-size", 64, *arguments)
    assert said.code == 2
    assert error in said.error
    assert len(said.error.splitlines()) == 1
