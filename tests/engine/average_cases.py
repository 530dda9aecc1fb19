"""Means of weights over ten steps, over ranks and on one device; each function runs in all ranks of a fresh group."""

import torch
from torch import Tensor

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.loop.weight_averaging import Average, ema, swa
from manyhands.train.job import Job
from numerics.cases import LIMIT, STEPS, distance
from numerics.split_cases import job_of

Tensors = dict[str, Tensor]


def mean_of(job: Job, kind: str) -> Average:
    return ema(job.context, 0.8) if kind == "ema" else swa(job.context, 0.5, STEPS)


def averaged(job: Job, kind: str) -> Average:
    """The mean over two epochs, which are ten steps."""
    mean, feed, step = mean_of(job, kind), job.context.feed, 0
    for epoch in range(2):
        for number, batch in enumerate(feed.epoch(epoch)):
            job.step(batch, feed.share(number))
            step += 1
            mean.after(step)
    assert step == STEPS
    return mean


def copied(tensors: Tensors) -> Tensors:
    return {name: each.detach().clone() for name, each in tensors.items()}


def same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(each, other[name]) for name, each in one.items())


def as_one_device(
    backend: str, rank: int, world: int, model: str, how: str, kind: str, changes: dict[str, object]
) -> None:
    """The mean and its scores are those of one device; the weights stay; another training goes on from it."""
    options, team = f"backend={backend},precision=fp64", Team(rank, world)
    many = job_of(model, how, options, team, **changes)
    mean = averaged(many, kind)
    before = copied(many.context.strategy.weights())
    found, score = mean.weights(), mean.score(many.context.feed)
    assert score is not None
    assert same(many.context.strategy.weights(), before)

    alone = averaged(job_of(model, "serial", "precision=fp64", Team(), **changes), kind)
    wanted, alike = alone.weights(), alone.score(alone.context.feed)
    assert alike is not None
    far = {name: distance(each, wanted[name]) for name, each in found.items()}
    assert found.keys() == wanted.keys()
    assert max(far.values()) < LIMIT["fp64"], far
    assert max(distance(each, before[name]) for name, each in found.items()) > 1e-4  # it is another model
    assert abs(score.loss - alike.loss) < 1e-8
    assert score.accuracy == alike.accuracy

    again = mean_of(job_of(model, how, options, team, **changes), kind)
    again.load(found, mean.count)
    assert same(again.weights(), found)
    assert again.count == mean.count


def goes_unnoticed(backend: str, rank: int, world: int, model: str, how: str) -> None:
    """A training with dropout draws the same whether a mean is scored in the middle or not."""
    ends = []
    for asks in (False, True):
        torch.manual_seed(100 + rank)  # as a training does
        options = f"backend={backend},precision=fp32"
        job = job_of(model, how, options, Team(rank, world), model__dropout=0.5)
        mean, feed = mean_of(job, "ema"), job.context.feed
        for number, batch in enumerate(feed.epoch(0)):
            job.step(batch, feed.share(number))
            mean.after(number + 1)
            if asks and number == 1:
                mean.score(feed)
        ends.append(copied(job.context.strategy.weights()))
    assert same(*ends)
