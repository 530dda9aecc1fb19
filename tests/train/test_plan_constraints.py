"""What a plan must know before torch: it is bound, or refused in one line, before any process starts."""

from collections.abc import Callable

import pytest

from manyhands.config import Config, with_settings, with_values
from manyhands.errors import ConfigError, PlanError
from manyhands.machine.machine import Core, Machine
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse
from manyhands.train.plan_constraints import resolve

MACHINE = Machine(host="", cpu="", cores=tuple(Core(number, number, 0, 0) for number in range(4)), memory_bytes=1)


def on_cores(**options: object) -> Plan:
    return Plan(axes=(Axis("data", 2),), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: parse("data:2,consistency=async"), "need a server: say server:2+1,consistency=async"),
        (lambda: parse("data:2,staleness=3"), "staleness=3 is for consistency=stale: say that too, or leave it out"),
        (lambda: parse("data:2,consistency=stale,compress=bf16"), "with compress=bf16 cannot run yet: compress=none"),
        (lambda: parse("data:2,consistency=stale,shard=full"), "with shard=full cannot run yet: shard=none can"),
        (lambda: parse("data:2,tensor:2,consistency=stale"), "layers in parts keep step; leave consistency=stale out"),
        (lambda: parse("local:2,compress=topk"), "plan local:2 with compress=topk cannot run yet: compress=none can"),
        (lambda: parse("local:2,capture=on"), "plan local:2 with capture=on cannot run yet: capture=off can"),
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
        resolve(make(), Config(), MACHINE)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("words", "fault", "told"),
    [
        ("serial", "slow_rank=0:3x", "need ranks, plan serial has none: say data:N"),
        ("pipeline:2", "slow_rank=0:3x", "do not slow plans that cut layers: say data:N"),
        ("data:2,capture=on", "slow_steps=0.1:3x", "do not slow captured steps (capture=on): say data:N,capture=off"),
        ("local:2", "slow_rank=2:3x", "fault.slow_rank=2:3x: the plan has workers 0 to 1"),
    ],
)
def test_what_cannot_be_slowed_is_refused(words: str, fault: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(parse(words), with_settings(Config(), [f"fault.{fault}"]), MACHINE)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        ("local:2", {"every": 8, "after": 0, "average": "mean"}),
        ("local:2,every=3,after=9,average=elastic", {"every": 3, "after": 9, "average": "elastic"}),
        ("data:2,consistency=stale", {"staleness": 4}),
        ("data:2,consistency=stale,staleness=0", {"staleness": 0}),
    ],
)
def test_what_ranks_that_do_not_keep_step_leave_open_is_bound(words: str, bound: dict[str, object]) -> None:
    assert bound.items() <= resolve(parse(words), Config(), MACHINE).said().items()


@pytest.mark.parametrize("words", ["data:2,consistency=sync", "data:2,threads=2", "serial,threads=3"])
def test_what_can_run_stays_as_it_was_said(words: str) -> None:
    said = parse(words).said()
    assert said.items() <= resolve(parse(words), Config(), MACHINE).said().items()


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
        resolve(parse(words), with_values(Config(), {key: 0.5}), MACHINE)
    for fine in ("serial", "data:2", "pipeline:2", "tensor:2"):
        resolve(parse(fine), with_values(Config(), {key: 0.5}), MACHINE)
