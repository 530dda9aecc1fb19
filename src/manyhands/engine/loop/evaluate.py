"""Evaluate: loss and accuracy of a model over a feed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from manyhands.data.feeds import Feed
from manyhands.engine.loop.context import TrainContext


@dataclass(frozen=True)
class Score:
    """Means over the samples."""

    loss: float
    accuracy: float


def evaluate(context: TrainContext, feed: Feed, told: Callable[[int], None] = lambda samples: None) -> Score:
    """Score the model in evaluation mode, each rank on its share; sums stay on the device until the end."""
    context.model.eval()
    sums = torch.zeros(3, device=context.device, dtype=torch.float64)  # of losses, of right answers, of samples
    with context.strategy.reading(), torch.inference_mode():
        for number, batch in enumerate(feed.epoch(0)):
            share = feed.share(number)
            outputs, labels, given = context.answers(feed, batch)
            outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
            mine = min(given.counts, share.mine)
            if mine:
                sums[0] += context.loss(outputs, labels) * mine
                sums[1] += (outputs.argmax(1) == labels)[:mine].sum()
                sums[2] += mine
            told(share.whole)
    context.model.train()
    loss, right, count = context.team.sum(sums).tolist()
    return Score(loss / count, right / count)
