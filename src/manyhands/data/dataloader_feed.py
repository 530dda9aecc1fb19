"""Dataloader feed: torch's DataLoader over single samples, each transformed as torchvision's ToTensor and
Normalize do it; the feed of the `plain` reference."""

import os
from collections.abc import Iterator, Sequence
from functools import cache, partial
from multiprocessing import process

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from manyhands.data.dataset import Split
from manyhands.data.sampler import Batch, Batches, Share
from manyhands.data.schema import Schema
from manyhands.files import TemporaryFolder


class Samples(Dataset[tuple[Tensor, int]]):
    """One sample at a time, ready for the model."""

    def __init__(self, split: Split, schema: Schema) -> None:
        self.split, self.kind = split, schema.kind
        self.mean = [value / 255 for value in schema.mean]
        self.std = [value / 255 for value in schema.std]

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        row = self.split.index[number]
        label = int(self.split.labels[row])
        values = self.split.inputs[row]
        if self.kind == "image":
            picture = Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values)
            return normalized(to_tensor(picture), self.mean, self.std), label
        return torch.from_numpy(values.astype(np.int64 if self.kind == "text" else np.float32)), label


def to_tensor(picture: Image.Image) -> Tensor:
    """The operations of torchvision's ToTensor, one by one."""
    pixels = torch.from_numpy(np.array(picture, np.uint8, copy=True))
    pixels = pixels.view(picture.size[1], picture.size[0], len(picture.getbands()))
    return pixels.permute((2, 0, 1)).contiguous().to(dtype=torch.float32).div(255)


def normalized(image: Tensor, mean: list[float], std: list[float]) -> Tensor:
    """The operations of torchvision's Normalize, one by one, its check for a zero deviation included."""
    image = image.clone()
    mean_tensor = torch.as_tensor(mean, dtype=image.dtype, device=image.device)
    std_tensor = torch.as_tensor(std, dtype=image.dtype, device=image.device)
    if (std_tensor == 0).any():
        raise ValueError("a channel of the training images is constant")
    return image.sub_(mean_tensor.view(-1, 1, 1)).div_(std_tensor.view(-1, 1, 1))


@cache
def _sockets_folder() -> TemporaryFolder:
    """Where loader processes put their sockets; each would make a folder of its own, and leave it when it is ended."""
    folder = TemporaryFolder()
    process.current_process()._config.setdefault("tempdir", folder.name)  # type: ignore[attr-defined]
    return folder


def _pin(cores: Sequence[int], worker: int) -> None:
    os.sched_setaffinity(0, cores)


class LoaderFeed:
    """DataLoader with PyTorch's defaults, in our order of samples, so that every plan sees the same batches."""

    def __init__(
        self,
        split: Split,
        batches: Batches,
        schema: Schema,
        device: torch.device,
        workers: int,
        *,
        pinned: bool = False,
        cores: Sequence[int] = (),
    ) -> None:
        """`pinned`: batches lie in memory from which a GPU copies by itself. `cores`: where the processes run."""
        self.batches, self.device, self.workers = batches, device, workers
        self.pinned = pinned and device.type == "cuda"
        self.samples, self.cores = Samples(split, schema), cores

    def __len__(self) -> int:
        return len(self.batches)

    def count(self, epoch: int) -> int:
        return self.batches.count(epoch)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        if self.workers:
            _sockets_folder()
        loader = DataLoader(
            self.samples,
            batch_sampler=[rows.tolist() for rows in self.batches.epoch(number, start)],
            num_workers=self.workers,
            pin_memory=self.pinned,
            worker_init_fn=partial(_pin, self.cores) if self.cores else None,
            # A generator of its own: the loader draws a seed when it starts, and dropout must not notice.
            generator=torch.Generator(),
        )
        for inputs, labels in loader:
            yield tuple(each.to(self.device, non_blocking=self.pinned) for each in (inputs, labels))

    def share(self, number: int, epoch: int = 0) -> Share:
        return self.batches.share(number, epoch)

    def prepare(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs, labels = batch
        return inputs, labels
