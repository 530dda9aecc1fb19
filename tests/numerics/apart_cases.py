"""Ranks that do not keep step, beside synchronous ones and beside the same by hand; each function runs in all ranks."""

import hashlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from manyhands.comm.ranks.rank_group import Team
from manyhands.data.feeds import Feed
from manyhands.engine.asynchronous.local_sgd import LocalSGD
from manyhands.engine.asynchronous.stale_synchronous import StaleSynchronous, row_size
from manyhands.engine.loop import checkpoint, checkpoint_folder
from manyhands.engine.loop.checkpoint_folder import Position
from manyhands.engine.parameters.flat_parameters import FlatParameters
from manyhands.optim import factory
from manyhands.plan.consistency import averages, elastic_rate
from manyhands.plan.spec import parse
from manyhands.train.job import Job, assemble, make_feed
from numerics.cases import REST, distance, ordered, steps, trained


def like_synchronous(
    backend: str, rank: int, world: int, model: str, apart: str, precision: str, changes: dict[str, object]
) -> None:
    """`apart`, with {world} for the number of ranks, comes to the weights of data:N, on all ranks to the same bits."""
    team, rest = Team(rank, world), f"backend={backend},precision={precision}"
    one = steps(model, f"data:{world},{rest}", team, **changes).context.strategy.weights()
    many = steps(model, f"{apart.format(world=world)},{rest}", team, **changes).context.strategy.weights()
    far = {name: distance(tensor, one[name]) for name, tensor in many.items()}
    assert max(far.values()) < {"fp32": 1e-6, "fp64": 1e-12}[precision], far
    agree(many, world)


def agree(tensors: dict[str, Tensor], world: int) -> None:
    """All ranks have the same to the bit."""
    told: list[Any] = [None] * world
    dist.all_gather_object(told, digest(tensors))
    assert len(set(told)) == 1


def digest(tensors: dict[str, Tensor]) -> str:
    parts = (tensors[name].detach().contiguous().numpy().tobytes() for name in sorted(tensors))
    return hashlib.sha256(b"".join(parts)).hexdigest()


# Local.


def local_by_hand(backend: str, rank: int, world: int, options: str) -> None:
    """Every worker's weights, computed here one worker after the other, and their mean or centre."""
    plan = parse(f"local:{world},backend={backend},precision=fp64,device=cpu,{options},{REST}")
    config, dataset = ordered("convnet", optim__name="momentum")
    job = trained(assemble(config, plan, dataset, Team(rank, world)))
    assert plan.every is not None
    serial = parse(f"serial,precision=fp64,device=cpu,{REST}")
    workers = [assemble(config, serial, dataset) for _ in range(world)]
    feeds = [
        make_feed(config, serial, dataset.schema, Team(each, world), dataset.train, config.train.seed)
        for each in range(world)
    ]
    weights = [list(worker.context.model.parameters()) for worker in workers]
    centre = [each.detach().clone() for each in weights[0]]
    step = 0
    for epoch in range(2):
        for number, batches in enumerate(zip(*(feed.epoch(epoch) for feed in feeds), strict=True)):
            for worker, feed, batch in zip(workers, feeds, batches, strict=True):
                _learn(worker, feed, batch, number, world)
            if averages(step, plan.every, plan.after or 0):
                _bring_together(weights, centre, elastic=plan.average == "elastic")
            step += 1
    own = [each.detach().clone() for each in job.context.model.parameters()]
    for name, (mine, wanted) in enumerate(zip(own, weights[rank], strict=True)):
        assert distance(mine, wanted) < 1e-12, name
    means = [torch.stack(list(each)).mean(0) for each in zip(*weights, strict=True)]
    names = [name for name, _ in job.context.model.named_parameters()]
    read = job.context.strategy.weights()
    for name, wanted in zip(names, centre if plan.average == "elastic" else means, strict=True):
        assert distance(read[name], wanted) < 1e-12, name
    for mine, before in zip(job.context.model.parameters(), own, strict=True):
        assert torch.equal(mine, before)  # only read
    agree(read, world)


def _learn(worker: Job, feed: Feed, batch: tuple[Tensor, ...], number: int, world: int) -> None:
    context, share = worker.context, feed.share(number)
    context.optimizer.zero_grad()
    inputs, labels = context.prepared(feed, batch)
    (context.loss(context.model(inputs), labels) * (world * share.mine / share.whole)).backward()
    context.optimizer.step()


def _bring_together(weights: list[list[torch.nn.Parameter]], centre: list[Tensor], elastic: bool) -> None:
    with torch.no_grad():
        for place, copies in enumerate(zip(*weights, strict=True)):
            if elastic:
                apart = [elastic_rate(len(copies)) * (copy - centre[place]) for copy in copies]
                centre[place] += torch.stack(apart).sum(0)
                for copy, away in zip(copies, apart, strict=True):
                    copy -= away
            else:
                mean = torch.stack(list(copies)).mean(0)
                for copy in copies:
                    copy.copy_(mean)


# Both.


def resumes(backend: str, rank: int, world: int, options: str, folder: str) -> None:
    """A training that was kept after its first epoch, and taken up again, goes on to the bit; dropout too."""
    words = f"{options.format(world=world)},backend={backend},precision=fp32,device=cpu,{REST}"
    changes: dict[str, object] = {"optim__name": "adam", "optim__lr": 0.01, "model__dropout": 0.5}
    config, dataset = ordered("convnet", **changes)
    torch.manual_seed(rank)
    first = trained(assemble(config, parse(words), dataset, Team(rank, world)), range(1))
    first.context.strategy.settle()
    checkpoint.save(Path(folder), first.context, Position(step=5), keep=1, best=False)
    trained(first, range(1, 2))
    dist.barrier()
    again = assemble(config, parse(words), dataset, Team(rank, world))
    torch.manual_seed(99)
    (path,) = checkpoint_folder.listing(Path(folder))
    assert checkpoint.restore(path, again.context).step == 5
    trained(again, range(1, 2))
    for job in (first, again):
        job.context.strategy.settle()
    assert digest(first.context.model.state_dict()) == digest(again.context.model.state_dict())
    assert digest(first.context.strategy.weights()) == digest(again.context.strategy.weights())


def batch_norms(backend: str, rank: int, world: int, options: str) -> None:
    """Each rank normalizes by its own samples, one sample by what was tracked; what is read is the same on all."""
    words = f"{options.format(world=world)},backend={backend},precision=fp32,device=cpu,{REST}"
    config, dataset = ordered("convnet", model__name="mlp", model__batch_norm=True)
    job = trained(assemble(config, parse(words), dataset, Team(rank, world)))
    strategy = job.context.strategy
    assert isinstance(strategy, LocalSGD | StaleSynchronous)
    assert strategy.norms
    assert not job.context.norms
    strategy.settle()
    weights = strategy.weights()
    assert all(each.isfinite().all() for each in weights.values())
    agree({name: each for name, each in weights.items() if each.is_floating_point()}, world)


# Stale.


def stale_is_blocking(backend: str, rank: int, world: int) -> None:
    """Without staleness: what an all-reduce that all wait for gives, to the bit."""
    words = f"data:{world},consistency=stale,staleness=0,backend={backend},precision=fp32,device=cpu,{REST}"
    config, dataset = ordered("convnet", optim__name="momentum")
    many = trained(assemble(config, parse(words), dataset, Team(rank, world)))
    serial = parse(f"serial,precision=fp32,device=cpu,{REST}")
    hand = assemble(config, serial, dataset)
    feed = make_feed(config, serial, dataset.schema, Team(rank, world), dataset.train, config.train.seed)
    context, flat = hand.context, FlatParameters(hand.context.model)
    # As long a message: in which order gloo adds up depends on that.
    row, told = torch.zeros(row_size(flat)), []
    for epoch in range(2):
        for number, batch in enumerate(feed.epoch(epoch)):
            share = feed.share(number)
            context.optimizer.zero_grad()
            inputs, labels = context.prepared(feed, batch)
            loss = context.loss(context.model(inputs), labels) * (share.mine / share.whole)
            loss.backward()
            for place, parameter in enumerate(flat.parameters):
                flat.view(row, place).copy_(parameter.grad)
            row[flat.size] = loss.detach()
            dist.all_reduce(row)
            for place, parameter in enumerate(flat.parameters):
                parameter.grad = flat.view(row, place).clone()
            context.optimizer.step()
            told.append(float(row[flat.size]))
    assert digest(many.context.model.state_dict()) == digest(context.model.state_dict())
    assert many.context.strategy.losses() == told
    assert many.context.strategy.staleness() == {0: 10}


class Latest:
    """Sums that nobody gets before they are waited for."""

    def __init__(self, size: int, slots: int) -> None:
        self.rows = torch.zeros(slots, size, dtype=torch.float64)

    def row(self, step: int) -> Tensor:
        return self.rows[step % len(self.rows)]

    def send(self, step: int) -> None: ...

    def come(self, step: int) -> bool:
        return False

    def take(self, step: int) -> Tensor:
        return self.row(step)


def stale_by_hand(backend: str, rank: int, world: int, most: int) -> None:
    """Gradients that always come as late as they may: each is of weights that lack so many updates, and is applied at
    the rate of its own step."""
    config, dataset = ordered("convnet", optim__name="momentum", train__clip=0.5)
    serial = parse(f"serial,precision=fp64,device=cpu,{REST}")
    one, hand = (assemble(config, serial, dataset).context for _ in range(2))
    later = Latest(row_size(FlatParameters(one.model)), most + 1)

    def make(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return factory.build(parameters, config.optim, 0.05, best=True, device="cpu")

    stale = StaleSynchronous(one.model, make, 0.5, Team(), most, later)
    late: list[tuple[float, list[Tensor]]] = []

    def apply() -> None:
        rate, gradients = late.pop(0)
        for parameter, gradient in zip(hand.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        factory.set_lr(hand.optimizer, rate)
        hand.strategy.update()

    for step, batch in enumerate(one.feed.epoch(0)):
        rate = 0.05 / (1 + step)
        factory.set_lr(stale.optimizer, rate)
        for context, optimizer in ((one, stale.optimizer), (hand, hand.optimizer)):
            optimizer.zero_grad()
            context.losses(batch).backward()
        stale.hear(torch.tensor(float(step)))
        stale.update()
        assert stale.optimizer.param_groups[0]["lr"] == rate
        late.append((rate, [each.grad.clone() for each in hand.model.parameters()]))
        if len(late) > most:
            apply()
        assert digest(one.model.state_dict()) == digest(hand.model.state_dict())
    assert stale.losses() == [float(each) for each in range(5 - most)]
    assert stale.staleness() == {**dict.fromkeys(range(most), 1), most: 5 - most}
    stale.settle()
    while late:
        apply()
    assert digest(one.model.state_dict()) == digest(hand.model.state_dict())
    assert stale.losses() == [float(each) for each in range(5 - most, 5)]
