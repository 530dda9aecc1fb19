"""Evaluate: loss and accuracy of a model over a feed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from manyhands.data.feed import Feed
from manyhands.engine.step import Trainee, trying_kernels


@dataclass(frozen=True)
class Score:
    """Means over the samples."""

    loss: float
    accuracy: float


def evaluate(trainee: Trainee, feed: Feed, told: Callable[[int], None] = lambda samples: None) -> Score:
    """Score the model in evaluation mode; sums stay on the device until the end."""
    trainee.model.eval()
    loss = torch.zeros((), device=trainee.device, dtype=torch.float64)
    right = torch.zeros((), device=trainee.device, dtype=torch.int64)
    count = 0
    with torch.inference_mode(), trying_kernels(False):
        for batch in feed.epoch(0):
            inputs, labels = feed.prepare(batch)
            with trainee.autocast():
                outputs = trainee.model(inputs).float()
            loss += trainee.loss(outputs, labels) * len(labels)
            right += (outputs.argmax(1) == labels).sum()
            count += len(labels)
            told(len(labels))
    trainee.model.train()
    return Score(loss.item() / count, right.item() / count)
