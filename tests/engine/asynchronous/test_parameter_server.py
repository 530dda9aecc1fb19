"""A parameter server: updates are those of one device, and nobody is further ahead than allowed."""

import random
import threading
import time

import pytest
import torch
from torch import Tensor

from manyhands.engine.asynchronous.parameter_server import Server
from manyhands.engine.parameters.state_messages import told_state

SIZE, RATE = 8, 0.1


def make(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0, momentum=0.9)


def server(workers: int, staleness: int | None, adapt: bool = False) -> Server:
    served = Server(make, workers, staleness, adapt=adapt)
    head, _ = told_state({}, [])
    served.begin({**head, "version": 0}, [torch.zeros(SIZE)])
    return served


def row(value: float) -> Tensor:
    return torch.full((SIZE,), value)


def test_an_update_is_the_sum_of_all_workers_gradients() -> None:
    served = server(2, 0)
    served.push(1, 0, 0, row(2.0), RATE)
    assert served.version == 0
    served.push(0, 0, 0, row(1.0), RATE)
    version, weights = served.pull(1)
    assert version == 1
    assert torch.equal(weights, row(-0.3).mul(1))
    again = torch.zeros(SIZE, requires_grad=True)
    optimizer = torch.optim.SGD([again], lr=RATE, momentum=0.9)
    for total in (3.0, 5.0):
        again.grad = row(total)
        optimizer.step()
    served.push(0, 1, 1, row(1.0), RATE)
    served.push(1, 1, 1, row(4.0), RATE)
    torch.testing.assert_close(served.pull(2)[1], again.detach())


def test_every_push_is_an_update_where_nobody_waits() -> None:
    served = server(2, None, adapt=True)
    for version, gradient in ((0, 1.0), (0, 1.0), (0, 4.0)):  # overtaken by none, by one, by two
        served.push(0, 0, version, row(gradient), RATE)
    assert served.version == 3
    assert served.late == {0: 1, 1: 1, 2: 1}
    # Momentum: 1, then 0.9 + 1, then 0.9 * 1.9 + 4 / 2.
    torch.testing.assert_close(served.pull(99)[1], row(-RATE * (1 + 1.9 + 3.71)))


def test_a_copy_that_is_being_read_does_not_change() -> None:
    served = server(1, None)
    _, before = served.pull(0)
    served.push(0, 0, 0, row(1.0), RATE)
    assert torch.equal(before, torch.zeros(SIZE))


def bound(workers: int, staleness: int, steps: int, seed: int) -> Server:
    """Workers with delays of their own, each of which checks what it was given."""
    served, wrong = server(workers, staleness), []

    def work(worker: int) -> None:
        chance = random.Random(seed * workers + worker)
        for step in range(steps):
            version, _ = served.pull(step)
            if step - version > staleness:
                wrong.append((worker, step, version))
            if chance.random() < 0.05:
                time.sleep(chance.random() * 2e-3)
            served.push(worker, step, version, row(1e-6), RATE)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert served.version == steps
    assert max(served.late) <= staleness
    return served


@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_nobody_is_further_ahead_than_allowed(staleness: int) -> None:
    served = bound(4, staleness, 500, seed=staleness)
    if staleness:
        assert max(served.late) > 0


@pytest.mark.long
def test_nobody_is_further_ahead_than_allowed_for_long() -> None:
    bound(4, 4, 10_000, seed=1)


def test_what_is_on_its_way_is_waited_for() -> None:
    served = server(1, None)
    later = threading.Timer(0.1, lambda: served.push(0, 0, 0, row(1.0), RATE))
    later.start()
    head, (weights, *_) = served.give(1)
    later.join()
    assert torch.equal(weights, row(-RATE))
    assert head["late"] == {0: 1}


@pytest.mark.parametrize("staleness", [0, None])
def test_what_no_worker_needs_is_neither_decayed_nor_moved(staleness: int | None) -> None:
    def decaying(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1.0, weight_decay=0.1)

    served = Server(decaying, 2, staleness)
    head, _ = told_state({}, [])
    served.begin({**head, "version": 0}, [torch.ones(SIZE)])
    for step in range(3):
        for worker in range(2):
            # The second worker needs the places from 4 to 6, the first does not; 6 to 8 nobody does.
            unused = [[6, 8]] if worker else [[4, 6], [6, 8]]
            gradient = row(1.0)
            for begin, end in unused:
                gradient[begin:end] = 0
            served.push(worker, step, step, gradient, RATE, unused)
    weights = served.pull(99)[1] if staleness is None else served.pull(3)[1]
    assert torch.equal(weights[6:], torch.ones(2))
    assert (weights[:6] < 0.95).all()
    _, rows = served.give(0)
    assert all(float(each[6:].abs().sum()) == 0 for each in rows[1:])
