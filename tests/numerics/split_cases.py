"""Ten steps with each layer split in its own way, and the same on one device; functions that all ranks run."""

import random
from dataclasses import replace
from itertools import combinations

import torch
import torch.distributed as dist

from manyhands.engine.hybrid import Hybrid
from manyhands.engine.team import Team
from manyhands.graph.fuse import fuse
from manyhands.graph.graph import Graph
from manyhands.graph.trace import trace
from manyhands.plan.named import NamedSplit
from manyhands.plan.partition import ways
from manyhands.plan.plan import Plan
from manyhands.plan.split import Split, on
from manyhands.plan.words import parse
from manyhands.runs.config import Config
from manyhands.runs.job import Job, assemble, build_model, sample_input
from numerics.cases import BATCH, LIMIT, REST, distance, ordered, steps, trained


def split_of(graph: Graph, number: int, world: int, rng: random.Random) -> Split:
    """Any split that a layer supports, on neighbouring ranks; parts need not be as many as there are ranks."""
    most = ways(graph.layers[number], BATCH)
    while True:
        sample, parameter, reduction, copies = (rng.choice((1, 1, 2, 3, 4)) for _ in range(4))
        parts = sample * parameter * reduction * copies
        if parts <= world and parameter <= most.parameter and reduction <= most.reduction:
            first = rng.randrange(world - parts + 1)
            return on(first, sample=sample, parameter=parameter, reduction=reduction, copies=copies)


def drawn(plan: Plan, config: Config, seed: int, schema: object) -> Plan:
    """The plan with every layer named, and split at random."""
    graph = fuse(trace(build_model(config, schema), sample_input(schema, 2)))  # type: ignore[arg-type]
    rng = random.Random(seed)
    named = [
        NamedSplit(layer.name, split_of(graph, number, plan.world, rng)) for number, layer in enumerate(graph.layers)
    ]
    return replace(plan, layers=tuple(named))


def job_of(model: str, how: str, options: str, team: Team, **changes: object) -> Job:
    """`how`: the axes of a plan, or random:SEED."""
    config, dataset = ordered(model, **changes)
    name, _, seed = how.partition(":")
    axes = f"data:{team.world}" if name == "random" else how
    plan = parse(f"{axes},device=cpu,{options},{REST}")
    if name == "random":
        plan = drawn(plan, config, int(seed), dataset.schema)
    return assemble(config, plan, dataset, team)


def same_as_one_device(
    backend: str, rank: int, world: int, model: str, precision: str, how: str, changes: dict[str, object]
) -> None:
    """Parameters and buffers within the limit of one device's."""
    job = trained(job_of(model, how, f"backend={backend},precision={precision}", Team(rank, world), **changes))
    alone = steps(model, f"serial,precision={precision}", Team(), **changes)
    _compare(job, alone, LIMIT[precision])


def goes_on(backend: str, rank: int, world: int, model: str, optimizer: str, first: str, then: str) -> None:
    """What one plan has trained for an epoch another one trains on, as one device does."""
    changes: dict[str, object] = {"optim__name": optimizer, "train__clip": 0.5}
    options, team = f"backend={backend},precision=fp64", Team(rank, world)
    before = trained(job_of(model, first, options, team, **changes), [0])
    after = job_of(model, then, options, team, **changes)
    after.trainee.exchange.load_weights(before.trainee.exchange.weights())
    after.trainee.exchange.load_state(before.trainee.exchange.state())
    trained(after, [1])
    _compare(after, steps(model, "serial,precision=fp64", Team(), **changes), LIMIT["fp64"])


def copies_agree(backend: str, rank: int, world: int, model: str, how: str) -> None:
    """Ranks that have the same part of a weight have the same, to the bit, though dropout draws."""
    torch.manual_seed(100 + rank)  # as a training does
    job = trained(job_of(model, how, f"backend={backend},precision=fp32", Team(rank, world), model__dropout=0.5))
    exchange = job.trainee.exchange
    assert isinstance(exchange, Hybrid)
    assert exchange.post.draws > 0
    own = {
        (cut.name, name, cut.mine(name)): getattr(cut.module, name).detach().numpy().tobytes()
        for cut in exchange.cuts
        for name in cut.shapes
        if cut.mine(name) is not None
    }
    everyone: list[dict[object, bytes]] = [{}] * world
    dist.all_gather_object(everyone, own)
    shared = 0
    for one, other in combinations(everyone, 2):
        for key in one.keys() & other.keys():
            shared += 1
            assert one[key] == other[key], key
    assert shared


def _compare(job: Job, alone: Job, limit: float) -> None:
    weights, one = job.trainee.exchange.weights(), alone.trainee.exchange.weights()
    assert set(weights) == set(one)
    far = {name: distance(tensor, one[name]) for name, tensor in weights.items()}
    assert max(far.values()) < limit, far
