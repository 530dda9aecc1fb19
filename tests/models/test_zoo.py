"""Every family: sizes, gradients, seeds, options, tracing, and what it refuses."""

import math

import pytest
import torch
from torch import Tensor, fx, nn

from manyhands.errors import ModelError
from manyhands.models import zoo
from manyhands.models.zoo import Options, Shapes, build, default_lr, names

# Small enough for a laptop: (name, shapes, width).
CASES: dict[str, tuple[str, Shapes, float]] = {
    "mlp-image": ("mlp", Shapes(3, (1, 9, 7)), 1.0),
    "mlp-table": ("mlp", Shapes(2, (13,)), 1.0),
    "convnet": ("convnet", Shapes(3, (3, 17, 11)), 0.5),
    "alexnet": ("alexnet", Shapes(3, (3, 37, 41)), 0.05),
    "resnet18": ("resnet18", Shapes(3, (1, 19, 23)), 0.1),
    "resnet50": ("resnet50", Shapes(3, (3, 20, 18)), 0.1),
    "locally": ("locally", Shapes(3, (2, 15, 12)), 1.0),
    "treenet": ("treenet", Shapes(3, (2, 9, 12)), 0.5),
    "stacking": ("stacking", Shapes(3, (2, 5, 4)), 0.5),
    "text": ("text", Shapes(4, (7,), 50), 0.25),
    "transformer-text": ("transformer", Shapes(4, (7,), 50), 0.5),
    "transformer-image": ("transformer", Shapes(4, (3, 14, 21)), 0.5),
}


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def samples(shapes: Shapes, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    if shapes.vocabulary is not None:
        return torch.randint(0, shapes.vocabulary, (count, *shapes.shape), generator=generator)
    return torch.randn((count, *shapes.shape), generator=generator)


@pytest.fixture(params=CASES, name="case")
def _case(request: pytest.FixtureRequest) -> tuple[str, Shapes, float]:
    return CASES[request.param]


def test_the_cases_are_the_zoo() -> None:
    assert {name for name, _, _ in CASES.values()} == set(names())


@pytest.mark.parametrize(
    ("name", "shapes", "options", "count"),
    [
        ("mlp", Shapes(10, (1, 28, 28)), Options(), 784 * 256 + 256 + 256 * 256 + 256 + 2570),
        ("mlp", Shapes(2, (108,)), Options(depth=0), 218),
        ("convnet", Shapes(10, (1, 28, 28)), Options(), 1_199_882),
        ("alexnet", Shapes(1000, (3, 224, 224)), Options(), 61_100_840),
        ("alexnet", Shapes(10, (3, 56, 56)), Options(head="6x6"), 57_044_810),
        ("alexnet", Shapes(1000, (3, 224, 224)), Options(head="6x6"), 61_100_840),
        ("resnet18", Shapes(1000, (3, 224, 224)), Options(), 11_689_512),
        ("resnet50", Shapes(1000, (3, 224, 224)), Options(), 25_557_032),
    ],
)
def test_published_sizes(name: str, shapes: Shapes, options: Options, count: int) -> None:
    with torch.device("meta"):
        assert parameters(build(name, shapes, options)) == count


@pytest.mark.parametrize("count", [1, 3])
def test_forward_and_backward(case: tuple[str, Shapes, float], count: int) -> None:
    name, shapes, width = case
    model = build(name, shapes, Options(width=width))
    scores = model(samples(shapes, count))
    assert scores.shape == (count, shapes.classes)
    assert scores.isfinite().all()
    nn.functional.cross_entropy(scores, torch.zeros(count, dtype=torch.long)).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    assert all(parameter.grad.abs().sum() > 0 for parameter in list(model.parameters())[-2:])


def test_it_learns(case: tuple[str, Shapes, float]) -> None:
    """A batch is learned by heart; what could not learn would keep its first loss."""
    name, shapes, width = case
    model = build(name, shapes, Options(width=width))
    inputs, labels = samples(shapes, 6), torch.arange(6) % shapes.classes
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for _ in range(60):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert min(losses[-5:]) < 0.6 * losses[0]


def test_the_seed_draws_the_weights(case: tuple[str, Shapes, float]) -> None:
    name, shapes, width = case
    before = torch.random.get_rng_state()
    one, same, other = (build(name, shapes, Options(width=width), seed).state_dict() for seed in (5, 5, 6))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


def test_width_and_depth_grow_it(case: tuple[str, Shapes, float]) -> None:
    name, shapes, width = case
    sizes = [
        parameters(build(name, shapes, options))
        for options in (Options(width=width), Options(width=2 * width), Options(width=width, depth=1))
    ]
    deeper = parameters(build(name, shapes, Options(width=width, depth=4 if name != "locally" else 2)))
    assert sizes[1] > 1.3 * sizes[0]
    assert deeper != sizes[0]
    assert deeper != sizes[2]


def test_it_can_be_traced(case: tuple[str, Shapes, float]) -> None:
    name, shapes, width = case
    model = build(name, shapes, Options(width=width)).eval()
    inputs = samples(shapes, 3)
    assert torch.equal(fx.symbolic_trace(model)(inputs), model(inputs))


# torch itself warns so about its recurrent layers.
@pytest.mark.filterwarnings("ignore:The tensor attributes self.recurrent._flat_weights:UserWarning")
@pytest.mark.parametrize(
    "key", ["convnet", "locally", "treenet", "stacking", "text", "transformer-text", "transformer-image"]
)
def test_it_can_be_exported(key: str) -> None:
    name, shapes, width = CASES[key]
    model = build(name, shapes, Options(width=width)).eval()
    inputs = samples(shapes, 3)
    exported = torch.export.export(model, (inputs,)).module()
    assert torch.allclose(exported(inputs), model(inputs), atol=1e-6)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm", "bag"])
def test_padding_changes_nothing(cell: str) -> None:
    """A text has the same scores however much padding follows it, and an empty one has scores at all."""
    shapes = Shapes(4, (9,), 50)
    model = build("text", shapes, Options(cell=cell)).eval()
    words = samples(shapes, 2).clamp(min=1)[:, :5]
    padded = nn.functional.pad(words, (0, 4))
    assert torch.allclose(model(words), model(padded), atol=1e-6)
    assert model(torch.zeros(1, 9, dtype=torch.long)).isfinite().all()


def test_a_transformer_does_not_look_at_padding() -> None:
    shapes = Shapes(4, (9,), 50)
    model = build("transformer", shapes).eval()
    ids = samples(shapes, 2).clamp(min=1)
    ids[:, 5:] = 0
    before = model(ids)
    with torch.no_grad():
        model.get_submodule("positions").weight[5:] += 10.0
    assert torch.allclose(model(ids), before, atol=1e-5)
    assert model(torch.zeros(1, 9, dtype=torch.long)).isfinite().all()


def test_alexnet_keeps_its_padding_as_layers() -> None:
    model = build("alexnet", Shapes(10, (3, 56, 56)), Options(width=0.05, batch_norm=True))
    kinds = [type(layer).__name__ for layer in model.children()]
    assert [kinds.count(each) for each in ("ZeroPad2d", "Conv2d", "BatchNorm2d", "MaxPool2d", "Linear")] == [
        5,
        5,
        5,
        3,
        3,
    ]
    assert all(layer.padding == (0, 0) for layer in model.children() if isinstance(layer, nn.Conv2d))


@pytest.mark.parametrize(("pixels", "stride", "left"), [(224, 4, 6), (128, 4, 3), (56, 2, 2), (28, 1, 1)])
def test_alexnet_keeps_something_of_any_image(pixels: int, stride: int, left: int) -> None:
    with torch.device("meta"):
        model = build("alexnet", Shapes(10, (3, pixels, pixels)))
        assert model.get_submodule("conv1").stride == (stride, stride)
        assert model.get_submodule("dense_a").in_features == 256 * left * left
        assert model(torch.empty(2, 3, pixels, pixels)).shape == (2, 10)


@pytest.mark.parametrize(("pixels", "pools"), [(64, False), (65, True)])
def test_resnet_has_a_small_stem_for_small_images(pixels: int, pools: bool) -> None:
    model = build("resnet18", Shapes(10, (3, pixels, pixels)), Options(width=0.1))
    assert ("stem_pool" in dict(model.named_children())) is pools
    assert model.get_submodule("stage1_block1.branch.norm2").weight.abs().sum() == 0


@pytest.mark.parametrize("name", ["mlp", "convnet", "alexnet", "locally"])
def test_activations_are_chosen_by_name(name: str) -> None:
    kinds = {"sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "leaky_relu": nn.LeakyReLU}
    for activation, kind in kinds.items():
        model = build(name, Shapes(10, (1, 28, 28)), Options(width=0.1, activation=activation))
        layers = list(model.children())
        assert any(isinstance(layer, kind) for layer in layers)
        assert not any(isinstance(layer, nn.ReLU) for layer in layers)


def test_dropout_and_batch_norm_are_options() -> None:
    model = build("convnet", Shapes(10, (1, 28, 28)), Options(dropout=0.1, batch_norm=True))
    assert [layer.p for layer in model.children() if isinstance(layer, nn.Dropout)] == [0.1, 0.1]
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in model.children()) == 2
    usual = build("convnet", Shapes(10, (1, 28, 28)))
    assert [layer.p for layer in usual.children() if isinstance(layer, nn.Dropout)] == [0.25, 0.5]


def test_every_rate_is_usable() -> None:
    assert all(0 < default_lr(name) < 0.1 for name in names())
    assert default_lr("model.py:make") == 1e-3


IMAGE, TOKENS, TABLE = Shapes(10, (1, 28, 28)), Shapes(20, (24,), 1000), Shapes(2, (100,))


@pytest.mark.parametrize(
    ("name", "shapes", "options", "said"),
    [
        ("conv", IMAGE, Options(), "did you mean 'convnet'.*file.py:factory"),
        ("convnet", TOKENS, Options(), "takes image data, this is text: use one of text, transformer"),
        ("text", IMAGE, Options(), "takes text data, this is image: use one of mlp"),
        ("transformer", TABLE, Options(), "this is table: use one of mlp"),
        ("mlp", TOKENS, Options(), "this is text"),
        ("mlp", Shapes(10, (28, 28)), Options(), r"shape \(28, 28\)"),
        ("mlp", Shapes(0, (5,)), Options(), "0 classes"),
        (
            "convnet",
            Shapes(10, (1, 5, 9)),
            Options(),
            "leaves nothing of 1x5x9 images: it takes at least 6x6",
        ),
        ("alexnet", Shapes(10, (1, 20, 90)), Options(), "at least 21x21"),
        ("locally", Shapes(10, (1, 7, 7)), Options(), "at least 8x8"),
        ("treenet", Shapes(10, (1, 3, 9)), Options(), "at least 4x4"),
        ("treenet", IMAGE, Options(depth=0), "needs at least 1"),
        ("stacking", TOKENS, Options(), "takes image or table data"),
        ("transformer", Shapes(10, (1, 3, 9)), Options(), "at least 4x4"),
        ("mlp", IMAGE, Options(head="6x6"), "mlp has no model.head .*: it has width, depth"),
        ("resnet18", IMAGE, Options(activation="tanh"), "it has width, depth"),
        ("alexnet", IMAGE, Options(head="7x7"), "unknown head '7x7'"),
        ("mlp", IMAGE, Options(activation="rel"), "did you mean 'relu'"),
        ("text", TOKENS, Options(cell="gr"), "did you mean 'gru'"),
        ("mlp", IMAGE, Options(width=0.0), "model.width=0.0"),
        ("mlp", IMAGE, Options(width=math.nan), "model.width=nan"),
        ("mlp", IMAGE, Options(dropout=1.0), "model.dropout=1.0"),
        ("mlp", IMAGE, Options(depth=-1), "model.depth=-1"),
        ("convnet", IMAGE, Options(depth=0), "needs at least 1"),
    ],
)
def test_misfits_are_refused_in_one_line(name: str, shapes: Shapes, options: Options, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        build(name, shapes, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["convnet", "alexnet", "locally", "treenet", "transformer"])
def test_the_least_size_that_an_error_names_can_be_built(name: str) -> None:
    with pytest.raises(ModelError, match="at least") as caught:
        build(name, Shapes(10, (1, 3, 3)))
    least = int(str(caught.value).split("at least ")[1].split("x")[0])
    assert build(name, Shapes(10, (1, least, least)))(torch.zeros(2, 1, least, least)).shape == (2, 10)
    with pytest.raises(ModelError):
        build(name, Shapes(10, (1, least - 1, least - 1)))


def test_every_option_of_a_family_is_one_of_the_configuration() -> None:
    keys = set(Options.__dataclass_fields__)
    assert all(set(entry.options) <= keys for entry in zoo.ZOO.values())
