"""Passes: a job's batches, one pass over the training set after the other."""

from collections.abc import Iterator

from manyhands.data.feed import Batch, Share
from manyhands.runs.job import Job


def passes(job: Job, epochs: int) -> Iterator[tuple[Batch, Share]]:
    """Each batch with this rank's share of it."""
    feed = job.trainee.feed
    for epoch in range(epochs):
        if begin := getattr(job.trainee.model, "begin_epoch", None):
            begin(epoch, epochs)
        for number, batch in enumerate(feed.epoch(epoch)):
            yield batch, feed.share(number, epoch)
