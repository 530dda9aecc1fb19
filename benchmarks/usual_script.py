"""The usual PyTorch script for MNIST, as tutorials write it; imports nothing of ours.

It keeps the plan `plain` honest: benchmarks/single_device.py runs both, interleaved. The operations of
torchvision's ToTensor and Normalize are spelled out; with --torchvision its own classes are used, whose
wrappers cost a little more.

usage: usual_script.py FOLDER [--batch-size B] [--epochs E] [--workers W] [--seed S] [--size N] [--torchvision]

Under torchrun it is the usual script with DistributedDataParallel; B is then the batch of all ranks together.
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

MEAN, STD = (0.1307,), (0.3081,)


def read_idx(path: Path) -> NDArray[Any]:
    content = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(content, ">i4", content[3], 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


class ToTensor:
    def __call__(self, picture: Image.Image) -> Tensor:
        pixels = torch.from_numpy(np.array(picture, np.uint8, copy=True))
        pixels = pixels.view(picture.size[1], picture.size[0], len(picture.getbands()))
        return pixels.permute((2, 0, 1)).contiguous().to(dtype=torch.float32).div(255)


class Normalize:
    def __call__(self, image: Tensor) -> Tensor:
        image = image.clone()
        mean, std = torch.as_tensor(MEAN, dtype=image.dtype), torch.as_tensor(STD, dtype=image.dtype)
        if (std == 0).any():
            raise ValueError("std is zero")
        return image.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


def transforms(torchvision: bool) -> Callable[[Image.Image], Tensor]:
    if torchvision:
        from torchvision import transforms as vision

        composed: Callable[[Image.Image], Tensor] = vision.Compose([vision.ToTensor(), vision.Normalize(MEAN, STD)])
        return composed
    first, second = ToTensor(), Normalize()
    return lambda picture: second(first(picture))


class Mnist(Dataset[tuple[Tensor, int]]):
    def __init__(self, folder: Path, part: str, transform: Callable[[Image.Image], Tensor]) -> None:
        self.images = torch.from_numpy(read_idx(folder / f"{part}-images-idx3-ubyte.gz").copy())
        self.labels = torch.from_numpy(read_idx(folder / f"{part}-labels-idx1-ubyte.gz").astype(np.int64))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, label = self.images[index], int(self.labels[index])
        return self.transform(Image.fromarray(image.numpy())), label


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        result: Tensor = self.fc2(self.dropout2(F.relu(self.fc1(x))))
        return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=57_000, help="training samples: manyhands holds 5 %% back")
    parser.add_argument("--torchvision", action="store_true")
    options = parser.parse_args()

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = transforms(options.torchvision)
    train = Subset(Mnist(options.folder, "train", transform), range(options.size))
    test = Mnist(options.folder, "t10k", transform)
    sampler: DistributedSampler[Any] | None = DistributedSampler(train, seed=options.seed) if world > 1 else None
    train_loader = DataLoader(
        train,
        batch_size=options.batch_size // world,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=options.workers,
    )
    test_loader = DataLoader(test, batch_size=options.batch_size, num_workers=options.workers)
    model: nn.Module = Net().to(device)
    if world > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    steady_samples, steady_seconds = 0, 0.0
    for epoch in range(options.epochs):
        model.train()
        if sampler is not None:
            sampler.set_epoch(epoch)
        start = None
        for step, (inputs, labels) in enumerate(train_loader):
            if (epoch == 0 and step == 10) or (epoch > 0 and step == 0):  # the first steps of all are left out
                if device.type == "cuda":
                    torch.cuda.synchronize()
                start = time.perf_counter()
            inputs, labels = inputs.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step % 100 == 0:
                loss.item()
            if start is not None:
                steady_samples += len(labels) * world
        if device.type == "cuda":
            torch.cuda.synchronize()
        assert start is not None, "too few steps"
        steady_seconds += time.perf_counter() - start

    model.eval()
    right = 0
    with torch.no_grad():
        for inputs, labels in test_loader:
            right += int((model(inputs.to(device)).argmax(1) == labels.to(device)).sum())
    if world > 1:
        dist.destroy_process_group()
    if rank > 0:
        return
    print(
        json.dumps(
            {
                "samples_per_s": steady_samples / steady_seconds,
                "test_accuracy": right / len(test),
                "device": device.type,
            }
        )
    )


if __name__ == "__main__":
    main()
