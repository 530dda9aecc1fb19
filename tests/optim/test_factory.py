"""One contract for every optimizer: the fast implementation does what the usual one does."""

import copy

import pytest
import torch
from torch import Tensor, nn

from manyhands.errors import ConfigError
from manyhands.optim import factory
from manyhands.optim.factory import NAMES, build, can_capture, load_state, set_lr
from manyhands.optim.options import TRUSTING, OptimOptions

CAPTURABLE = [name for name in NAMES if can_capture(name)]


def network() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 7, generator=generator) for _ in range(count)]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: list[Tensor]) -> None:
    for each in inputs:
        optimizer.zero_grad()
        model(each).square().mean().backward()
        optimizer.step()


def difference(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weight_decay", [None, 0.1])
def test_best_equals_usual(name: str, weight_decay: float | None) -> None:
    options = OptimOptions(name=name, weight_decay=weight_decay)
    usual, fast = network(), network()
    start = copy.deepcopy(usual)
    train(usual, build(usual.parameters(), options, 1e-2, best=False, device="cpu"), batches(10))
    train(fast, build(fast.parameters(), options, 1e-2, best=True, device="cpu"), batches(10))
    assert difference(usual, fast) < 1e-6
    assert difference(usual, start) > 1e-4


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TRUSTING])
def test_usual_is_what_the_usual_script_writes(name: str) -> None:
    scripts = {
        "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
        "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True),
        "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
        "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    }
    ours = build(network().parameters(), OptimOptions(name=name), 0.01, best=False, device="cpu")
    script = scripts[name](network().parameters())
    assert type(ours) is type(script)
    assert ours.defaults == script.defaults


@pytest.mark.parametrize("name", NAMES)
def test_best_is_fused_where_torch_can(name: str) -> None:
    group = build(network().parameters(), OptimOptions(name=name), 0.01, best=True, device="cpu").param_groups[0]
    assert group["foreach" if name == "rmsprop" else "fused"] is True


@pytest.mark.parametrize("name", CAPTURABLE)
def test_set_lr_of_a_tensor_rate_keeps_the_tensor(name: str) -> None:
    options = OptimOptions(name=name)
    usual, captured = network(), network()
    by_float = build(usual.parameters(), options, 1.0, best=False, device="cpu")
    by_tensor = build(captured.parameters(), options, 1.0, best=True, device="cpu", captured=True)
    held = by_tensor.param_groups[0]["lr"]
    for step, batch in enumerate(batches(6)):
        rate = 0.01 / (step + 1)
        set_lr(by_float, rate)
        set_lr(by_tensor, rate)
        assert by_float.param_groups[0]["lr"] == rate
        assert by_tensor.param_groups[0]["lr"] is held
        assert held.item() == pytest.approx(rate)
        train(usual, by_float, [batch])
        train(captured, by_tensor, [batch])
    assert difference(usual, captured) < 1e-6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("best", [False, True])
def test_state_round_trip(name: str, best: bool) -> None:
    """Five steps, saved, loaded into a fresh one, five more: as ten steps undisturbed."""
    options = OptimOptions(name=name)
    whole, first = network(), network()
    train(whole, build(whole.parameters(), options, 1e-2, best=best, device="cpu"), batches(10))
    before = build(first.parameters(), options, 1e-2, best=best, device="cpu")
    train(first, before, batches(10)[:5])
    second = copy.deepcopy(first)
    after = build(second.parameters(), options, 0.5, best=best, device="cpu")
    after.load_state_dict(before.state_dict())
    train(second, after, batches(10)[5:])
    assert difference(whole, second) == 0


@pytest.mark.parametrize("name", CAPTURABLE)
def test_load_state_keeps_the_implementation(name: str) -> None:
    """The usual run resumes with the fast optimizer, and the tensor of its rate stays the same tensor."""
    options = OptimOptions(name=name)
    whole, first = network(), network()
    train(whole, build(whole.parameters(), options, 1e-2, best=False, device="cpu"), batches(10))
    before = build(first.parameters(), options, 1e-2, best=False, device="cpu")
    train(first, before, batches(10)[:5])
    second = copy.deepcopy(first)
    after = build(second.parameters(), options, 0.5, best=True, device="cpu", captured=True)
    held, fused = after.param_groups[0]["lr"], after.param_groups[0].get("fused")
    load_state(after, before.state_dict())
    assert after.param_groups[0]["lr"] is held
    assert held.item() == pytest.approx(1e-2)
    assert after.param_groups[0].get("fused") is fused
    train(second, after, batches(10)[5:])
    assert difference(whole, second) < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_load_state_the_other_way(name: str) -> None:
    options = OptimOptions(name=name)
    model = network()
    fast = build(model.parameters(), options, 1e-2, best=True, device="cpu", captured=can_capture(name))
    train(model, fast, batches(2))
    usual = build(model.parameters(), options, 0.5, best=False, device="cpu")
    load_state(usual, fast.state_dict())
    assert usual.param_groups[0]["lr"] == pytest.approx(1e-2)
    assert not isinstance(usual.param_groups[0]["lr"], Tensor)
    assert not usual.param_groups[0].get("fused")
    train(model, usual, batches(1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("best", [False, True])
def test_frozen_parameters_stay(name: str, best: bool) -> None:
    model = network()
    next(model.parameters()).requires_grad_(False)
    start = copy.deepcopy(model)
    optimizer = build(model.parameters(), OptimOptions(name=name, weight_decay=0.1), 1e-2, best=best, device="cpu")
    train(model, optimizer, batches(2))
    assert torch.equal(next(model.parameters()), next(start.parameters()))
    assert difference(model, start) > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-6), (torch.bfloat16, 0.05)], ids=str)
def test_types(name: str, best: bool, dtype: torch.dtype, limit: float) -> None:
    """In another type the same is learned, as far as the type goes, and parameters and state keep it."""
    options = OptimOptions(name=name)
    wanted, model = network(), network().to(dtype)
    train(wanted, build(wanted.parameters(), options, 1e-2, best=best, device="cpu"), batches(10))
    optimizer = build(model.parameters(), options, 1e-2, best=best, device="cpu")
    train(model, optimizer, [batch.to(dtype) for batch in batches(10)])
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    kept = [value for state in optimizer.state.values() for key, value in state.items() if key != "step"]
    assert all(value.dtype == dtype for value in kept if isinstance(value, Tensor))
    assert difference(wanted, model.float()) < limit


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("best", [False, True])
def test_zero_gradients_move_nothing(name: str, best: bool) -> None:
    """At first; later what is left of the momentum may. Weights of zeros do not make it a division by zero."""
    model = network()
    with torch.no_grad():
        model[2].weight.zero_()
    start = copy.deepcopy(model)
    optimizer = build(model.parameters(), OptimOptions(name=name, weight_decay=0.0), 1e-2, best=best, device="cpu")
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    assert difference(model, start) == 0
    train(model, optimizer, batches(2))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert difference(model, start) > 0


def test_what_cannot_be_captured_is_refused() -> None:
    assert not can_capture("adagrad")
    assert not can_capture("nonsense")
    with pytest.raises(ConfigError, match="adagrad cannot be in a CUDA graph: use one of sgd"):
        build(network().parameters(), OptimOptions(name="adagrad"), 0.1, best=True, device="cpu", captured=True)


def test_the_names_are_those_of_the_options() -> None:
    assert tuple(factory._CLASSES) == NAMES


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", CAPTURABLE)
def test_a_captured_step_follows_set_lr(name: str) -> None:
    options = OptimOptions(name=name)
    usual, captured = network().cuda(), network().cuda()
    inputs = [batch.cuda() for batch in batches(10)]
    by_float = build(usual.parameters(), options, 1e-2, best=False, device="cuda")
    by_tensor = build(captured.parameters(), options, 1e-2, best=True, device="cuda", captured=True)
    static = inputs[0].clone()
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    for step, batch in enumerate(inputs):
        set_lr(by_float, 0.01 / (step + 1))
        set_lr(by_tensor, 0.01 / (step + 1))
        train(usual, by_float, [batch])
        static.copy_(batch)
        if step < 3:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                train(captured, by_tensor, [static])
            torch.cuda.current_stream().wait_stream(side)
            continue
        if step == 3:
            with torch.cuda.graph(graph):
                train(captured, by_tensor, [static])
        graph.replay()
    assert difference(usual, captured) < 1e-5
