"""Deep stacking networks: one block learns at a time, and each mends what the one before says."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from manyhands.data.dataset import Dataset, Split
from manyhands.data.normalize import Normalize
from manyhands.models.stacking import Stacking, stacking
from manyhands.models.zoo import Options, Shapes, build

EPOCHS = 6
SAMPLES = 3000


def weights(model: Stacking, block: int) -> list[Tensor]:
    return [each.detach().clone() for each in model.get_submodule(f"block_{block}").parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def epoch(model: Stacking, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor, number: int) -> None:
    model.train()
    model.begin_epoch(number, EPOCHS)
    order = torch.Generator().manual_seed(number)
    for rows in torch.randperm(len(labels), generator=order).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
        optimizer.step()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_one_block_learns_at_a_time(decay: float) -> None:
    """Whatever an optimizer remembers of the blocks that have had their turn."""
    model = stacking(3, (7,), width=0.05)
    inputs, labels = drawn(200, 7), torch.arange(200) % 3
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=decay)
    for number in range(EPOCHS):
        before = [weights(model, block) for block in (1, 2, 3)]
        epoch(model, optimizer, inputs, labels, number)
        after = [weights(model, block) for block in (1, 2, 3)]
        stays = [same(*pair) for pair in zip(before, after, strict=True)]
        assert stays == [block != number // 2 for block in range(3)]


def test_blocks_that_had_no_turn_change_nothing() -> None:
    model, inputs = stacking(3, (7,), width=0.05), drawn(5, 7)
    first = model.get_submodule("block_1")(inputs)
    assert torch.equal(model(inputs), first)
    model.begin_epoch(0, 2)
    assert torch.equal(model(inputs), first)
    assert torch.equal(model.eval()(inputs), first)


@pytest.mark.parametrize(("epochs", "turns"), [(6, [1, 1, 2, 2, 3, 3]), (4, [1, 1, 2, 3]), (3, [1, 2, 3]), (2, [1, 2])])
def test_blocks_share_the_epochs(epochs: int, turns: list[int]) -> None:
    model = stacking(3, (7,))
    found = []
    for number in range(epochs):
        model.begin_epoch(number, epochs)
        found.append(model.turn)
    assert found == turns


def test_as_one_network_every_block_learns() -> None:
    model = stacking(3, (7,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [weights(model, block) for block in (1, 2, 3)]
    for _ in range(2):  # a block that adds nothing teaches its hidden layer from the second step on
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(drawn(9, 7)), torch.arange(9) % 3).backward()
        optimizer.step()
    assert not any(same(before[block - 1], weights(model, block)) for block in (1, 2, 3))


def ready(dataset: Dataset, split: Split) -> tuple[Tensor, Tensor]:
    rows = split.index[:SAMPLES]
    return Normalize(dataset.schema, contiguous=True)(torch.from_numpy(split.inputs[rows])), torch.from_numpy(
        split.labels[rows]
    )


def accuracies(dataset: Dataset) -> list[float]:
    """After each block's turn, on samples that were not trained on."""
    shapes = Shapes(len(dataset.schema.classes), tuple(dataset.schema.shape))
    model = build("stacking", shapes, Options(width=0.25))
    assert isinstance(model, Stacking)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    (inputs, labels), (unseen, answers) = ready(dataset, dataset.train), ready(dataset, dataset.test)
    found = []
    for number in range(EPOCHS):
        epoch(model, optimizer, inputs, labels, number)
        if number % 2:
            with torch.no_grad():
                found.append(float((model.eval()(unseen).argmax(1) == answers).double().mean()))
    return found


def test_the_last_block_knows_at_least_as_much_as_the_first(digits: Dataset) -> None:
    first, *_, last = accuracies(digits)
    assert last >= first > 0.5


def test_the_same_on_mnist(real: Callable[..., Dataset]) -> None:
    first, *_, last = accuracies(real("mnist"))
    assert last >= first > 0.5
