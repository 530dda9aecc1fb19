"""Ten steps with each layer split in its own way, and the same on one device; functions that all ranks run."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fnmatch import fnmatch
from itertools import combinations
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.engine.loop.evaluate import evaluate
from manyhands.engine.sharding.hybrid import Hybrid
from manyhands.engine.sharding.layers.cross_entropy import Logits
from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph
from manyhands.graph.trace import trace
from manyhands.plan.layer_rules import NamedSplit
from manyhands.plan.plan import Plan
from manyhands.plan.sharding import Split, on
from manyhands.plan.sharding_rules import ways
from manyhands.plan.spec import parse
from manyhands.train.job import Job, assemble, sample_input
from manyhands.train.weights import build_model
from numerics import cases
from numerics.cases import BATCH, LIMIT, REST, SAMPLES, distance, trained

TEXT, WORDS = cases.MODELS["text"]
MODELS = {
    **cases.MODELS,
    "mlp": ("synthetic:1x8x8,10", {"model.width": 0.125, "model.depth": 2}),
    "resnet18": ("synthetic:3x16x16,4", {"model.width": 0.125}),
    "lstm": (TEXT, {**WORDS, "model.name": "text", "model.cell": "lstm", "model.depth": 2}),
}
KNOWN = {**MODELS, "locally": ("synthetic:1x12x12,4", {"model.width": 0.5})}


def ordered(model: str, **changes: object) -> tuple[Config, Dataset]:
    """What to train, on what."""
    data, settings = KNOWN[model]
    base = {"model.name": model, "train.batch_size": BATCH, "optim.name": "sgd", "optim.lr": 0.05, **settings}
    config = with_values(Config(), {**base, **{key.replace("__", "."): value for key, value in changes.items()}})
    return config, load(data, DataOptions(size=SAMPLES, validation=0))


def graph_of(model: str) -> Graph:
    """As the engine sees it."""
    config, dataset = ordered(model)
    return coarsen(trace(build_model(config, dataset.schema), sample_input(dataset.schema, 2)))


def split_of(graph: Graph, number: int, world: int, rng: random.Random) -> Split:
    """Any split that a layer supports, on neighbouring ranks; parts need not be as many as there are ranks."""
    most = ways(graph.layers[number], BATCH)
    while True:
        sample, parameter, reduction, copies = (rng.choice((1, 1, 2, 3, 4)) for _ in range(4))
        parts = sample * parameter * reduction * copies
        if parts <= world and parameter <= most.parameter and reduction <= most.reduction:
            first = rng.randrange(world - parts + 1)
            return on(first, sample=sample, parameter=parameter, reduction=reduction, copies=copies)


def drawn(plan: Plan, graph: Graph, seed: int) -> Plan:
    """The plan with every layer named, and split at random."""
    rng = random.Random(seed)
    chosen = [split_of(graph, number, plan.world, rng) for number in range(len(graph.layers))]
    return named(plan, graph, chosen)


def named(plan: Plan, graph: Graph, chosen: Sequence[Split]) -> Plan:
    names = [layer.name for layer in graph.layers]
    return replace(plan, layers=tuple(NamedSplit(*each) for each in zip(names, chosen, strict=True)))


def job_of(model: str, how: str, options: str, team: Team, **changes: object) -> Job:
    """`how`: the axes of a plan, random:SEED, or splits:ROWS (four degrees and the first rank of each layer)."""
    config, dataset = ordered(model, **changes)
    word, _, rest = how.partition(":")
    axes = f"data:{team.world}" if word in ("random", "splits") else how
    others = REST.replace("layout=contiguous,", "") if "layout=" in options else REST
    device = "" if "device=" in options else "device=cpu,"
    plan = parse(f"{axes},{device}{options},{others}")
    if word == "random":
        plan = drawn(plan, graph_of(model), int(rest))
    if word == "splits":
        degrees = ("sample", "parameter", "reduction", "copies")
        rows = [on(first, **dict(zip(degrees, row, strict=True))) for *row, first in json.loads(rest)]
        plan = named(plan, graph_of(model), rows)
    return assemble(config, plan, dataset, team)


def alone(model: str, precision: str, device: str = "cpu", **changes: object) -> Job:
    return trained(job_of(model, "serial", f"precision={precision},device={device}", Team(), **changes))


def same_as_one_device(
    backend: str, rank: int, world: int, model: str, precision: str, how: str, changes: dict[str, object]
) -> None:
    """Parameters and buffers within the limit of one device's."""
    job = trained(job_of(model, how, f"backend={backend},precision={precision}", Team(rank, world), **changes))
    compare(job, alone(model, precision, **changes), LIMIT[precision])


def same_on_a_gpu(
    backend: str, rank: int, world: int, model: str, precision: str, how: str, changes: dict[str, object]
) -> None:
    """All ranks have parts of layers on one GPU, whose results go by way of the host."""
    options = f"device=cuda,backend={backend},precision={precision}"
    job = trained(job_of(model, how, options, Team(rank, world), **changes))
    assert {each.device.type for each in job.context.model.parameters()} <= {"cuda"}
    compare(job, alone(model, precision, "cuda", **changes), LIMIT[precision])


def channels_last_same_as_one_device(
    backend: str, rank: int, world: int, model: str, precision: str, how: str, changes: dict[str, object]
) -> None:
    """What goes from rank to rank has its channels last, too; one device's have them first."""
    options = f"backend={backend},precision={precision},layout=channels_last"
    job = trained(job_of(model, how, options, Team(rank, world), **changes))
    assert isinstance(job.context.strategy, Hybrid)
    assert job.context.strategy.post.channels_last
    compare(job, alone(model, precision, **changes), LIMIT[precision])


def goes_on(backend: str, rank: int, world: int, model: str, optimizer: str, first: str, then: str) -> None:
    """What one plan has trained for an epoch another one trains on, as one device does."""
    changes: dict[str, object] = {"optim__name": optimizer, "train__clip": 0.5}
    options, team = f"backend={backend},precision=fp64", Team(rank, world)
    before = trained(job_of(model, first, options, team, **changes), [0])
    after = job_of(model, then, options, team, **changes)
    after.context.strategy.load_weights(before.context.strategy.weights())
    after.context.strategy.load_state(before.context.strategy.state())
    trained(after, [1])
    compare(after, alone(model, "fp64", **changes), LIMIT["fp64"])


def copies_agree(backend: str, rank: int, world: int, model: str, how: str) -> None:
    """Ranks that have the same part of a weight have the same, to the bit, though dropout draws."""
    torch.manual_seed(100 + rank)  # as a training does
    job = trained(job_of(model, how, f"backend={backend},precision=fp32", Team(rank, world), model__dropout=0.5))
    strategy = job.context.strategy
    assert isinstance(strategy, Hybrid)
    assert strategy.post.on_way.draws > 0
    own = {
        (cut.name, name, cut.mine(name)): cut.tensor(name).detach().numpy().tobytes()
        for cut in strategy.cuts
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


def weights_are_cut(backend: str, rank: int, world: int, model: str, pattern: str) -> None:
    """Of every matrix of these layers a rank has its part, and no more."""
    job = job_of(model, f"tensor:{world}", f"backend={backend},precision=fp64", Team(rank, world))
    strategy = job.context.strategy
    assert isinstance(strategy, Hybrid)
    own = {
        f"{cut.name}.{name}": (world * cut.tensor(name).numel(), shape.numel())
        for cut in strategy.cuts
        for name, shape in cut.shapes.items()
        if fnmatch(cut.name, pattern) and len(shape) > 1
    }
    assert own
    assert all(parts == whole for parts, whole in own.values()), own


def scores_stay(backend: str, rank: int, world: int, smoothing: float) -> None:
    """The loss of 10 classes over 4 ranks: nobody has all scores, fewer bytes are sent, and it is the same."""
    sent, losses = [], []
    for gathers in (False, True):
        options = f"backend={backend},precision=fp64"
        job = job_of("mlp", f"tensor:{world}", options, Team(rank, world), train__label_smoothing=smoothing)
        strategy, feed = job.context.strategy, job.context.feed
        assert isinstance(strategy, Hybrid)
        batch = next(iter(feed.epoch(0)))
        if gathers:
            strategy.forward = strategy.predict  # type: ignore[method-assign]
        outputs = job.context.answers(feed, batch)[0]
        assert isinstance(outputs, Logits) != gathers
        assert outputs.shape == (BATCH, 10 if gathers else (3, 3, 2, 2)[rank])
        before = strategy.post.sent_bytes
        losses.append(float(job.context.losses(batch).detach()))
        sent.append(strategy.post.sent_bytes - before)
    assert abs(losses[0] - losses[1]) < LIMIT["fp64"]
    assert sent[0] < sent[1]


def scores_are_told(backend: str, rank: int, world: int, model: str, how: str) -> None:
    """Loss and accuracy over a set, after a training, are those of one device."""
    job = trained(job_of(model, how, f"backend={backend},precision=fp64", Team(rank, world)))
    one = alone(model, "fp64")
    score, wanted = evaluate(job.context, job.test), evaluate(one.context, one.test)
    assert score.accuracy == wanted.accuracy
    assert abs(score.loss - wanted.loss) < LIMIT["fp64"]


def one_exchange_a_pair(backend: str, rank: int, world: int) -> None:
    """Of two dense layers, the first by parameter and the second by reduction: one sum forward, one back."""
    job = job_of("mlp", f"tensor:{world}", f"backend={backend},precision=fp64", Team(rank, world), model__depth=3)
    batch = next(iter(job.context.feed.epoch(0)))
    job.context.losses(batch)  # the first time types of results are told
    with counted() as calls:
        loss = job.context.losses(batch)
    assert calls == {"all_reduce": 2}, calls  # two pairs
    with counted() as calls:
        loss.backward()
    assert calls == {"all_reduce": 1}, calls  # nothing learns before the first pair


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often this rank speaks to others, by the function that it calls."""
    calls: Counter[str] = Counter()

    def counting(name: str) -> Any:
        real = getattr(dist, name)

        def call(*given: Any, **named: Any) -> Any:
            calls[name] += 1
            return real(*given, **named)

        return call

    with ExitStack() as stack:
        for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast", "isend", "irecv"):
            stack.enter_context(mock.patch.object(dist, name, counting(name)))
        yield calls


def compare(job: Job, alone: Job, limit: float) -> None:
    weights, one = job.context.strategy.weights(), alone.context.strategy.weights()
    assert set(weights) == set(one)
    far = {name: distance(tensor, one[name]) for name, tensor in weights.items()}
    assert max(far.values()) < limit, far
