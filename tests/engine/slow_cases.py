"""A rank that is slowed on purpose, as a training puts it together; runs in all ranks of a group."""

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.loop.step import EagerStep
from manyhands.engine.loop.straggler import Slow
from manyhands.plan.spec import parse
from manyhands.train.job import assemble
from numerics.cases import REST, ordered, trained


def only_the_named_rank(backend: str, rank: int, world: int) -> None:
    config, dataset = ordered("convnet", fault__slow_rank="1:3x")
    plan = parse(f"data:{world},backend={backend},precision=fp32,device=cpu,{REST}")
    job, slept = assemble(config, plan, dataset, Team(rank, world)), []
    assert isinstance(job.step, EagerStep)
    assert isinstance(job.step.losses, Slow)
    job.step.losses.sleep = slept.append
    trained(job)
    assert len(slept) == (10 if rank == 1 else 0)
    assert all(seconds > 0 for seconds in slept)
