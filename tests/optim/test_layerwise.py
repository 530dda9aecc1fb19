"""LARS and LAMB do what the equations of their papers say, layer by layer, however they are computed."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manyhands.optim import cpu_kernels, layerwise
from manyhands.optim.lamb import LAMB
from manyhands.optim.lars import LARS
from manyhands.optim.layerwise import Trusting

Array = NDArray[np.float64]
Reference = Callable[..., list[Array]]
SHAPES = [(6, 5), (6,), (4, 3, 3, 3), (4,), (1, 1), ()]
STEPS = 20


def lars(weights: list[Array], steps: Sequence[Sequence[Array]], lr: float, decay: float) -> list[Array]:
    """You et al. 2017, algorithm 1; one dimension: the coefficient alone, no decay."""
    momentum, coefficient = 0.9, 0.001
    speeds = [np.zeros_like(w) for w in weights]
    for gradients in steps:
        for number, (w, g) in enumerate(zip(weights, gradients, strict=True)):
            beta, local = decay if w.ndim > 1 else 0.0, coefficient
            norm_w, norm_g = math.sqrt((w * w).sum()), math.sqrt((g * g).sum())
            if w.ndim > 1 and norm_w > 0 and norm_g + beta * norm_w > 0:
                local = coefficient * norm_w / (norm_g + beta * norm_w)
            speeds[number] = momentum * speeds[number] + lr * local * (g + beta * w)
            weights[number] = w - speeds[number]
    return weights


def lamb(weights: list[Array], steps: Sequence[Sequence[Array]], lr: float, decay: float) -> list[Array]:
    """You et al. 2019, algorithm 2; one dimension: no ratio, no decay."""
    beta1, beta2, eps = 0.9, 0.999, 1e-6
    m, v = ([np.zeros_like(w) for w in weights] for _ in range(2))
    for t, gradients in enumerate(steps, 1):
        for number, (w, g) in enumerate(zip(weights, gradients, strict=True)):
            m[number] = beta1 * m[number] + (1 - beta1) * g
            v[number] = beta2 * v[number] + (1 - beta2) * g * g
            r = m[number] / (1 - beta1**t) / (np.sqrt(v[number] / (1 - beta2**t)) + eps)
            change = r + (decay if w.ndim > 1 else 0.0) * w
            norm_w, norm_u = math.sqrt((w * w).sum()), math.sqrt((change * change).sum())
            ratio = norm_w / norm_u if w.ndim > 1 and norm_w > 0 and norm_u > 0 else 1.0
            weights[number] = w - lr * ratio * change
    return weights


CASES = [pytest.param(LARS, lars, 5.0, id="lars"), pytest.param(LAMB, lamb, 0.01, id="lamb")]


def drawn(*more: tuple[int, ...], seed: int = 0) -> tuple[list[Array], list[list[Array]]]:
    """Weights, and the gradients of every step; a layer of zeros, and one that has no gradient in some steps."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=shape) * 0.3 for shape in [*SHAPES, *more, (3, 2), (3, 2)]]
    weights[-1] = np.zeros((3, 2))
    steps = [[rng.normal(size=w.shape) * 10.0 ** rng.integers(-3, 2) for w in weights] for _ in range(STEPS)]
    for gradients in steps[::3]:
        gradients[-2] = np.zeros((3, 2))
    return [np.asarray(w) for w in weights], [[np.asarray(g) for g in gradients] for gradients in steps]


def stepped(
    parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, steps: Sequence[Sequence[Any]]
) -> list[nn.Parameter]:
    for gradients in steps:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            own = torch.as_tensor(gradient, dtype=parameter.dtype)
            parameter.grad = torch.empty_like(parameter).copy_(own)
        optimizer.step()
    return parameters


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("kind", "reference", "lr"), CASES)
def test_equals_the_papers_equations(
    kind: type[Trusting], reference: Reference, lr: float, fused: bool, decay: float
) -> None:
    weights, steps = drawn()
    parameters = [nn.Parameter(torch.tensor(w)) for w in weights]
    optimizer: Any = kind(parameters, lr=lr, weight_decay=decay, fused=fused)  # type: ignore[call-arg]
    stepped(parameters, optimizer, steps)
    wanted = reference(weights, steps, lr, decay)
    for parameter, w in zip(parameters, wanted, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), w, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("threads", "shared"), [(1, 10), (3, 10), (3, 1000)])
@pytest.mark.parametrize(("kind", "reference", "lr"), CASES)
def test_threads(
    monkeypatch: pytest.MonkeyPatch, kind: type[Trusting], reference: Reference, lr: float, threads: int, shared: int
) -> None:
    """Large layers are shared by all, small ones dealt out."""
    monkeypatch.setattr(layerwise, "SHARED", shared)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    test_equals_the_papers_equations(kind, reference, lr, True, 0.05)


@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_more_elements_than_a_page(kind: type[Trusting]) -> None:
    """The compiled passes against torch's operations, over rows of several blocks and a rest."""
    generator = torch.Generator().manual_seed(0)
    start, *gradients = (torch.randn(3, cpu_kernels.PAGE + 5, generator=generator) for _ in range(4))
    ends = []
    for fused in (False, True):
        parameter = nn.Parameter(start.clone())
        stepped([parameter], kind([parameter], lr=0.1, fused=fused), [[each] for each in gradients])  # type: ignore[call-arg]
        ends.append(parameter.detach())
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize(("kind", "reference", "lr"), CASES)
def test_blocks_on_a_gpu(
    kind: type[Trusting], reference: Reference, lr: float, even: bool, offset: int, decay: float
) -> None:
    """In fp32, over layers of several blocks too, wherever in memory they begin, and whether by fours or not."""
    weights, steps = drawn((3, 5001), (8, 700), (9000,))
    if even:
        kept = [number for number, w in enumerate(weights) if w.size % 4 == 0]
        weights, steps = [weights[i] for i in kept], [[gradients[i] for i in kept] for gradients in steps]
    parameters = []
    for w in weights:
        place = torch.empty(w.size + offset, device="cuda")[offset:].view(w.shape)
        parameters.append(nn.Parameter(place.copy_(torch.tensor(w))))
    optimizer: Any = kind(parameters, lr=lr, weight_decay=decay, fused=True)  # type: ignore[call-arg]
    assert layerwise.walkers(parameters) == "blocks"
    stepped(parameters, optimizer, steps)
    wanted = reference(weights, steps, lr, decay)
    for parameter, w in zip(parameters, wanted, strict=True):
        assert np.linalg.norm(parameter.detach().cpu().numpy() - w) <= 1e-5 * np.linalg.norm(w)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("shared", [1, 1 << 21])
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_threads_of_torch_or_our_own(
    kind: type[Trusting], threads: int, shared: int, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several layers in fp32, shared by all threads or dealt out, against torch's operations."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(7, cpu_kernels.PAGE), (3, 5), (40,), (1, 2)]
    start, *gradients = ([torch.randn(shape, generator=generator) for shape in shapes] for _ in range(4))
    monkeypatch.setattr(layerwise, "SHARED", shared)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    if own:
        monkeypatch.setattr(cpu_kernels, "_parallel", lambda: cpu_kernels._beside)
    ends = []
    for fused in (False, True):
        parameters = [nn.Parameter(each.clone()) for each in start]
        stepped(parameters, kind(parameters, lr=0.1, weight_decay=0.01, fused=fused), gradients)  # type: ignore[call-arg]
        ends.append([each.detach() for each in parameters])
    for mine, theirs in zip(ends[1], ends[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_what_is_not_a_number_is_seen(kind: type[Trusting], fused: bool) -> None:
    """The loop watches weights for it."""
    parameter = nn.Parameter(torch.ones(8, 8))
    gradient = torch.ones(8, 8)
    gradient[3, 3] = math.nan
    stepped([parameter], kind([parameter], lr=0.1, fused=fused), [[gradient]])  # type: ignore[call-arg]
    assert parameter[3, 3].isnan()


def test_autograd_sees_that_weights_have_changed() -> None:
    parameter = nn.Parameter(torch.ones(2, 2))
    (parameter * parameter).sum().backward()
    later = (parameter * parameter).sum()
    LARS([parameter], fused=True).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        later.backward()


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("kind", "reference", "lr"), CASES)
def test_other_types(
    kind: type[Trusting], reference: Reference, lr: float, fused: bool, dtype: torch.dtype, limit: float
) -> None:
    weights, steps = drawn(seed=1)
    parameters = [nn.Parameter(torch.tensor(w, dtype=dtype)) for w in weights]
    stepped(parameters, kind(parameters, lr=lr, weight_decay=0.05, fused=fused), steps)  # type: ignore[call-arg]
    for parameter, w in zip(parameters, reference(weights, steps, lr, 0.05), strict=True):
        assert parameter.dtype == dtype
        far = np.linalg.norm(parameter.detach().double().numpy() - w) / max(np.linalg.norm(w), 1e-3)
        assert far < limit


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_any_order_in_memory(kind: type[Trusting], fused: bool) -> None:
    """Channels last, gaps between rows, and a gradient that lies otherwise than its weight."""

    def parameters(laid_out: Callable[[Tensor], Tensor]) -> list[nn.Parameter]:
        generator = torch.Generator().manual_seed(0)
        return [nn.Parameter(laid_out(torch.randn(4, 3, 2, 2, generator=generator, dtype=torch.float64)))]

    def with_gaps(tensor: Tensor) -> Tensor:
        wide = torch.zeros(4, 3, 2, 4, dtype=torch.float64)
        wide[..., :2] = tensor
        return wide[..., :2]

    generator = torch.Generator().manual_seed(1)
    steps = [[torch.randn(4, 3, 2, 2, generator=generator, dtype=torch.float64)] for _ in range(3)]
    ends = []
    for laid_out in (lambda x: x, lambda x: x.to(memory_format=torch.channels_last), with_gaps):
        own = parameters(laid_out)
        optimizer = kind(own, lr=0.1, fused=fused)  # type: ignore[call-arg]
        for (gradient,) in steps:
            own[0].grad = gradient.clone()  # fused LAMB uses it up
            optimizer.step()
        ends.append(own[0].detach())
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_a_loaded_state_may_lie_otherwise(kind: type[Trusting]) -> None:
    """torch's own load_state_dict keeps the order in which the other's state lay."""
    weights, steps = drawn()
    plain = [nn.Parameter(torch.tensor(weights[2]))]
    gradients = [[each[2]] for each in steps]
    before = kind(plain, lr=0.1, fused=True)  # type: ignore[call-arg]
    stepped(plain, before, gradients[:10])
    turned = [nn.Parameter(plain[0].detach().clone().to(memory_format=torch.channels_last))]
    after = kind(turned, lr=0.1, fused=True)  # type: ignore[call-arg]
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    stepped(plain, before, gradients[10:])
    stepped(turned, after, gradients[10:])
    torch.testing.assert_close(turned[0], plain[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("shared", [layerwise.SHARED, 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_known_of_weights_that_nobody_else_writes_is_the_same_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, threads: int, shared: int
) -> None:
    """And what autograd sees changed is not known."""
    monkeypatch.setattr(layerwise, "SHARED", shared)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    sizes = [(1, 1), (3, 7), (2, cpu_kernels.PAGE), (5, cpu_kernels.PAGE + 3), (64, 2 * cpu_kernels.PAGE + 1)]
    ends = []
    for alone in (False, True):
        generator = torch.Generator().manual_seed(0)
        own = [nn.Parameter(torch.randn(size, generator=generator)) for size in sizes]
        optimizer = LARS(own, lr=0.1, weight_decay=1e-4, fused=True)
        optimizer.alone = alone
        for step in range(6):
            stepped(own, optimizer, [[torch.randn(size, generator=generator).numpy() for size in sizes]])
            assert all((optimizer._known(each) is not None) == alone for each in own)
            if step == 3:
                with torch.no_grad():
                    own[1].mul_(2)
                assert optimizer._known(own[1]) is None
        ends.append([each.detach() for each in own])
    assert all(torch.equal(*pair) for pair in zip(*ends, strict=True))


def test_the_size_of_a_gradient_does_not_matter() -> None:
    """What a trust ratio is for: a layer moves by a share of its own norm."""
    for times in (1e-3, 1.0, 1e3):
        parameter = nn.Parameter(torch.full((4, 4), 2.0, dtype=torch.float64))
        stepped([parameter], LARS([parameter], lr=1.0), [[np.full((4, 4), times)]])
        assert (2.0 - parameter).norm().item() == pytest.approx(0.001 * 8.0)
        parameter = nn.Parameter(torch.full((4, 4), 2.0, dtype=torch.float64))
        stepped([parameter], LAMB([parameter], lr=0.01), [[np.full((4, 4), times)]])
        assert (2.0 - parameter).norm().item() == pytest.approx(0.01 * 8.0)


def test_groups_of_their_own() -> None:
    """Each group of parameters by its own rate and decay, as with torch's optimizers."""
    weights, steps = drawn()
    parameters = [nn.Parameter(torch.tensor(w)) for w in weights[:3]]
    groups = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 2.0, "weight_decay": 0.1}]
    stepped(parameters, LARS(groups, lr=5.0), [each[:3] for each in steps])  # type: ignore[arg-type]
    wanted = lars(weights[:2], [each[:2] for each in steps], 5.0, 0.0)
    wanted += lars(weights[2:3], [each[2:3] for each in steps], 2.0, 0.1)
    for parameter, w in zip(parameters, wanted, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), w, rtol=1e-12)
