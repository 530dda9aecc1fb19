"""The noise scale of ten steps over ranks, and of the same batches in as many micro-batches on one device."""

import pytest

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.parameters.gradient_noise import Noise
from manyhands.plan.spec import parse
from manyhands.train.job import assemble
from numerics.cases import REST, ordered, trained


def measured(words: str, team: Team, **changes: object) -> list[float]:
    """|G|², tr Σ and the number of measured steps after ten, the last batch of each epoch a small one."""
    config, dataset = ordered("convnet", **changes)
    job = assemble(config, parse(f"{words},precision=fp64,device=cpu,{REST}"), dataset, team)
    noise = Noise(job.context.model.parameters(), team, job.context.device)
    job.context.strategy.watch(noise)
    trained(job)
    square, trace, count = team.sum(noise.smooth.clone()).tolist()
    return [square, trace, count / team.world]


def on_a_gpu(capture: str) -> list[float]:
    rest = REST.replace("capture=off", f"capture={capture}")
    config, dataset = ordered("convnet", train__accumulate=2)
    job = assemble(config, parse(f"serial,precision=fp64,device=cuda,{rest}"), dataset)
    noise = Noise(job.context.model.parameters(), Team(), job.context.device)
    job.context.strategy.watch(noise)
    trained(job)
    return noise.smooth.tolist()


def as_micro_batches(backend: str, rank: int, world: int, options: str, changes: dict[str, object]) -> None:
    many = measured(f"data:{world},backend={backend}{options}", Team(rank, world), **changes)
    one = measured("serial", Team(), **{**changes, "train__accumulate": world})
    assert many[1] > 0
    assert many == pytest.approx(one, rel=1e-9)
