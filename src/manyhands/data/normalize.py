"""Normalize: raw rows of the store to a model's input, on the device, with optional augmentation."""

import torch
from torch import Tensor, nn

from manyhands.data.schema import Schema
from manyhands.errors import ConfigError, choices

AUGMENTATIONS = ("none", "shift", "flip", "shift+flip")
SHIFT = 2  # pixels


class Normalize(nn.Module):
    """Images: uint8 [N, H, W, C] to float [N, C, H, W] with mean 0 and deviation 1; tokens: to int64.

    The result of an image keeps the store's channels-last order, which costs nothing; a model in the
    contiguous layout asks for a copy with `contiguous`. Augmentation happens in training mode only.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, schema: Schema, augment: str = "none", contiguous: bool = False) -> None:
        super().__init__()
        check_augment(augment, schema.kind)
        self.kind, self.augment, self.contiguous = schema.kind, augment, contiguous
        self.register_buffer("mean", torch.tensor(schema.mean, dtype=torch.float32))
        self.register_buffer("scale", 1 / torch.tensor(schema.std, dtype=torch.float32))

    def forward(self, rows: Tensor) -> Tensor:
        if self.kind == "text":
            return rows.long()
        if self.kind == "table":
            return rows.float()
        images = (rows.float() - self.mean) * self.scale
        if self.training and self.augment != "none":
            images = self._augmented(images)
        images = images.permute(0, 3, 1, 2)
        return images.contiguous() if self.contiguous else images

    def _augmented(self, images: Tensor) -> Tensor:
        count, height, width, _ = images.shape
        across = torch.arange(width, device=images.device).expand(count, width)
        down = torch.arange(height, device=images.device).expand(count, height)
        if "flip" in self.augment:
            flipped = torch.rand(count, 1, device=images.device) < 0.5
            across = torch.where(flipped, width - 1 - across, across)
        if "shift" in self.augment:
            # Edge pixels repeat at the border: the same as padding by replication and cropping.
            moves = torch.randint(-SHIFT, SHIFT + 1, (2, count, 1), device=images.device)
            across = (across + moves[0]).clamp(0, width - 1)
            down = (down + moves[1]).clamp(0, height - 1)
        samples = torch.arange(count, device=images.device)[:, None, None]
        return images[samples, down[:, :, None], across[:, None, :]]


def check_augment(augment: str, kind: str) -> None:
    if augment not in AUGMENTATIONS:
        raise ConfigError(f"data.augment={augment}: {choices(augment, AUGMENTATIONS)}")
    if augment != "none" and kind != "image":
        raise ConfigError(f"data.augment={augment} is for images, this set is {kind}: leave it out")
