"""How far ranks run ahead of each other while some of their steps take long, seen by one clock of the whole host."""

import time
from typing import Any

import numpy as np
import torch.distributed as dist

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.asynchronous.stale_synchronous import StaleSynchronous
from manyhands.plan.spec import parse
from manyhands.train.job import assemble
from numerics.apart_cases import agree
from numerics.cases import REST, ordered

PAUSE = 0.004  # seconds, several times what a step of this model takes


def bound(backend: str, rank: int, world: int, most: int, epochs: int) -> None:
    """No rank begins a step before all have sent what is due for it, and all come to the same weights."""
    words = f"data:{world},consistency=stale,staleness={most},backend={backend},precision=fp32,device=cpu,{REST}"
    config, dataset = ordered("convnet", model__name="mlp")
    job = assemble(config, parse(words), dataset, Team(rank, world))
    strategy, feed = job.context.strategy, job.context.feed
    assert isinstance(strategy, StaleSynchronous)
    random, begun, sent, losses = np.random.default_rng(rank), [], [], []
    send = strategy.later.send

    def noted(step: int) -> None:
        if random.random() < 0.2:
            time.sleep(PAUSE)
        sent.append(time.monotonic_ns())
        send(step)

    strategy.later.send = noted  # type: ignore[method-assign]
    for epoch in range(epochs):
        for number, batch in enumerate(feed.epoch(epoch)):
            begun.append(time.monotonic_ns())
            job.step(batch, feed.share(number))
            losses += strategy.losses() or []
    strategy.settle()
    losses += strategy.losses() or []
    agree(job.context.model.state_dict(), world)
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, (sent, losses, strategy.staleness()))
    count = len(begun)
    for step in range(most + 1, count):
        assert all(others[step - most - 1] < begun[step] for others, _, _ in everyone), f"step {step}"
    assert all(told == losses for _, told, _ in everyone)
    assert len(losses) == count
    seen = [histogram for _, _, histogram in everyone]
    assert all(sum(each.values()) == count for each in seen)
    assert max(max(each) for each in seen) <= most
    assert max(max(each) for each in seen) > 0  # somebody did run ahead
