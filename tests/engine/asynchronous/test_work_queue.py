"""Work that is handed out: every part of every batch is done once, whoever dies, and complete batches are told."""

import random

import pytest

from manyhands.engine.asynchronous.work_queue import Agenda, Item, horizon


def test_each_worker_has_a_part_of_its_own() -> None:
    agenda = Agenda(2, own=True)
    agenda.plan(epoch=1, first=3, last=5, step=13)
    assert agenda.take(1) == Item(1, 3, 1, 13)
    agenda.done(1, 0.5)
    assert agenda.take(1) == Item(1, 4, 1, 14)
    assert agenda.take(0) == Item(1, 3, 0, 13)
    assert not agenda.complete
    agenda.done(0, 0.25)
    assert list(agenda.complete) == [0.75]
    assert not agenda.at_rest


def test_whoever_comes_takes_what_is_next_and_what_is_lost_comes_again() -> None:
    agenda = Agenda(2, own=False)
    agenda.plan(epoch=0, first=0, last=1, step=0)
    assert agenda.take(1) == Item(0, 0, 0, 0)
    assert agenda.take(0) == Item(0, 0, 1, 0)
    assert agenda.take(2) is None
    agenda.lost(1)
    assert agenda.take(2) == Item(0, 0, 0, 0)
    agenda.done(2, 1.0)
    agenda.done(0, 2.0)
    assert agenda.at_rest
    assert list(agenda.complete) == [3.0]
    agenda.lost(0)
    assert agenda.take(0) is None


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_done_twice_when_workers_come_and_go(seed: int) -> None:
    chance, agenda, done = random.Random(seed), Agenda(4, own=False), []
    agenda.plan(epoch=0, first=0, last=30, step=0)
    while not agenda.at_rest:
        worker = chance.randrange(6)
        if worker not in agenda.doing:
            agenda.take(worker)
        elif chance.random() < 0.2:
            agenda.lost(worker)
        else:
            done.append(agenda.doing[worker])
            agenda.done(worker, 1.0)
    assert len(done) == len(set(done)) == 120
    assert list(agenda.complete) == [4.0] * 30


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
