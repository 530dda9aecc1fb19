"""Every feed gives the same samples in the same batches, whatever its kind and the number of ranks."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from manyhands.data.dataloader_feed import LoaderFeed
from manyhands.data.dataset import Dataset
from manyhands.data.feeds import DeviceFeed, Feed, HostFeed, ahead
from manyhands.data.load import load
from manyhands.data.normalize import Normalize
from manyhands.data.sampler import Batches, epoch_order, part_of
from manyhands.data.schema import DataOptions
from manyhands.errors import ConfigError

CPU = torch.device("cpu")


@pytest.fixture
def images() -> Dataset:
    return load("synthetic:3x8x8,4", DataOptions(size=101))


def feeds(dataset: Dataset, seed: int | None, batch: int = 16) -> list[Feed]:
    batches, normalize = Batches(len(dataset.train), batch, seed), Normalize(dataset.schema)
    return [
        DeviceFeed(dataset.train, batches, normalize, CPU),
        HostFeed(dataset.train, batches, normalize, CPU),
        LoaderFeed(dataset.train, batches, dataset.schema, CPU, workers=0),
    ]


def batches_of(feed: Feed, epoch: int, start: int = 0) -> list[tuple[Tensor, Tensor]]:
    return [feed.prepare(batch) for batch in feed.epoch(epoch, start)]


def test_all_feeds_agree(images: Dataset) -> None:
    device, host, loader = (batches_of(feed, epoch=3) for feed in feeds(images, seed=5))
    assert len(device) == len(host) == len(loader) == 6
    for (x, y), *others in zip(device, host, loader, strict=True):
        for other_x, other_y in others:
            assert torch.equal(y, other_y)
            torch.testing.assert_close(x, other_x, rtol=0, atol=1e-5)


def test_a_later_start_is_the_same_epoch(images: Dataset) -> None:
    for feed in feeds(images, seed=5):
        whole, rest = batches_of(feed, 1), batches_of(feed, 1, start=2)
        assert all(torch.equal(a[0], b[0]) for a, b in zip(whole[2:], rest, strict=True))


def test_epochs_and_seeds_differ(images: Dataset) -> None:
    one, other_seed, *_ = feeds(images, seed=1)[0], feeds(images, seed=2)[0]
    labels = [[y.tolist() for _, y in batches_of(feed, epoch)] for feed, epoch in ((one, 0), (one, 1), (other_seed, 0))]
    assert labels[0] != labels[1]
    assert labels[0] != labels[2]


@given(st.integers(1, 300), st.integers(1, 64), st.integers(1, 8))
def test_ranks_share_a_batch(length: int, size: int, world: int) -> None:
    """The ranks' parts, one after the other, are the batch of a single rank; their sizes differ by one at most."""
    alone = list(Batches(length, size, 7).epoch(2))
    ranks = [Batches(length, size, 7, rank, world) for rank in range(world)]
    together = [list(rank.epoch(2)) for rank in ranks]
    for number, batch in enumerate(alone):
        shares = [rank.share(number) for rank in ranks]
        parts = [rank[number][: share.mine] for rank, share in zip(together, shares, strict=True)]
        assert np.array_equal(np.concatenate(parts), batch)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert {share.most for share in shares} == {max(map(len, parts))}
        assert sum(share.weight for share in shares) == pytest.approx(1)
        assert all(len(rank[number]) == max(share.mine, 1) for rank, share in zip(together, shares, strict=True))
    assert sorted(np.concatenate(alone)) == list(range(length))


@given(st.integers(1, 300), st.lists(st.integers(1, 64), min_size=1, max_size=4), st.integers(1, 4))
def test_every_epoch_may_have_batches_of_its_own_size(length: int, sizes: list[int], world: int) -> None:
    """All samples once an epoch, shared by ranks as when the size never changes, and from any batch on."""
    ranks = [Batches(length, sizes, 7, rank, world) for rank in range(world)]
    for epoch in range(len(sizes) + 1):
        fixed = [Batches(length, sizes[min(epoch, len(sizes) - 1)], 7, rank, world) for rank in range(world)]
        for one, other in zip(ranks, fixed, strict=True):
            batches, wanted = list(one.epoch(epoch)), list(other.epoch(epoch))
            assert one.count(epoch) == len(batches) == len(wanted) == len(other)
            assert all(np.array_equal(*pair) for pair in zip(batches, wanted, strict=True))
            numbers = range(len(batches))
            assert [one.share(number, epoch) for number in numbers] == [other.share(number) for number in numbers]
            assert len(list(one.epoch(epoch, start=len(batches) // 2))) == len(batches) - len(batches) // 2


def test_order_is_a_function_of_seed_and_epoch() -> None:
    assert np.array_equal(epoch_order(100, 1, 2), epoch_order(100, 1, 2))
    assert not np.array_equal(epoch_order(100, 1, 2), epoch_order(100, 2, 1))
    assert part_of(np.arange(10), 3, 4).tolist() == [8, 9]


def test_an_error_in_the_thread_is_raised_here() -> None:
    def items() -> Iterator[tuple[Tensor, ...]]:
        yield (torch.ones(1),)
        raise OSError("disk gone")

    feed = ahead(items(), 2)
    next(feed)
    with pytest.raises(OSError, match="disk gone"):
        next(feed)


def test_the_thread_ends_with_its_reader() -> None:
    feed = ahead(((torch.ones(1),) for _ in range(1000)), 2)
    next(feed)
    feed.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name == "feed"]


def test_normalized_images_have_mean_0_and_deviation_1(images: Dataset) -> None:
    x = Normalize(images.schema)(torch.from_numpy(images.train.inputs[images.train.index]))
    assert x.mean().item() == pytest.approx(0, abs=0.15)
    assert x.std().item() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("augment", ["shift", "flip", "shift+flip"])
def test_augmentation_moves_pixels_in_training_only(images: Dataset, augment: str) -> None:
    torch.manual_seed(0)
    rows = torch.from_numpy(images.train.inputs[images.train.index[:32]])
    normalize, plain = Normalize(images.schema, augment), Normalize(images.schema)
    changed = normalize(rows)
    assert not torch.equal(changed, plain(rows))
    assert torch.equal(normalize.eval()(rows), plain(rows))
    if augment == "flip":
        for image, original in zip(changed, plain(rows), strict=True):
            assert torch.equal(image, original) or torch.equal(image, original.flip(2))


def test_augmentation_is_checked(images: Dataset) -> None:
    with pytest.raises(ConfigError, match="did you mean 'flip'"):
        Normalize(images.schema, "flp")
