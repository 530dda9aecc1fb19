"""Real weights under a virtual clock: against one device, against each other, and by hand."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.sampler import share_of
from manyhands.data.schema import DataOptions
from manyhands.errors import Diverged
from manyhands.plan.spec import parse
from manyhands.plan.stragglers import Fault
from manyhands.simulate.cluster.replicas import Gossip, LocalSGD
from manyhands.simulate.cluster.shared_weights import Free, Sum
from manyhands.simulate.cluster.train import Outcome, follow, learner_of
from manyhands.simulate.cluster.trainer import Learner
from manyhands.simulate.worker_processes import Average, Gradient, Meet, Push
from manyhands.simulate.worker_timing import WorkerTiming
from manyhands.train.job import assemble

BATCH = 100  # of 950 samples: nine batches, and one of 50
ONE = "serial,device=cpu,precision=fp32,layout=contiguous,kernels=torch,compile=off,capture=off,feed=device,workers=0"
SLOW = Fault(share=0.2, step_factor=5.0)


@pytest.fixture
def digits(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A few of them."""
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    return load("digits", DataOptions(size=1000, test_size=500))


def config_of(**values: Any) -> Config:
    """Without a kink as relu's, at which the smallest difference of two sums may become a large one of gradients."""
    usual = {"model.name": "mlp", "model.width": 0.25, "model.dropout": 0.0, "model.activation": "tanh"}
    usual |= {"optim.name": "momentum", "optim.lr": 0.02}
    told = {key.replace("__", "."): value for key, value in values.items()}
    return with_values(Config(), {**usual, "train.batch_size": BATCH, "train.epochs": 2, **told})


def pace_of(workers: int, servers: int = 0, **more: Any) -> WorkerTiming:
    """A sample takes 1000, and all else a little."""
    sizes = {share_of(whole, rank, workers).mine for whole in range(1, 2 * BATCH + 1) for rank in (0, workers - 1)}
    times = {"update": 100, "message": 1000, "held": 500, "reduce": 1000, "apply": 10, "jitter": 0.3}
    return WorkerTiming(workers, {size: 1000 * size for size in sizes}, servers=servers, **{**times, **more})


def trained(words: str, config: Config, dataset: Dataset, **more: Any) -> tuple[Learner, Outcome]:
    plan = parse(f"{words},precision=fp32,layout=contiguous,kernels=torch")
    learner = learner_of(config, plan, dataset)
    pace = pace_of(plan.axes[0].degree, plan.axes[0].servers, seed=config.train.seed, **more)
    return learner, follow(learner, plan, pace, "made", 0.9)


def weights(learner: Learner) -> list[Tensor]:
    learner.gather()
    return [each.detach().clone() for each in learner.model.state_dict().values()]


def on_one_device(config: Config, dataset: Dataset) -> list[Tensor]:
    job = assemble(config, parse(ONE), dataset)
    feed = job.context.feed
    torch.manual_seed(config.train.seed)
    epochs = range(config.train.epochs)
    batches = ((epoch, number, batch) for epoch in epochs for number, batch in enumerate(feed.epoch(epoch)))
    for epoch, number, batch in islice(batches, config.train.max_steps):
        job.step(batch, feed.share(number, epoch))
    return list(job.context.model.state_dict().values())


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def near(one: list[Tensor], other: list[Tensor], most: float = 1e-6) -> bool:
    pairs = [(a.double(), b.double()) for a, b in zip(one, other, strict=True)]
    return all((a - b).norm() <= most * max(b.norm(), 1.0) for a, b in pairs)


@pytest.mark.parametrize(
    "words", ["serial", "data:3", "server:4+2", "local:3,every=1", "data:60", "server:1+1,consistency=async"]
)
def test_what_keeps_in_step_is_one_device(words: str, digits: Dataset) -> None:
    """Uneven last batches included, whatever the delays are."""
    config = config_of(train__max_steps=12)
    learner, _ = trained(words, config, digits, fault=SLOW)
    assert near(weights(learner), on_one_device(config, digits))


@pytest.mark.parametrize("words", ["data:3", "server:3+1"])
def test_no_staleness_is_synchronous_to_the_bit(words: str, digits: Dataset) -> None:
    config = config_of(train__epochs=1)
    learner, outcome = trained(words, config, digits)
    stale, late = trained(f"{words},consistency=stale,staleness=0", config, digits, fault=SLOW)
    assert same(weights(learner), weights(stale))
    assert outcome.staleness == late.staleness == {0: 3 * outcome.steps}


@pytest.mark.parametrize("words", ["data:4,consistency=stale,staleness=2", "server:4+1,consistency=stale,staleness=2"])
def test_staleness_is_seen_and_bounded(words: str, digits: Dataset) -> None:
    config = config_of(train__max_steps=20)
    learner, outcome = trained(words, config, digits, fault=SLOW)
    assert max(outcome.staleness) == 2
    assert sum(outcome.staleness.values()) == 4 * outcome.steps
    assert not near(weights(learner), on_one_device(config, digits), 1e-3)
    assert outcome.epochs[1].train_loss < outcome.epochs[0].train_loss


def test_batch_norms_of_ranks_in_step_are_over_all_of_them(digits: Dataset) -> None:
    config = config_of(model__name="convnet", model__width=0.25, model__batch_norm=True, train__max_steps=4)
    learner, _ = trained("data:3", config, digits)
    assert near(weights(learner), on_one_device(config, digits), 1e-5)


@pytest.mark.parametrize(
    "words",
    [
        "server:4+1,consistency=async",
        "server:4+1,consistency=async,adapt=on",
        "local:4,every=4,average=elastic",
        "gossip:4,topology=exponential",
        "gossip:4,topology=pairs",
    ],
)
def test_every_kind_learns_and_is_the_same_again(words: str, digits: Dataset) -> None:
    config = config_of(train__epochs=3, optim__name="adam", optim__lr=0.002)
    learner, outcome = trained(words, config, digits, fault=SLOW)
    again, told = trained(words, config, digits, fault=SLOW)
    assert outcome.to_json() == told.to_json()
    assert same(weights(learner), weights(again))
    assert outcome.test_accuracy > 0.4
    losses = [epoch.train_loss for epoch in outcome.epochs]
    assert losses == sorted(losses, reverse=True)
    other, _ = trained(words, config_of(train__seed=1, train__epochs=1), digits)
    assert not near(weights(learner), weights(other), 1e-2)


def test_asynchronous_is_faster_where_one_is_slow(digits: Dataset) -> None:
    """Both see every sample once; the clock alone differs, exactly."""
    config, slow = config_of(train__epochs=1), {"fault": Fault(rank=1, rank_factor=3.0), "jitter": 0.0}
    _, sync = trained("server:4+1", config, digits, **slow)
    _, free = trained("server:4+1,consistency=async", config, digits, **slow)
    assert sync.samples == free.samples == len(digits.train)
    assert sync.nanoseconds > 1.8 * free.nanoseconds
    assert max(free.staleness) > 0


def test_gradients_are_added_in_the_order_of_parts() -> None:
    """So that a sum does not depend on who comes first, to the bit."""
    parts = [torch.tensor([1e8]), torch.tensor([1.0]), torch.tensor([-1e8]), torch.tensor([0.5])]
    sums = []
    for order in ([0, 1, 2, 3], [3, 1, 2, 0], [2, 0, 3, 1]):
        total = Sum()
        for part in order:
            total.add(part, [parts[part].clone(), None])
        sums.append(total.total)
    assert [float(each[0]) for each in sums] == [float(((parts[0] + parts[1]) + parts[2]) + parts[3])] * 3  # type: ignore[arg-type]
    assert all(each[1] is None for each in sums)


def test_a_late_gradient_counts_less(digits: Dataset) -> None:
    moved = []
    for words in ("server:2+1,consistency=async", "server:2+1,consistency=async,adapt=on"):
        learner = learner_of(config_of(optim__name="sgd"), parse(words), digits)
        assert isinstance(learner, Free)
        learner.begin(0, 0)
        before = [each.detach().clone() for each in learner.parameters]
        learner.obey(Gradient(0, 1, 0, 0, 0))
        learner.obey(Push(1, 1, 3))
        moved.append([each.detach() - old for each, old in zip(learner.parameters, before, strict=True)])
    for whole, less in zip(*moved, strict=True):
        torch.testing.assert_close(less, whole / 3)


def filled(words: str, dataset: Dataset, values: list[float]) -> Any:
    """Workers whose weights are all one number."""
    learner = learner_of(config_of(), parse(words), dataset)
    for own, value in zip(learner.own, values, strict=True):  # type: ignore[attr-defined]
        for each in own.tensors:
            each.fill_(value)
    return learner


def values_of(learner: Any) -> list[float]:
    return [round(float(own.tensors[0].flatten()[0]), 6) for own in learner.own]


def test_means(digits: Dataset) -> None:
    learner = filled("local:4", digits, [1.0, 3.0, 5.0, 9.0])
    assert isinstance(learner, LocalSGD)
    learner.obey(Average(0))
    assert values_of(learner) == [4.5] * 4


def test_workers_and_centre_draw_each_other(digits: Dataset) -> None:
    """rate 0.9 / 2; d = 0.45 · 1 and 0.45 · 3."""
    learner = filled("local:2,average=elastic", digits, [1.0, 3.0])
    for each in learner.centre:
        each.zero_()
    learner.obey(Average(0))
    assert values_of(learner) == [0.55, 1.65]
    learner.gather()
    assert float(learner.parameters[0].detach().flatten()[0]) == pytest.approx(1.8)


def test_two_that_meet_go_halfway(digits: Dataset) -> None:
    """The one that was met does so at its next step; what is evaluated is their mean."""
    learner = filled("gossip:3", digits, [1.0, 3.0, 5.0])
    assert isinstance(learner, Gossip)
    learner.obey(Meet(0, 0, 1))
    assert values_of(learner) == [2.0, 3.0, 5.0]
    learner.obey(Meet(0, 2, 1))  # which has told that it will be at 2
    assert values_of(learner) == [2.0, 3.0, 3.5]
    learner.gather()
    assert values_of(learner) == [2.0, 3.5, 3.5]
    assert float(learner.parameters[0].detach().flatten()[0]) == pytest.approx(3.0)


def test_workers_have_optimizers_of_their_own(digits: Dataset) -> None:
    """Momentum of one worker does not move another: two that get the same parts go the same way."""
    learner, _ = trained("gossip:2", config_of(train__max_steps=1), digits, jitter=0.0)
    states = [own.optimizer.state_dict()["state"] for own in learner.own]  # type: ignore[attr-defined]
    assert all(states)
    assert not torch.equal(states[0][0]["momentum_buffer"], states[1][0]["momentum_buffer"])


def test_max_steps_and_the_schedule(digits: Dataset) -> None:
    config = config_of(train__max_steps=15, optim__schedule="cosine")
    _, outcome = trained("data:2", config, digits)
    assert outcome.steps == 15
    assert len(outcome.epochs) == 2
    assert outcome.samples == len(digits.train) + 5 * BATCH
    seconds = [epoch.epoch_seconds for epoch in outcome.epochs]
    assert outcome.epochs[-1].virtual_seconds == pytest.approx(sum(seconds))
    assert outcome.nanoseconds == round(1e9 * outcome.epochs[-1].virtual_seconds)


def test_batches_may_grow(digits: Dataset) -> None:
    """Ten batches of 100, then five of 200."""
    config = config_of(train__grow="0.5:2")
    learner, outcome = trained("data:3", config, digits)
    assert outcome.steps == 10 + 5
    assert near(weights(learner), on_one_device(config, digits))


def test_a_loss_that_is_not_finite_is_told(digits: Dataset) -> None:
    with pytest.raises(Diverged, match="lower the learning rate"):
        trained("data:2", config_of(model__activation="relu", optim__name="sgd", optim__lr=1e30), digits)
