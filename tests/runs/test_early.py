"""What a plan must know before torch: it is bound, or refused in one line, before any process starts."""

from collections.abc import Callable

import pytest

from manyhands.errors import PlanError
from manyhands.machine.machine import Core, Machine
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan
from manyhands.plan.words import parse
from manyhands.runs.config import Config, with_values
from manyhands.runs.early import settle_early

MACHINE = Machine(host="", cpu="", cores=tuple(Core(number, number, 0, 0) for number in range(4)), memory_bytes=1)


def on_cores(**options: object) -> Plan:
    return Plan(axes=(Axis("data", 2),), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: parse("data:2,consistency=async"), "consistency=async cannot run yet"),
        (lambda: parse("data:2,consistency=stale,staleness=3"), "cannot run yet"),
        (lambda: parse("data:2,staleness=3"), "cannot run yet"),
        (lambda: parse("serial,backward=apart,compile=on"), "a compiled backward pass is one piece; say compile=off"),
        (lambda: parse("data:2,backward=apart"), "backward=apart has no use in plan data:2: it is for serial"),
        (lambda: parse("data:2,threads=99"), "threads=99: rank 0 has the cores [0, 1]; use at most 2"),
        (lambda: on_cores(cores=((0,), (77,))), "cores [77] of rank 1 are not all here"),
        (lambda: on_cores(cores=((0,), (1,)), loader_cores=((77,), (0,))), "loader_cores [77] of rank 0 are not all"),
        (lambda: on_cores(loader_cores=((2,), ())), "loader_cores [] of rank 1 are not all here"),
        (lambda: on_cores(loader_cores=((2,),)), "loader_cores are given for 1 ranks, plan data:2 has 2"),
    ],
)
def test_what_cannot_run_is_refused(make: Callable[[], Plan], told: str) -> None:
    with pytest.raises(PlanError) as caught:
        settle_early(make(), Config(), MACHINE)
    assert told in str(caught.value)


@pytest.mark.parametrize("words", ["data:2,consistency=sync", "data:2,threads=2", "serial,threads=3"])
def test_what_can_run_stays_as_it_was_said(words: str) -> None:
    said = parse(words).said()
    assert said.items() <= settle_early(parse(words), Config(), MACHINE).said().items()


def test_no_plan_is_not_the_default_plan(manyhands) -> None:
    said = manyhands("train", "mlp", "--plan", "")
    assert said.code == 2
    assert "unknown plan ''" in said.error


@pytest.mark.parametrize(("feed", "used"), [("device", False), ("loader", True)])
def test_loader_processes_that_nobody_uses_are_named(manyhands, feed: str, used: bool) -> None:
    plan = f"serial,precision=fp32,layout=contiguous,compile=off,feed={feed}"
    settings = ("--set", "data.size=40", "--set", "loader.workers=1", "--set", "train.max_steps=1")
    said = manyhands("train", "mlp", "--data", "synthetic:1x4x4,2", "--batch-size", 8, "--plan", plan, *settings)
    assert said.code == 0, said.err
    assert ("loader.workers=1 is not used by plan serial: say feed=loader" in said.err) is not used


@pytest.mark.parametrize("words", ["server:2+1", "local:2", "gossip:2", "data:2,consistency=stale,staleness=1"])
@pytest.mark.parametrize("key", ["train.ema", "train.swa"])
def test_a_mean_is_of_weights_that_are_the_same_on_all_ranks(words: str, key: str) -> None:
    with pytest.raises(PlanError, match=rf"{key}=0.5 does not go with plan .*: leave it out, or use serial, data:N"):
        settle_early(parse(words), with_values(Config(), {key: 0.5}), MACHINE)
    for fine in ("serial", "data:2", "pipeline:2", "tensor:2"):
        settle_early(parse(fine), with_values(Config(), {key: 0.5}), MACHINE)
