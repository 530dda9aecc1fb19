"""Steps that are slowed on purpose: by how much, which of them, and whose."""

from typing import Any

import pytest
import torch

from manyhands.engine.loop.step import EagerStep
from manyhands.engine.loop.straggler import Slow, slow_down
from manyhands.plan.spec import parse
from manyhands.plan.stragglers import read
from manyhands.train.job import assemble
from numerics.cases import REST, ordered, trained

CPU = torch.device("cpu")


def test_it_sleeps_for_three_passes_times_what_is_missing() -> None:
    """A forward pass takes 2 s: at 3 times as long a step of 6 s lacks 12 s."""
    now, slept = iter([0.0, 2.0, 2.0, 4.0]), []
    factors = [3.0, 1.0]
    slow = Slow(lambda batch: batch[0], factors.__getitem__, CPU, slept.append, lambda: next(now))
    batch = (torch.ones(1),)
    assert slow(batch) is batch[0]
    slow(batch)
    assert slept == [12.0]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_drawn_steps_are_slow_with_all_their_parts(accumulate: int) -> None:
    config, dataset = ordered("convnet", train__accumulate=accumulate)
    job = assemble(config, parse(f"serial,precision=fp32,device=cpu,{REST}"), dataset)
    fault, slept = read("2:4x", "0.5:10x"), []
    assert isinstance(job.step, EagerStep)
    slow_down(job.step, fault, rank=1, seed=3)
    slow = job.step.losses
    assert isinstance(slow, Slow)
    slow.sleep = slept.append
    trained(job)
    drawn = [fault.factor(1, step, 3) for step in range(10)]
    assert 0 < drawn.count(10.0) < 10
    assert len(slept) == accumulate * drawn.count(10.0)


@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_only_the_named_rank(pools: Any, backend: str) -> None:
    pools(backend).run("engine.slow_cases:only_the_named_rank", backend, 2)
