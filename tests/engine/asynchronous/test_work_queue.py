"""Work that is handed out: every part of every batch is done once, whoever dies, and complete batches are told."""

import random

import pytest

from manyhands.engine.asynchronous.work_queue import Item, WorkQueue, horizon


def test_each_worker_has_a_part_of_its_own() -> None:
    work_queue = WorkQueue(2, own=True)
    work_queue.plan(epoch=1, first=3, last=5, step=13)
    assert work_queue.take(1) == Item(1, 3, 1, 13)
    work_queue.done(1, 0.5)
    assert work_queue.take(1) == Item(1, 4, 1, 14)
    assert work_queue.take(0) == Item(1, 3, 0, 13)
    assert not work_queue.complete
    work_queue.done(0, 0.25)
    assert list(work_queue.complete) == [0.75]
    assert not work_queue.at_rest


def test_whoever_comes_takes_what_is_next_and_what_is_lost_comes_again() -> None:
    work_queue = WorkQueue(2, own=False)
    work_queue.plan(epoch=0, first=0, last=1, step=0)
    assert work_queue.take(1) == Item(0, 0, 0, 0)
    assert work_queue.take(0) == Item(0, 0, 1, 0)
    assert work_queue.take(2) is None
    work_queue.lost(1)
    assert work_queue.take(2) == Item(0, 0, 0, 0)
    work_queue.done(2, 1.0)
    work_queue.done(0, 2.0)
    assert work_queue.at_rest
    assert list(work_queue.complete) == [3.0]
    work_queue.lost(0)
    assert work_queue.take(0) is None


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_done_twice_when_workers_come_and_go(seed: int) -> None:
    chance, work_queue, done = random.Random(seed), WorkQueue(4, own=False), []
    work_queue.plan(epoch=0, first=0, last=30, step=0)
    while not work_queue.at_rest:
        worker = chance.randrange(6)
        if worker not in work_queue.doing:
            work_queue.take(worker)
        elif chance.random() < 0.2:
            work_queue.lost(worker)
        else:
            done.append(work_queue.doing[worker])
            work_queue.done(worker, 1.0)
    assert len(done) == len(set(done)) == 120
    assert list(work_queue.complete) == [4.0] * 30


@pytest.mark.parametrize(
    ("step", "batch", "total", "every", "count"),
    [
        (0, 0, 100, None, 10),
        (13, 3, 100, None, 7),
        (13, 3, 15, None, 2),
        (0, 0, 100, 4, 4),
        (13, 3, 100, 4, 3),
        (18, 8, 100, 4, 2),
    ],
)
def test_how_far_they_go_before_they_rest(step: int, batch: int, total: int, every: int | None, count: int) -> None:
    assert horizon(step, batch, 10, total, every) == count
