"""Weight gradients that are computed later, or beside, are those of the ordinary backward pass."""

import threading
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.modules.split_layers import defer
from manyhands.engine.modules.weight_grad_store import Threaded, WeightGradStore, overlapped_wgrad
from manyhands.models import zoo
from numerics.cases import LIMIT, distance, steps

SHAPES = {
    "mlp": zoo.Shapes(4, (1, 6, 6), None),
    "convnet": zoo.Shapes(4, (1, 12, 12), None),
    "alexnet": zoo.Shapes(4, (3, 48, 48), None),
    "resnet18": zoo.Shapes(4, (3, 16, 16), None),
    "text": zoo.Shapes(4, (12,), 50),
    "transformer": zoo.Shapes(4, (12,), 50),
}


def built(name: str) -> nn.Module:
    """Without dropout, whose masks would differ."""
    model = zoo.build(name, SHAPES[name], zoo.Options(width=0.25))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


@pytest.fixture(params=["later", "beside"])
def later(request: pytest.FixtureRequest) -> Iterator[WeightGradStore]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield WeightGradStore() if request.param == "later" else Threaded(2)
    torch.set_num_threads(before)


def deferred(model: nn.Module, later: WeightGradStore) -> nn.Module:
    copy = deepcopy(model)
    assert sum(defer(module, later) for module in copy.modules())
    return copy


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


def check_same(one: nn.Module, other: nn.Module) -> None:
    """Values, types and layouts of all gradients."""
    found, wanted = gradients(one), gradients(other)
    assert found.keys() == wanted.keys() != set()
    for name, gradient in found.items():
        assert gradient.dtype == wanted[name].dtype
        assert gradient.stride() == wanted[name].stride(), name
        far = (gradient - wanted[name]).norm() / wanted[name].norm().clamp(min=1e-12)
        assert far < 1e-6, (name, far)


def check_layer(layer: nn.Module, x: Tensor, later: WeightGradStore, **named: Any) -> None:
    """Gradients of the input and of the weights, of a layer alone."""
    apart = deferred(layer, later)
    inputs = []
    for each in (layer, apart):
        given = x.clone().requires_grad_(x.is_floating_point())
        with later:
            each(given, **named).pow(3).sum().backward()
        inputs.append(given.grad)
    check_same(apart, layer)
    if inputs[0] is not None:
        torch.testing.assert_close(inputs[1], inputs[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "bf16"), [*((name, False) for name in SHAPES), ("alexnet", True), ("transformer", True)]
)
def test_models(name: str, bf16: bool, later: WeightGradStore) -> None:
    """Two backward passes that add up, in the layout in which images are fastest."""
    shapes = SHAPES[name]
    model = built(name)
    if len(shapes.shape) == 3:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    apart = deferred(model, later)
    torch.manual_seed(1)
    for _ in range(2):
        size = (8, *shapes.shape)
        x = torch.randint(1, 50, size) if shapes.vocabulary else torch.randn(size)
        labels = torch.randint(0, 4, (8,))
        for each in (model, apart):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = functional.cross_entropy(each(x), labels)
            with later:
                loss.backward()  # type: ignore[no-untyped-call]
    assert len(later) == 0
    check_same(apart, model)


@pytest.mark.parametrize("changes", [{}, {"train__accumulate": 3, "train__clip": 0.5}], ids=str)
@pytest.mark.parametrize("backward", ["apart", "concurrent"])
@pytest.mark.parametrize("model", ["convnet", "transformer"])
def test_a_training(model: str, backward: str, changes: dict[str, object]) -> None:
    one, other = (
        steps(model, f"serial,precision=fp32,backward={each}", Team(), **changes).context.strategy.weights()
        for each in ("whole", backward)
    )
    assert max(distance(other[name], tensor) for name, tensor in one.items()) < LIMIT["fp32"]


LAYERS = [
    (nn.Linear(6, 5), (4, 6)),
    (nn.Linear(6, 5, bias=False), (4, 3, 6)),
    (nn.Linear(6, 5), (6,)),
    (nn.Conv1d(4, 6, 3, stride=2, groups=2), (3, 4, 9)),
    (nn.Conv2d(4, 6, (3, 2), padding=(1, 0), dilation=2, bias=False), (3, 4, 9, 8)),
    (nn.Conv2d(4, 4, 4, padding="same", groups=4), (3, 4, 9, 8)),
    (nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (3, 4, 9, 8)),
    (nn.Conv2d(4, 6, 3), (4, 9, 8)),
    (nn.Conv3d(2, 3, 2), (3, 2, 4, 4, 4)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (3, 4, 5, 5)),
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=str)
def test_layers(layer: nn.Module, shape: tuple[int, ...], later: WeightGradStore) -> None:
    torch.manual_seed(0)
    check_layer(deepcopy(layer), torch.randn(shape), later)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"scale_grad_by_freq": True}], ids=str)
def test_tables(options: dict[str, Any], later: WeightGradStore) -> None:
    check_layer(nn.Embedding(7, 3, **options), torch.tensor([[1, 2, 2], [6, 1, 2]]), later)


def test_an_output_size_that_is_asked_for(later: WeightGradStore) -> None:
    layer = nn.ConvTranspose2d(2, 3, 3, stride=2)
    check_layer(layer, torch.randn(2, 2, 5, 5), later, output_size=(12, 12))


def test_in_steps() -> None:
    """Weight gradients come when they are asked for, the oldest first, and the input's does not wait for them."""
    later = WeightGradStore()
    model = deferred(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Linear(2, 2)), later)
    x = torch.randn(5, 3, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None
    assert (len(later), gradients(model)) == (3, {})
    later.run(1)
    assert gradients(model).keys() == {"3.weight", "3.bias"}
    later.run()
    assert (len(later), len(gradients(model))) == (0, 6)


def test_a_weight_that_becomes_smaller(later: WeightGradStore) -> None:
    """As a layer's does that is cut (engine.sharding.sharded_layer)."""
    whole = nn.Linear(6, 4)
    part = deferred(whole, later)
    part.weight = nn.Parameter(whole.weight.detach()[:, :3].clone())
    setattr(part, "bias", None)  # noqa: B010
    x = torch.randn(5, 6)
    whole(x).pow(2).sum().backward()
    with later:
        (part(x[:, :3]) + functional.linear(x[:, 3:], whole.weight[:, 3:], whole.bias).detach()).pow(2).sum().backward()
    assert whole.weight.grad is not None
    torch.testing.assert_close(part.weight.grad, whole.weight.grad[:, :3], rtol=1e-5, atol=1e-6)


def test_an_input_by_name(later: WeightGradStore) -> None:
    model = nn.Linear(4, 4)
    apart, x = deferred(model, later), torch.randn(3, 4)
    for each in (model, apart):
        with later:
            each(input=x).pow(2).sum().backward()
    check_same(apart, model)


def test_a_layer_that_is_used_twice(later: WeightGradStore) -> None:
    model = nn.Linear(4, 4)
    apart, x = deferred(model, later), torch.randn(3, 4)
    for each in (model, apart):
        with later:
            each(each(x).tanh()).pow(2).sum().backward()
    check_same(apart, model)


def test_what_is_frozen(later: WeightGradStore) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    model[1].weight.requires_grad_(False)
    check_layer(model, torch.randn(3, 4), later)
    apart = deferred(model, later)
    with torch.no_grad():
        assert not apart(torch.randn(3, 4)).requires_grad


def test_what_is_not_as_usual_stays_as_it_is() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    later = WeightGradStore()
    for module in (Doubled(2, 2), nn.LSTM(2, 2), nn.LayerNorm(2), nn.Embedding(3, 2, max_norm=1.0)):
        assert not defer(module, later)
    made = weight_norm(nn.Linear(2, 2))
    defer(made, later)
    made(torch.randn(3, 2)).sum().backward()
    later.run()
    assert made.parametrizations.weight.original0.grad is not None


def test_a_failure_leaves_nothing(later: WeightGradStore) -> None:
    model = deferred(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), later)

    def fail(_: Tensor) -> None:
        raise ArithmeticError

    x = torch.randn(3, 2, requires_grad=True)
    x.register_hook(fail)  # type: ignore[no-untyped-call]
    with pytest.raises(ArithmeticError), later:
        model(x).sum().backward()
    assert len(later) == 0
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), later:
        later.add(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    check_layer(nn.Linear(2, 2), torch.randn(3, 2), later)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", ["convnet", "alexnet", "transformer"])
def test_beside_on_a_gpu(name: str, bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    shapes, device = SHAPES[name], torch.device("cuda")
    model = built(name).to(device)
    later = overlapped_wgrad(device)
    apart = deferred(model, later)
    size = (64, *shapes.shape)
    x = torch.randint(1, 50, size, device=device) if shapes.vocabulary else torch.randn(size, device=device)
    for _ in range(3):
        for each in (model, apart):
            with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
                loss = each(x).square().mean()
            with later:
                loss.backward()
    check_same(apart, model)


def test_a_step_that_failed_takes_nothing_of_the_next() -> None:
    """What was submitted and not begun when it failed would take the next step's work, whose gradients were lost."""
    later, weight = Threaded(2), torch.nn.Parameter(torch.zeros(1))
    begun, go = threading.Event(), threading.Event()

    def held() -> Any:
        begun.set()
        go.wait(10)
        return []

    def failing() -> None:
        with later:
            later.add(held)
            begun.wait(10)
            later.add(lambda: [(weight, torch.full((1,), 100.0))])
            go.set()
            raise ValueError("in the middle of a backward pass")

    with pytest.raises(ValueError, match="in the middle"):
        failing()
    weight.grad = None
    for step in range(1, 20):
        with later:
            later.add(lambda: [(weight, torch.ones(1))])
        assert weight.grad is not None
        assert weight.grad.item() == step
