"""Splits of single layers: a plan file keeps them, the last that names a layer wins, what cannot be is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from manyhands.config import Config
from manyhands.errors import PlanError
from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph, Layer
from manyhands.machine.machine import Core, Machine
from manyhands.plan.layer_rules import NamedSplit
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.plan.resolve import devices_of, splits_of
from manyhands.plan.sharding import Split, on
from manyhands.plan.spec import parse, read, write
from manyhands.train.plan_constraints import resolve


def layer(name: str, kind: str, output: int, before: int, weights: tuple[tuple[int, ...], ...], after: int) -> Layer:
    return Layer(name, kind, kind, ((2, before),), (2, output), weights, 100, () if after < 0 else (after,))


GRAPH = coarsen(
    Graph(
        2,
        (
            layer("dense_a", "dense", 16, 8, ((16, 8),), -1),
            layer("act", "pointwise", 16, 16, (), 0),
            layer("dense_b", "dense", 12, 16, ((12, 16),), 1),
            layer("output", "dense", 3, 12, ((3, 12),), 2),
        ),
        "export",
    )
)


def plan_of(folder: Path, text: str) -> Plan:
    path = folder / "plan.toml"
    path.write_text('axes = ["data:4"]\n' + text)
    return read(path)


def test_layers_that_are_not_named_follow_the_axes(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, '[[layers]]\nname = "dense_b"\nparameter = 2\ndevices = [2, 3]\n')
    assert splits_of(plan, GRAPH, 64, 4) == (on(0, sample=4), on(2, parameter=2), on(0, sample=4))


def test_later_entries_win_and_members_are_known(tmp_path: Path) -> None:
    text = '[[layers]]\nname = "dense_*"\nparameter = 4\n[[layers]]\nname = "act"\nreduction = 2\nsample = 2\n'
    expected = (Split(sample=2, reduction=2, devices=(0, 1, 2, 3)), on(0, parameter=4), on(0, sample=4))
    assert splits_of(plan_of(tmp_path, text), GRAPH, 64, 4) == expected


def test_round_trip(tmp_path: Path) -> None:
    layers = (NamedSplit("dense_*", on(0, parameter=4)), NamedSplit("output", Split(sample=2, devices=(3, 1))))
    plan = Plan(axes=parse("data:4").axes, precision="bf16", layers=layers)
    write(plan, tmp_path / "plan.toml")
    assert read(tmp_path / "plan.toml") == plan
    assert from_table(to_table(plan), "run.json") == plan
    assert str(plan) == "data:4,precision=bf16"
    assert "layers" not in to_table(parse("data:4"))


def test_devices_that_a_plan_needs(tmp_path: Path) -> None:
    assert devices_of(parse("data:2,tensor:2")) == 4
    assert devices_of(plan_of(tmp_path, '[[layers]]\nname = "output"\ndevices = [6]\n')) == 7


def test_equal_stages() -> None:
    work = (1, 1, 100)
    graph = replace(
        GRAPH, layers=tuple(replace(each, flops=some) for each, some in zip(GRAPH.layers, work, strict=True))
    )
    auto, equal = (
        [each.devices[0] for each in splits_of(parse(f"pipeline:2{words}"), graph, 64, 2)]
        for words in ("", ",balance=equal")
    )
    assert auto == [0, 0, 1]
    assert equal == [0, 1, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("layers = 3\n", "layers is 3, a list of tables, each under a line [[layers]], is needed"),
        ("[[layers]]\nsample = 2\n", "entry 1 of layers: name is None"),
        ('[[layers]]\nname = "x"\nsampel = 2\n', "entry 1 of layers: unknown key 'sampel': did you mean 'sample'?"),
        ('[[layers]]\nname = "x"\nsample = 0\n', "sample is 0, a whole number, at least 1, is allowed"),
        ('[[layers]]\nname = "x"\nsample = true\n', "sample is True"),
        ('[[layers]]\nname = "x"\nparameter = 1000000\n', "1000000 parts are more than"),
        ('[[layers]]\nname = "x"\ndevices = 3\n', "devices is 3, a list of numbers from 0 on"),
        ('[[layers]]\nname = "x"\ndevices = [-1]\n', "devices is [-1]"),
        ('[[layers]]\nname = "x"\nsample = 2\ndevices = [0]\n', "2 parts need 2 different devices, [0] are named"),
        ('[[layers]]\nname = "x"\nsample = 2\ndevices = [1, 1]\n', "2 parts need 2 different devices"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(tmp_path, text)
    assert told in str(caught.value)
    assert str(tmp_path / "plan.toml") in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ('name = "conv*"', "layers 'conv*' match nothing; the model's layers are dense_a, dense_b, output"),
        ('name = "output"\nparameter = 4', "parameter=4: layer output (dense) can be cut into at most 3"),
        (
            'name = "output"\nsample = 4\ndevices = [4, 5, 6, 7]',
            "layer output is on device 7, there are 4, from 0 to 3",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, entry: str, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        splits_of(plan_of(tmp_path, f"[[layers]]\n{entry}\n"), GRAPH, 64, 4)
    assert told in str(caught.value)


def test_samples_can_run_out() -> None:
    with pytest.raises(PlanError, match="sample=4: layer dense_a"):
        splits_of(Plan(axes=parse("serial").axes, layers=(NamedSplit("dense_a", on(0, sample=4)),)), GRAPH, 3, 4)


def test_the_engine_refuses_devices_that_no_rank_is(tmp_path: Path) -> None:
    machine = Machine(host="", cpu="", cores=tuple(Core(each, each, 0, 0) for each in range(4)), memory_bytes=1)
    plan = plan_of(tmp_path, '[[layers]]\nname = "output"\ndevices = [4]\n')
    with pytest.raises(PlanError, match=r"name device 4, there are 4 ranks"):
        resolve(plan, Config(), machine)
