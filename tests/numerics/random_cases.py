"""A random model over ranks, and on one device; functions that all ranks run."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.engine.loop.evaluate import evaluate
from manyhands.engine.sharding import activation
from manyhands.errors import InputError, ModelError
from manyhands.plan.spec import parse
from manyhands.train.checks import guard as checks
from manyhands.train.checks.guard import guard
from manyhands.train.job import Job, assemble
from numerics.cases import REST, distance

STEPS, BATCH = 3, 12


def ordered(model: str, optimizer: str = "momentum") -> tuple[Config, Dataset]:
    settings = {"model.name": f"numerics.random_models:{model}", "train.batch_size": BATCH}
    settings |= {"optim.name": optimizer, "optim.lr": 0.05, "optim.weight_decay": 0.1}
    return with_values(Config(), settings), load("synthetic:1x6x6,5", DataOptions(size=STEPS * BATCH, validation=0))


def prepared(model: str, words: str, team: Team) -> Job:
    """All that comes before the first step: what cannot train as on one device is refused here, not later."""
    config, dataset = ordered(model)
    plan = parse(f"{words},device=cpu,precision=fp64,{REST}")
    if team.world > 1:
        guard(config, plan, dataset, team)
    return assemble(config, plan, dataset, team)


def trained(job: Job) -> Job:
    feed = job.context.feed
    for number, batch in enumerate(feed.epoch(0)):
        job.step(batch, feed.share(number, 0))
    job.context.strategy.settle()
    job.context.strategy.sync_buffers()
    return job


def compared(backend: str, rank: int, world: int, words: str, model: str, told: str) -> None:
    """What became of a model: how far it is from one device's training, or why it was refused."""
    answer = Path(f"{told}.{rank}")
    try:
        job = prepared(model, f"{words},backend={backend}", Team(rank, world))
    except InputError as error:
        answer.write_text(json.dumps({"refused": str(error)}))
        return
    weights = trained(job).context.strategy.weights()
    score = evaluate(job.context, job.test)
    one = trained(prepared(model, "serial", Team()))
    whole, wanted = one.context.strategy.weights(), evaluate(one.context, one.test)
    far: dict[str, Any] = {name: distance(each, whole[name]) for name, each in weights.items() if name in whole}
    far["loss"] = abs(score.loss - wanted.loss) / wanted.loss
    far["accuracy"] = abs(score.accuracy - wanted.accuracy)
    keys = list(weights) == list(one.context.model.state_dict())
    answer.write_text(json.dumps({"far": max(far.values()), "keys": keys}))


def refuses(backend: str, rank: int, world: int, wrong: str) -> None:
    """The guard, of a model that passes, once its parts are not put together where they must be."""
    config, dataset = ordered(f"only_{wrong}")
    plan = parse(f"tensor:{world},backend={backend},device=cpu,precision=fp64,{REST}")
    with (
        mock.patch.object(checks, "home", return_value=Path("nowhere")),
        mock.patch.object(checks, "write_json"),
    ):
        guard(config, plan, dataset, Team(rank, world))
        mistaken = mock.patch.object(activation, "ELEMENTWISE", activation.ELEMENTWISE | {wrong})
        with mistaken, pytest.raises(ModelError, match="as another one: the output differs"):
            guard(config, plan, dataset, Team(rank, world))


def leaves_the_unused_alone(backend: str, rank: int, world: int, words: str) -> None:
    """Weights that no sample needs are neither decayed nor moved, and go on so from a state that was kept."""
    config, dataset = ordered("only_unused", "adamw")
    rest = f"device=cpu,precision=fp64,{REST}"
    many = assemble(config, parse(f"{words},backend={backend},{rest}"), dataset, Team(rank, world))
    one = assemble(config, parse(f"serial,{rest}"), dataset)
    before = {name: each.clone() for name, each in one.context.strategy.weights().items()}

    def step(job: Job) -> None:
        for number, batch in enumerate(job.context.feed.epoch(0)):
            job.step(batch, job.context.feed.share(number, 0))
        job.context.strategy.settle()

    for job in (many, one):
        step(job)
    again = assemble(config, parse(f"{words},backend={backend},{rest}"), dataset, Team(rank, world))
    state, weights = many.context.strategy.state(), many.context.strategy.weights()
    if rank == 0:
        assert {number for number, each in state["state"].items() if each} == set(one.context.strategy.state()["state"])
    told = Team(rank, world).broadcast_json(
        {
            "state": {str(key): each for key, each in state["state"].items()},
            "groups": state["param_groups"],
            "weights": dict(weights),
        }
    )
    again.context.strategy.load_weights(told["weights"])
    again.context.strategy.load_state(
        {"state": {int(key): each for key, each in told["state"].items()}, "param_groups": told["groups"]}
    )
    for job in (again, one):
        step(job)
    wanted = one.context.strategy.weights()
    for name, each in again.context.strategy.weights().items():
        assert distance(each, wanted[name]) < 1e-7, name
    untouched = [name for name in before if torch.equal(before[name], wanted[name])]
    assert untouched
    assert all(torch.equal(again.context.strategy.weights()[name], before[name]) for name in untouched)
