"""What each rank of a user's own loop gets: its share of a batch, its copy of the model."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.strategies.sharded_loader import CURRENT_SHARE, ShardedDataLoader, cut
from manyhands.engine.strategies.weighted_ddp import WeightedDDP
from manyhands.errors import DataError, ModelError
from manyhands.plan.spec import parse


def test_a_batch_is_dealt_out_evenly() -> None:
    for size in range(1, 9):
        batch = list(range(size))
        parts, shares = zip(*(cut(batch, rank, 3) for rank in range(3)), strict=True)
        assert [row for part, share in zip(parts, shares, strict=True) for row in part[: share.mine]] == batch
        assert sum(share.weight for share in shares) == pytest.approx(1)
        assert {share.most for share in shares} == {max(share.mine for share in shares)}
        assert all(part == [0] for part, share in zip(parts, shares, strict=True) if share.mine == 0)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(3)


SAMPLES = TensorDataset(torch.zeros(3))


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(Stream()), "IterableDataset, whose samples cannot be dealt out by number: pass loader=None"),
        (DataLoader(SAMPLES, batch_size=None), "batch_size=None"),
        (DataLoader(SAMPLES, sampler=DistributedSampler(SAMPLES, 2, 0)), "DistributedSampler: leave it out"),
        ([1, 2], "loader is of class list"),
    ],
)
def test_loaders_that_cannot_be_shared(loader: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ShardedDataLoader(loader, Team())


def test_a_shared_loader_keeps_the_settings_and_tells_the_share() -> None:
    loader = DataLoader(SAMPLES, batch_size=2, collate_fn=len)
    shared = ShardedDataLoader(loader, Team())
    assert (len(shared), shared.batch_size, shared.dataset) == (2, 2, SAMPLES)
    for _ in range(2):
        seen = [
            (batch, CURRENT_SHARE.share and (CURRENT_SHARE.share.mine, CURRENT_SHARE.share.whole)) for batch in shared
        ]
        assert seen == [(2, (2, 2)), (1, (1, 1))]
        assert CURRENT_SHARE.share is None


@pytest.fixture
def group() -> Iterator[None]:
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_a_parameter_without_a_gradient_is_named() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 2), "unused": nn.Linear(2, 2)})
    model.forward = lambda x: model["used"](x)  # type: ignore[method-assign]
    spread = WeightedDDP(model, parse("data:1"), Team())
    spread(torch.ones(1, 2)).sum().backward()
    with pytest.raises(ModelError, match=r"last step: unused\.weight, unused\.bias\. .* freeze those"):
        spread(torch.ones(1, 2))


@pytest.mark.usefixtures("group")
def test_the_model_runs_in_the_precision_of_the_plan() -> None:
    spread = WeightedDDP(nn.Linear(2, 2), parse("data:1,precision=bf16"), Team())
    assert spread(torch.ones(1, 2)).dtype == torch.bfloat16
    assert WeightedDDP(nn.Linear(2, 2), parse("data:1"), Team())(torch.ones(1, 2)).dtype == torch.float32
