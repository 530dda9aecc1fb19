"""Three steps of a small model with one kind of layer cut, and the same on one device; functions that all ranks run."""

import copy
from collections.abc import Callable
from functools import partial
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.sharding.hybrid import Hybrid
from manyhands.engine.sharding.layers import rnn
from manyhands.graph.trace import trace
from manyhands.plan.sharding import Split, on
from manyhands.plan.sharding_rules import fits
from manyhands.plan.spec import parse
from manyhands.plan.stages import pipeline_of
from numerics.cases import LIMIT, distance

WORDS, LENGTH, CLASSES, BATCH = 11, 5, 3, 6
PLAN = parse("serial")


class Sequences(nn.Module):
    """Words → vectors → whatever is given → the mean over the positions → classes."""

    def __init__(self, layer: nn.Module, units: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 6, padding_idx=0)
        self.layer = layer
        self.output = nn.Linear(units, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        made = self.layer(self.embedding(ids))
        states = made[0] if isinstance(made, tuple) else made
        scores: Tensor = self.output(states.mean(1))
        return scores


class LastState(Sequences):
    """The same, of the last state of the last layer."""

    def forward(self, ids: Tensor) -> Tensor:
        state = self.layer(self.embedding(ids))[1]
        hidden = state[0] if isinstance(self.layer, nn.LSTM) else state
        scores: Tensor = self.output(hidden[-1])
        return scores


BUILD: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: Sequences(nn.LSTM(6, 7, 2, batch_first=True), 7),
    "gru": lambda: Sequences(nn.GRU(6, 7, 2, batch_first=True), 7),
    "rnn": lambda: Sequences(nn.RNN(6, 7, batch_first=True, bias=False, nonlinearity="relu"), 7),
    "both ways": lambda: Sequences(nn.LSTM(6, 7, 2, batch_first=True, bidirectional=True), 14),
    "last of a gru": lambda: LastState(nn.GRU(6, 7, batch_first=True), 7),
    "last of an lstm": lambda: LastState(nn.LSTM(6, 7, 2, batch_first=True), 7),
    "projected": lambda: LastState(nn.LSTM(6, 7, batch_first=True, proj_size=4), 4),
    "encoder": lambda: Sequences(nn.TransformerEncoderLayer(6, 3, 8, 0.0, batch_first=True), 6),
}


def same_as_one_device(
    backend: str, rank: int, world: int, name: str, kind: str, degrees: dict[str, int], order: tuple[int, ...] = ()
) -> None:
    """Layers of a kind are split so, over ranks in this order; all have copies of the others."""
    torch.manual_seed(0)
    model = BUILD[name]().double()
    twin, ids = copy.deepcopy(model), torch.randint(WORDS, (BATCH, LENGTH))
    labels = torch.randint(CLASSES, (BATCH,))
    graph = trace(model, ids[:2])  # a mean that is joined to a layer would have to be cut as well
    chosen = [on(0, copies=world)] * len(graph.layers)
    for number, layer in enumerate(graph.layers):
        if kind in (layer.kind, layer.name):
            chosen[number] = Split(**degrees, devices=order) if order else on(0, **degrees)
            assert fits(layer, chosen[number], BATCH) is None
    assert len(set(chosen)) == 2
    make = partial(torch.optim.SGD, lr=0.1)
    strategy = Hybrid(model, make, None, graph, chosen, pipeline_of(PLAN, chosen), Team(rank, world))
    optimizer = make(twin.parameters())
    for _ in range(3):
        given = strategy.given((ids, labels))
        strategy.optimizer.zero_grad()
        scores = strategy.forward(given.inputs[0])
        loss = functional.cross_entropy(scores, given.labels[1]) if len(given.labels[1]) else scores.sum()
        (loss * given.weight).backward()
        strategy.update()
        optimizer.zero_grad()
        functional.cross_entropy(twin(ids), labels).backward()
        optimizer.step()
    weights, one = strategy.weights(), twin.state_dict()
    far = {name: distance(weights[name], one[name]) for name in one}
    assert max(far.values()) < LIMIT["fp64"], far
    strategy.load_weights(one)  # a checkpoint of one device
    assert all(torch.equal(each, one[name]) for name, each in strategy.weights().items())


def the_same_is_dropped(backend: str, rank: int, world: int) -> None:
    """Ranks that have other hidden units of the same samples drop the same of what they have gathered."""
    torch.manual_seed(rank)  # as a training does
    model = Sequences(nn.GRU(6, 7, 3, batch_first=True, dropout=0.5), 7)
    for each in model.parameters():
        dist.broadcast(each.data, 0)
    ids = torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) % WORDS
    graph = trace(model, ids[:2])
    chosen = [on(0, parameter=world) if layer.kind == "recurrent" else on(0, copies=world) for layer in graph.layers]
    strategy = Hybrid(
        model, partial(torch.optim.SGD, lr=0.1), None, graph, chosen, pipeline_of(PLAN, chosen), Team(rank, world)
    )
    kept: list[list[bool]] = []

    def drop(x: Tensor, chance: float) -> Tensor:
        result = functional.dropout(x, chance)
        kept.append(result.ne(0).flatten().tolist())
        return result

    with mock.patch.object(rnn, "functional", mock.Mock(wraps=functional, dropout=drop)):
        strategy.forward(strategy.given((ids, ids)).inputs[0])
    everyone: list[list[list[bool]]] = [[]] * world
    dist.all_gather_object(everyone, kept)
    assert len(kept) == 2
    assert kept[0] != kept[1]
    assert all(each == kept for each in everyone)
