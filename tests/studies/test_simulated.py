"""Studies that simulate: rows are what the simulator says, searches are timed, and nothing is trained."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyhands.cli.study import show
from manyhands.config import Config, with_values
from manyhands.plan.plan import from_table
from manyhands.plan.spec import parse
from manyhands.report.gather import gather
from manyhands.report.text.markdown import markdown
from manyhands.simulate.simulator import Simulator
from manyhands.studies import recipe
from manyhands.studies.simulated import Bench

Write = Callable[[str], Path]

BASE = """
title = "Tiny"
source = "a made-up source"
hardware = "a made-up machine"
differs = "in everything"
by = "simulation"
columns = ["step ms", "over serial", "idle %", "exposed ms", "found"]
measure = "samples_per_s"
[base]
model.name = "convnet"
data.name = "synthetic:1x12x12,4"
machine = "p100x4-ib"
"""
PLANS = """
[[claims]]
words = "the searched plan is at least as fast as all others"
kind = "paired"
measure = "samples_per_s"
axis = "plan"
these = ["auto"]
those = ["serial", "data:4", "apart"]
least = 1
[plans.apart]
axes = ["serial"]
layers = [{ name = "pool*", devices = [1] }]
[axes]
train.batch_size = [8, 256]
plan = ["serial", "data:4", "apart", "auto"]
"""
SEARCH = """
[axes]
devices = [2, 4]
simulator = ["full", "delta"]
[[published]]
label = "devices 2, full"
seconds = 7
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a recipe: what all share, and what is added to it."""

    def make(more: str) -> Path:
        path = tmp_path / "tiny.toml"
        path.write_text(BASE + more)
        return path

    return make


def searching(write: Write) -> Path:
    path = write(SEARCH)
    columns = 'columns = ["seconds", "proposals", "step ms", "full / this"]'
    text = path.read_text().replace('by = "simulation"', 'by = "search"\nplan = "auto"\nrepeats = 2')
    path.write_text(text.replace(BASE.splitlines()[6], columns).replace('"samples_per_s"', '"seconds"'))
    return path


@pytest.mark.long
def test_predicted_rows(
    manyhands: Any, write: Write, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = manyhands("study", write(PLANS), "--out", tmp_path / "s", "--json")
    assert said.code == 0, said.err
    found = said.json
    assert json.loads((tmp_path / "s" / "study.json").read_text()) == {k: v for k, v in found.items() if k != "out"}
    rows = {row["label"]: row for row in found["rows"]}
    assert [*rows][:4] == ["batch 8, serial", "batch 8, data:4", "batch 8, apart", "batch 8, auto"]
    simulator = Simulator.of(
        with_values(Config(), {"model.name": "convnet", "data.name": "synthetic:1x12x12,4"}), "p100x4-ib"
    )
    alone, spread = (simulator.predict(parse(plan), 256).result for plan in ("serial", "data:4"))
    assert rows["batch 256, serial"]["samples_per_s"]["mean"] == alone.samples_per_s
    extra = rows["batch 256, data:4"]["extra"]
    assert extra["step ms"] == spread.step_ms
    assert extra["over serial"] == pytest.approx(alone.step_ns / spread.step_ns)
    assert extra["idle %"] == pytest.approx(100 * spread.idle_fraction)
    assert extra["exposed ms"] == spread.exposed_ns / 1e6
    for batch in (8, 256):
        speeds = {
            row["cell"]["plan"]: row["samples_per_s"]["mean"] for row in found["rows"] if f" {batch}," in row["label"]
        }
        assert max(speeds, key=lambda plan: (speeds[plan], plan == "auto")) == "auto"
        assert rows[f"batch {batch}, auto"]["extra"]["found"]
    assert "holds here" in found["finding"]
    assert "single runs" not in found["finding"]  # a simulation has no noise
    assert found["hardware"]["here"] == "simulated: p100x4-ib"
    monkeypatch.setenv("COLUMNS", "200")
    show(found)
    shown = " ".join(capfd.readouterr().out.split())
    assert "samples/s" in shown
    assert "accuracy" not in shown
    # Again, and --repeats changes nothing.
    again = manyhands("study", write(PLANS), "--repeats", 5, "--out", tmp_path / "t", "--json").json
    assert again["rows"] == found["rows"]
    assert manyhands("study", write(PLANS), "--out", tmp_path / "s", "--json").json["rows"] == found["rows"]


def test_a_layer_that_was_joined_can_be_placed_apart() -> None:
    """Pools on another device leave the convolutions where they are, and cost what the transfers do."""
    values = {"model.name": "alexnet", "model.batch_norm": True, "data.name": "synthetic:3x56x56,200"}
    simulator = Simulator.of(with_values(Config(), values), "p100x4-ib")
    (case,) = [
        case
        for case in recipe.read("alexnet-predicted").cases(False, Config())
        if case.label == "Tiny ImageNet, batch 128, by operator"
    ]
    apart, alone = simulator.predict(case.plan, 128), simulator.predict(parse("serial"), 128)
    devices = {layer.name: split.devices for layer, split in zip(apart.result.graph.layers, apart.splits, strict=True)}
    moved = {name for name, where in devices.items() if where == (1,)}
    assert moved == {*(f"pad{index}" for index in range(1, 6)), "pool1", "pool2", "pool5"}
    assert devices["conv1"] == devices["dense_a"] == (0,)
    assert apart.result.step_ns > alone.result.step_ns
    group = from_table({"axes": ["serial"], "layers": [{"name": "conv1", "devices": [1]}]}, "a test")
    assert len(simulator.predict(group, 128).splits) == len(alone.splits)  # which is named for its convolution


def test_searches_are_timed(manyhands: Any, write: Write, tmp_path: Path) -> None:
    said = manyhands("study", searching(write), "--out", tmp_path / "s", "--json")
    assert said.code == 0, said.err
    found = said.json
    rows = {row["label"]: row for row in found["rows"]}
    assert [*rows] == ["devices 2, full", "devices 2, delta", "devices 4, full", "devices 4, delta"]
    assert all(row["n"] == 2 and row["search_seconds"]["mean"] > 0 for row in rows.values())
    for devices in (2, 4):
        full, delta = (rows[f"devices {devices}, {which}"]["extra"] for which in ("full", "delta"))
        assert full["proposals"] == delta["proposals"] > 0
        assert full["step ms"] == delta["step ms"]  # the same walk
        assert full["full / this"] == 1
        assert delta["full / this"] == pytest.approx(full["seconds"]["mean"] / delta["seconds"]["mean"])
    assert "to compile the search" in found["used"]
    text = markdown(gather([tmp_path / "s"], "manyhands report s"))
    assert "| devices 2, full |" in text
    assert "published: seconds" in text


def test_the_report_needs_no_runs(manyhands: Any, write: Write, tmp_path: Path) -> None:
    assert manyhands("study", write(PLANS), "--out", tmp_path / "s", "-q").code == 0
    said = manyhands("report", tmp_path / "s", "-o", tmp_path / "r.html", "--md", tmp_path / "r.md", "--json")
    assert said.code == 0, said.err
    assert said.json["runs"] == 0
    page, text = (tmp_path / "r.html").read_text(), (tmp_path / "r.md").read_text()
    for words in ("batch 256, data:4", "Predicted by simulation", "simulated: p100x4-ib", "tiny.toml"):
        assert words in page
        assert words in text
    assert "Speed and learning" not in page
    assert "0 runs" not in page


def test_what_cannot_be_is_left_out(manyhands: Any, write: Write, tmp_path: Path) -> None:
    path = write('[axes]\ntrain.batch_size = [2, 256]\nplan = ["serial", "data:4"]')
    said = manyhands("study", path, "--out", tmp_path / "s", "--json")
    assert said.code == 0, said.err
    (left,) = said.json["left_out"]
    assert left["label"] == "batch 2, data:4"
    assert "cuts 2 samples into 4 parts" in left["reason"]
    nothing = manyhands("study", write('[axes]\nplan = ["data:512", "data:1024"]'), "--out", tmp_path / "n", "-q")
    assert nothing.code == 2
    assert "study tiny: nothing of it can be; plan 'data:512' cuts 256 samples" in nothing.error
    assert not (tmp_path / "n").exists()


def test_what_the_user_says(manyhands: Any, write: Write, tmp_path: Path) -> None:
    path = write('[axes]\nplan = ["auto"]')
    said = manyhands("study", path, "--set", "machine=cpu16", "--set", "devices=2", "--out", tmp_path / "s", "--json")
    assert said.code == 0, said.err
    assert said.json["hardware"]["here"] == "simulated: cpu16"
    assert "--set devices=2" in said.json["command"]
    assert manyhands("study", path, "--set", "machine=cpu61").error.startswith("unknown machine 'cpu61': did you mean")
    assert "devices=two: a whole number" in manyhands("study", path, "--set", "devices=two").error
    assert "study tiny varies it" in manyhands("study", searching(write), "--set", "devices=2").error


@pytest.mark.parametrize("by", ["simulation", "search"])
def test_a_dry_run(manyhands: Any, write: Write, tmp_path: Path, by: str) -> None:
    path = searching(write) if by == "search" else write(PLANS)
    said = manyhands("study", path, "--dry-run", "--json")
    assert said.code == 0, said.err
    assert said.json["by"] == by
    assert len(said.json["cells"]) == 8
    assert said.json["estimated_seconds"] == pytest.approx(sum(cell["seconds"] for cell in said.json["cells"]))
    assert not list((tmp_path / "home").glob("runs/*"))
    assert f"8 {'searches' if by == 'search' else 'simulations'}, about" in manyhands("study", path, "--dry-run").out


def test_layers_are_traced_once_for_all_cells(write: Write) -> None:
    found = recipe.read(str(write(PLANS)))
    bench = Bench()
    every = {id(bench.simulator(case)) for case in found.cases(False, found.config(False, {}))}
    assert len(every) == 1
