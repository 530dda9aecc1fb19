"""The roofline by hand: compute or memory, whichever is longer; fill, pieces, update, bytes."""

from dataclasses import replace

import pytest

from manyhands.graph.graph import Layer
from manyhands.machine.cluster import Accelerator
from manyhands.simulate.cost.roofline import Analytic

# 1 TFLOP/s is 1,000 operations a nanosecond, 1 GB/s one byte: times can be read off.
DEVICE = Accelerator("one", 2**30, {"fp32": 1.0, "bf16": 4.0}, 1.0, {"dense": 0.5, "conv": 0.25})
FAST = replace(DEVICE, gb_per_s=1e9)  # memory never counts
BATCH = 4


def dense(flops: int = 8_000_000) -> Layer:
    return Layer("a", "dense", "Linear", ((BATCH, 10),), (BATCH, 20), ((20, 10), (20,)), flops, ())


RELU = Layer("b", "pointwise", "ReLU", ((BATCH, 20),), (BATCH, 20), (), 1_000_000, (0,))


def test_compute_bound() -> None:
    costs = Analytic(FAST, BATCH)
    assert costs.layer(dense(), 4, 1, 1) == (16_000, 32_000)  # half of the peak; twice as much backward
    assert costs.layer(dense(), 8, 1, 1) == (32_000, 64_000)
    assert costs.layer(dense(), 4, 2, 2) == (4_000, 8_000)
    assert costs.layer(replace(dense(), kind="conv"), 4, 1, 1) == (32_000, 64_000)
    assert costs.layer(RELU, 4, 1, 1) == (2_000, 2_000)  # efficiency of what is not said: a half
    assert replace(costs, precision="bf16").layer(dense(), 4, 1, 1) == (4_000, 8_000)
    assert replace(costs, slowdown=3.0).layer(dense(), 4, 1, 1) == (48_000, 96_000)


def test_a_precision_that_is_not_told_has_the_best_rate() -> None:
    costs = Analytic(replace(FAST, tflop_per_s={"fp32": 1.0}), BATCH, "bf16")
    assert costs.layer(dense(), 4, 1, 1) == (16_000, 32_000)
    assert costs.activation_bytes() == 2
    assert Analytic(FAST, BATCH, "fp64").activation_bytes() == 8


def test_few_samples_do_not_fill_a_device() -> None:
    costs = Analytic(replace(FAST, half_batch=4), BATCH)
    assert costs.layer(dense(), 4, 1, 1)[0] == 2 * 16_000
    assert costs.layer(dense(), 12, 1, 1)[0] == 3 * 16_000 * 16 / 12


def test_memory_bound() -> None:
    costs = Analytic(DEVICE, BATCH)
    moved = 4 * (40 + 80) + 4 * 220  # inputs, results, weights
    assert costs.layer(dense(0), 4, 1, 1) == (moved, 2 * moved)
    assert costs.layer(dense(0), 4, 2, 1) == (4 * (40 + 40) + 4 * 110, 2 * (4 * (40 + 40) + 4 * 110))
    assert replace(costs, precision="bf16").layer(dense(0), 4, 1, 1)[0] == 2 * (40 + 80) + 4 * 220


def test_members_add_up() -> None:
    both = replace(dense(), members=(dense(), RELU), operation="Linear + ReLU")
    assert Analytic(FAST, BATCH).layer(both, 4, 1, 1) == (18_000, 34_000)
    assert Analytic(FAST, BATCH).layer(both, 4, 1, 2) == (10_000, 18_000)  # the second takes the sum
    assert Analytic(FAST, BATCH).memory(both, 4, 1, 1, 1) == 4 * (80 + 80) + 4 * 220 * 4


@pytest.mark.parametrize(
    ("layer", "times"),
    [
        (replace(dense(), weights=()), 2),  # a second call of the same weights
        (replace(dense(), weights=(), frozen=220), 1),  # no gradient of the weights is asked for
        (replace(dense(), weights=(), kind="attention", groups=2), 2),
        (replace(dense(), weights=(), kind="pool"), 1),
    ],
)
def test_what_the_backward_pass_does_twice(layer: Layer, times: int) -> None:
    forward, backward = Analytic(FAST, BATCH).layer(layer, 4, 1, 1)
    assert backward == times * forward


@pytest.mark.parametrize(("optimizer", "touched", "kept"), [("sgd", 3, 2), ("adam", 7, 4), ("lamb", 7, 4)])
def test_the_update_reads_and_writes_what_the_optimizer_keeps(optimizer: str, touched: int, kept: int) -> None:
    costs = Analytic(DEVICE, BATCH, optimizer=optimizer)
    assert costs.update(100) == 4 * 100 * touched
    assert costs.memory(dense(), 4, 1, 1, 1) == 4 * 80 + 4 * 220 * kept
    assert costs.memory(dense(), 2, 2, 1, 3) == 4 * 20 * 3 + 4 * 110 * kept
    assert costs.memory(dense(), 2, 1, 2, 3) == 4 * 40 * 3 + 4 * 110 * kept  # of a sum each has all


def test_frozen_weights_are_held_without_gradient_or_state() -> None:
    costs = Analytic(DEVICE, BATCH)
    assert costs.memory(replace(dense(), weights=(), frozen=220), 4, 1, 1, 1) == 4 * 80 + 4 * 220
    assert costs.layer(replace(dense(0), weights=(), frozen=220), 4, 1, 1)[0] == 4 * (40 + 80) + 4 * 220


def test_links_decide_what_a_reduction_costs() -> None:
    assert Analytic(DEVICE, BATCH).sync(dense(), 4, 1) is None
