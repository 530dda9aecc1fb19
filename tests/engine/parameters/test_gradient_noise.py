"""The noise scale: without bias where the truth is known, the same over ranks and micro-batches, and free when off."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine import noise_cases
from manyhands.comm.ranks.rank_group import Team
from manyhands.data.sampler import Share
from manyhands.engine.parameters.gradient_noise import Noise, moments, scale_of
from numerics.cases import steps

GRADIENT = torch.linspace(-1, 1, 200, dtype=torch.float64)
DEVIATION = torch.linspace(0.5, 3, 200, dtype=torch.float64)
SQUARE, TRACE = float(GRADIENT.square().sum()), float(DEVIATION.square().sum())


def drawn(samples: int, generator: torch.Generator) -> Tensor:
    """The mean gradient of some samples."""
    noise = torch.randn(samples, len(GRADIENT), generator=generator, dtype=torch.float64)
    return GRADIENT + (DEVIATION * noise).mean(0)


def stepped(noise: Noise, parameter: nn.Parameter, sizes: list[int], generator: torch.Generator) -> None:
    """One step whose micro-batches have these sizes."""
    whole = sum(sizes)
    noise.begin(Share(whole, whole, whole), sizes)
    parameter.grad = None
    for size in sizes:
        part = drawn(max(size, 1), generator) * size / whole
        parameter.grad = part if parameter.grad is None else parameter.grad + part
        noise.portion(size)
    assert parameter.grad is not None
    noise.whole([parameter.grad])


def test_expected_squares_give_the_truth() -> None:
    small, big = (SQUARE + TRACE / samples for samples in (4, 64))
    assert moments(small, big, 4, 64) == pytest.approx((SQUARE, TRACE))


@pytest.mark.parametrize("sizes", [[8, 8], [3, 13], [4, 4, 0, 8], [1] * 16])
def test_no_bias_whatever_the_sizes(sizes: list[int]) -> None:
    """The mean of 1,500 steps that are not smoothed."""
    generator, found = torch.Generator().manual_seed(0), []
    parameter = nn.Parameter(torch.zeros(len(GRADIENT), dtype=torch.float64))
    for _ in range(1500):
        noise = Noise([parameter], Team(), torch.device("cpu"))
        stepped(noise, parameter, sizes, generator)
        parts = sum(size > 0 for size in sizes)
        found.append(torch.stack(moments(noise.squares[0], noise.squares[1], 16 / parts, 16.0)))
    square, trace = torch.stack(found).mean(0).tolist()
    assert trace == pytest.approx(TRACE, rel=0.02)
    assert square == pytest.approx(SQUARE, rel=0.1)


def test_smoothed_before_the_ratio() -> None:
    """Single steps are far off, most even below zero; the smoothed ratio is near the truth."""
    generator = torch.Generator().manual_seed(1)
    parameter = nn.Parameter(torch.zeros(len(GRADIENT), dtype=torch.float64))
    noise = Noise([parameter], Team(), torch.device("cpu"))
    assert noise.read() is None
    for _ in range(500):
        stepped(noise, parameter, [16, 16], generator)
    assert noise.read() == pytest.approx(TRACE / SQUARE, rel=0.25)
    assert noise.read() is None  # nothing new


def test_only_every_so_many_steps() -> None:
    generator = torch.Generator().manual_seed(2)
    parameter = nn.Parameter(torch.zeros(len(GRADIENT), dtype=torch.float64))
    noise = Noise([parameter], Team(), torch.device("cpu"), every=3)
    for _ in range(7):
        stepped(noise, parameter, [16, 16], generator)
    assert noise.smooth[2] == 3
    assert not noise.before


def test_one_part_says_nothing() -> None:
    generator = torch.Generator().manual_seed(3)
    parameter = nn.Parameter(torch.zeros(len(GRADIENT), dtype=torch.float64))
    noise = Noise([parameter], Team(), torch.device("cpu"))
    stepped(noise, parameter, [16], generator)
    stepped(noise, parameter, [16, 0], generator)
    assert noise.smooth.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("gradient", "noise", "told"), [(2, 6, 3), (2, -1, 0), (0, 6, None), (-1, 6, None), (float("inf"), 1, None)]
)
def test_the_ratio(gradient: float, noise: float, told: float | None) -> None:
    assert scale_of(gradient, noise) == told


@pytest.mark.parametrize(
    ("backend", "world", "options", "changes"),
    [
        ("shm", 2, "", {}),
        ("shm", 3, "", {"train__clip": 0.01}),
        ("gloo", 2, "", {"train__clip": 0.01}),
        ("gloo", 3, ",shard=optimizer", {}),
    ],
)
def test_ranks_are_micro_batches(pools: Any, backend: str, world: int, options: str, changes: dict[str, Any]) -> None:
    pools(backend).run("engine.noise_cases:as_micro_batches", backend, world, options, changes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_captured_step_measures_the_same() -> None:
    """Two epochs of four full batches and a small one: the fourth step of a size is captured."""
    eager, captured = (noise_cases.on_a_gpu(capture) for capture in ("off", "on"))
    assert captured == pytest.approx(eager, rel=1e-6)
    assert captured[2] == 10


def test_training_is_left_alone() -> None:
    """The weights are the same to the bit, looked at or not."""
    one = steps("convnet", "serial,precision=fp32", Team(), train__accumulate=2)
    config, dataset = noise_cases.ordered("convnet", train__accumulate=2)
    plan = noise_cases.parse(f"serial,precision=fp32,device=cpu,{noise_cases.REST}")
    other = noise_cases.assemble(config, plan, dataset)
    other.context.strategy.watch(Noise(other.context.model.parameters(), Team(), torch.device("cpu")))
    noise_cases.trained(other)
    weights = other.context.strategy.weights()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in one.context.strategy.weights().items())
    assert one.context.strategy.noise is None
