"""Evaluate: loss and accuracy of a model over a feed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from manyhands.data.feeds import Feed
from manyhands.engine.loop.context import Trainee


@dataclass(frozen=True)
class Score:
    """Means over the samples."""

    loss: float
    accuracy: float


def evaluate(trainee: Trainee, feed: Feed, told: Callable[[int], None] = lambda samples: None) -> Score:
    """Score the model in evaluation mode, each rank on its share; sums stay on the device until the end."""
    trainee.model.eval()
    sums = torch.zeros(3, device=trainee.device, dtype=torch.float64)  # of losses, of right answers, of samples
    with trainee.exchange.reading(), torch.inference_mode():
        for number, batch in enumerate(feed.epoch(0)):
            share = feed.share(number)
            outputs, labels, given = trainee.answers(feed, batch)
            outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
            mine = min(given.counts, share.mine)
            if mine:
                sums[0] += trainee.loss(outputs, labels) * mine
                sums[1] += (outputs.argmax(1) == labels)[:mine].sum()
                sums[2] += mine
            told(share.whole)
    trainee.model.train()
    loss, right, count = trainee.team.sum(sums).tolist()
    return Score(loss / count, right / count)
