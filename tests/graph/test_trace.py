"""Graphs of unchanged modules: layers, parameters, work, what follows what, and what is left as it was."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyhands.errors import ModelError
from manyhands.graph.graph import Graph, Layer
from manyhands.graph.trace import trace
from manyhands.models.zoo import Options, Shapes, build, names

IMAGE, TEXT = Shapes(5, (3, 64, 64)), Shapes(4, (7,), 50)
ZOO: dict[str, tuple[str, Shapes, Options]] = {
    "mlp": ("mlp", Shapes(3, (13,)), Options(batch_norm=True)),
    "convnet": ("convnet", Shapes(10, (1, 28, 28)), Options()),
    "alexnet": ("alexnet", IMAGE, Options(width=0.25)),
    "alexnet-6x6": ("alexnet", IMAGE, Options(width=0.25, head="6x6")),
    "resnet18": ("resnet18", IMAGE, Options(width=0.25)),
    "resnet50": ("resnet50", IMAGE, Options(width=0.25)),
    "locally": ("locally", Shapes(3, (2, 15, 12)), Options()),
    "treenet": ("treenet", Shapes(3, (2, 15, 12)), Options(width=0.25)),
    "stacking": ("stacking", Shapes(3, (2, 15, 12)), Options(width=0.25)),
    "rnn": ("text", TEXT, Options(cell="rnn", depth=2)),
    "gru": ("text", TEXT, Options(cell="gru")),
    "lstm": ("text", TEXT, Options(cell="lstm")),
    "bag": ("text", TEXT, Options(cell="bag", depth=2)),
    "transformer-text": ("transformer", TEXT, Options()),
    "transformer-image": ("transformer", Shapes(4, (3, 28, 28)), Options()),
}


class Model(nn.Module):
    """A forward pass in a line."""

    def __init__(self, forward: Callable[["Model", Tensor], object], **modules: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.does = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor) -> object:
        return self.does(self, x)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def traced_zoo(case: str, samples: int = 2) -> tuple[nn.Module, Graph]:
    name, shapes, options = ZOO[case]
    model = build(name, shapes, options)
    whole = shapes.vocabulary is not None
    inputs = torch.randint(1, 50, (samples, *shapes.shape)) if whole else torch.randn(samples, *shapes.shape)
    return model, trace(model, inputs)


def layer(graph: Graph, name: str) -> Layer:
    return next(each for each in graph.layers if each.name == name)


def sources(graph: Graph, name: str) -> list[str]:
    return [graph.layers[number].name for number in layer(graph, name).after]


def test_the_cases_are_the_zoo() -> None:
    assert {name for name, _, _ in ZOO.values()} == set(names())


@pytest.mark.parametrize("case", ZOO)
def test_zoo(case: str) -> None:
    model, graph = traced_zoo(case)
    assert graph.traced == "export"
    assert graph.batch == 2
    assert graph.parameters == parameters(model)
    called = {name for name, module in model.named_modules() if not any(module.children())}
    assert called - {each.name for each in graph.layers} <= {
        name for name, module in model.named_modules() if isinstance(module, nn.Identity)
    }
    for number, each in enumerate(graph.layers):
        assert each.inputs, each.name
        assert all(source < number for source in each.after)
        assert [graph.layers[source].output for source in each.after] == list(each.inputs) or not each.after
    (scores,) = graph.layers[-1].after
    assert graph.layers[-1].name == "loss"
    assert graph.layers[scores].output == (2, ZOO[case][1].classes)


@pytest.mark.parametrize("case", ["convnet", "gru", "transformer-text", "resnet18"])
def test_all_but_the_weights_grows_with_the_batch(case: str) -> None:
    small, large = traced_zoo(case, 2)[1], traced_zoo(case, 6)[1]
    assert large.flops == 3 * small.flops
    assert [each.results for each in large.layers] == [3 * each.results for each in small.layers]
    assert [each.weights for each in large.layers] == [each.weights for each in small.layers]


def test_alexnet_is_a_chain_with_the_published_work() -> None:
    model = build("alexnet", Shapes(1000, (3, 224, 224)))
    graph = trace(model, torch.zeros(1, 3, 224, 224))
    assert graph.is_chain
    by_hand = {
        "conv1": 2 * 64 * 55 * 55 * 3 * 11 * 11,
        "conv2": 2 * 192 * 27 * 27 * 64 * 5 * 5,
        "conv3": 2 * 384 * 13 * 13 * 192 * 3 * 3,
        "conv4": 2 * 256 * 13 * 13 * 384 * 3 * 3,
        "conv5": 2 * 256 * 13 * 13 * 256 * 3 * 3,
        "dense_a": 2 * 9216 * 4096,
        "dense_b": 2 * 4096 * 4096,
        "output": 2 * 4096 * 1000,
    }
    assert {name: layer(graph, name).flops for name in by_hand} == by_hand
    small = sum(each.flops for each in graph.layers) - sum(by_hand.values())
    assert 0 < small < 0.01 * sum(by_hand.values())
    assert layer(graph, "conv1").weights == ((64, 3, 11, 11), (64,))
    assert layer(graph, "act1").flops == 64 * 55 * 55
    assert [each.kind for each in graph.layers[:5]] == ["pointwise", "conv", "pointwise", "pool", "pointwise"]


def test_work_of_sequences() -> None:
    lstm = layer(traced_zoo("lstm")[1], "recurrent")
    assert lstm.kind == "recurrent"
    assert lstm.flops == 2 * 2 * 7 * 4 * (128 * 128 + 128 * 128)  # product and sum, samples, positions, gates
    rnn = layer(traced_zoo("rnn")[1], "recurrent")
    assert rnn.flops == 2 * 2 * 7 * 4 * 128 * 128  # two layers of two matrices
    graph = traced_zoo("transformer-text")[1]
    heads = layer(graph, "layers.0.attention.heads")
    assert heads.kind == "attention"
    assert heads.groups == 4
    assert heads.flops - 2 * 2 * 2 * 4 * 7 * 7 * 32 == pytest.approx(0, abs=20 * 2 * 7 * 128)  # and what rearranges
    assert layer(graph, "layers.0.attention.query").flops == 2 * 2 * 7 * 128 * 128


def test_a_bidirectional_layer_works_twice() -> None:
    one, two = nn.LSTM(8, 8, batch_first=True), nn.LSTM(8, 8, batch_first=True, bidirectional=True)
    graphs = [trace(Model(lambda self, x: self.a(x)[0], a=each), torch.randn(2, 5, 8)) for each in (one, two)]
    assert [graph.layers[0].flops for graph in graphs] == [2 * 2 * 5 * 4 * 128, 2 * 2 * 2 * 5 * 4 * 128]


@pytest.mark.parametrize(
    ("module", "shape", "flops", "groups"),
    [
        (nn.Conv1d(4, 6, 3), (4, 10), 2 * 6 * 8 * 4 * 3, 1),
        (nn.Conv2d(4, 6, 3, groups=2), (4, 5, 5), 2 * 6 * 3 * 3 * 2 * 9, 2),
        (nn.Conv2d(4, 4, 3, groups=4, padding=1), (4, 5, 5), 2 * 4 * 25 * 9, 4),
        (nn.Conv3d(2, 3, 2), (2, 3, 3, 3), 2 * 3 * 8 * 2 * 8, 1),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), (4, 5, 5), 2 * 4 * 25 * 3 * 9, 2),
        (nn.Linear(4, 6), (5, 4), 2 * 5 * 6 * 4, 1),
        (nn.Embedding(9, 6), (5,), 5 * 6, 1),
        (nn.MaxPool2d(2), (4, 6, 6), 4 * 9, 1),
    ],
    ids=lambda value: str(value).partition("(")[0] if isinstance(value, nn.Module) else "",
)
def test_work_of_modules_exported_and_watched(
    module: nn.Module, shape: tuple[int, ...], flops: int, groups: int
) -> None:
    inputs = torch.ones(2, *shape, dtype=torch.long if isinstance(module, nn.Embedding) else torch.float32)
    for how, model in (("export", nn.Sequential(module)), ("modules", Model(depends_on_data, first=module))):
        graph = trace(model, inputs)
        assert graph.traced == how
        assert graph.layers[0].flops == 2 * flops
        assert graph.layers[0].groups == groups
        assert graph.layers[0].inputs == ((2, *shape),)
        assert graph.parameters == parameters(module)
        assert (
            graph.layers[0].kind == {"C": "conv", "L": "dense", "E": "embedding", "M": "pool"}[type(module).__name__[0]]
        )


def depends_on_data(self: Model, x: Tensor) -> object:
    y = self.first(x)
    return y if float(y.sum()) > 1e9 else y + 1


@pytest.mark.parametrize(
    ("does", "flops"),
    [
        (lambda self, x: x @ self.w, 2 * 2 * 3 * 6 * 4),
        (lambda self, x: torch.einsum("bld,de->ble", x, self.w), 2 * 2 * 3 * 6 * 4),
        (lambda self, x: torch.einsum("...d,de->...e", x, self.w), 2 * 2 * 3 * 6 * 4),
        (lambda self, x: torch.bmm(x, x.transpose(1, 2)), 2 * 2 * 3 * 3 * 4),
        (lambda self, x: torch.addmm(self.w[0], x[:, 0], self.w), 2 * 2 * 6 * 4),
        (lambda self, x: F.scaled_dot_product_attention(x, x, x), 4 * 2 * 3 * 3 * 4),
    ],
)
def test_work_of_functions(does: Callable[[Model, Tensor], object], flops: int) -> None:
    graph = trace(Model(does, w=nn.Parameter(torch.randn(4, 6)), other=nn.Identity()), torch.randn(2, 3, 4))
    assert graph.traced == "export"
    assert max(each.flops for each in graph.layers) == flops


def test_a_residual_block_joins_two_branches() -> None:
    _, graph = traced_zoo("resnet18")
    first, second = "stage1_block1", "stage2_block1"
    assert sources(graph, f"{first}.add") == [f"{first}.branch.norm2", "act"]
    assert sources(graph, f"{second}.add") == [f"{second}.branch.norm2", f"{second}.shortcut.norm"]
    assert sources(graph, f"{second}.shortcut.conv") == sources(graph, f"{second}.branch.conv1")
    source = next(number for number, each in enumerate(graph.layers) if each.name == "act")
    assert [graph.layers[number].name for number in graph.before[source]] == [f"{first}.branch.conv1", f"{first}.add"]
    assert not graph.is_chain


def test_attention_takes_three_projections_of_one_norm() -> None:
    _, graph = traced_zoo("transformer-image")
    heads = "layer1.attention.heads"
    assert sources(graph, heads) == [f"layer1.attention.{name}" for name in ("query", "key", "value")]
    for name in ("query", "key", "value"):
        assert sources(graph, f"layer1.attention.{name}") == ["layer1.norm1"]
    assert sources(graph, "layer1.add") == ["dropout", "layer1.dropout1"]


def test_a_mask_goes_to_every_layer_that_takes_it() -> None:
    _, graph = traced_zoo("transformer-text")
    number = next(number for number, each in enumerate(graph.layers) if each.name == "real")
    taken = [graph.layers[each].name for each in graph.before[number]]
    assert taken == ["layers.0.attention.heads", "layers.1.attention.heads", "pool"]
    assert not graph.learns[number]
    assert graph.learns[number + 1]


@pytest.mark.parametrize("how", ["export", "modules"])
def test_a_module_called_twice_has_its_weights_once(how: str) -> None:
    def twice(self: Model, x: Tensor) -> object:
        y = self.a(self.a(x))
        return self.b(y) if how == "export" or float(y.sum()) < 1e9 else y

    model = Model(twice, a=nn.Linear(8, 8), b=nn.Linear(8, 3))
    graph = trace(model, torch.randn(2, 8))
    assert graph.traced == how
    assert [each.name for each in graph.layers] == ["a", "a@2", "b", "loss"]
    assert [each.parameters for each in graph.layers] == [72, 0, 27, 0]
    assert [each.flops for each in graph.layers[:2]] == [2 * 2 * 8 * 8] * 2
    assert [each.kind for each in graph.layers[:2]] == ["dense", "dense"]
    assert graph.is_chain


@pytest.mark.parametrize("how", ["export", "modules"])
def test_shared_weights_count_once(how: str) -> None:
    embedding, output = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
    output.weight = embedding.weight

    def forward(self: Model, ids: Tensor) -> object:
        y = self.embedding(ids).mean(1)
        return self.output(y) if how == "export" or float(y.sum()) < 1e9 else y

    graph = trace(Model(forward, embedding=embedding, output=output), torch.ones(2, 4, dtype=torch.long))
    assert graph.traced == how
    assert graph.parameters == 80
    assert layer(graph, "embedding").weights == ((10, 8),)
    assert layer(graph, "output").weights == ()


def test_what_is_made_of_weights_belongs_to_the_layer_that_takes_it() -> None:
    model = Model(
        lambda self, x: self.b(self.a(x) + self.positions(torch.arange(3))),
        a=nn.utils.parametrizations.weight_norm(nn.Linear(4, 8)),
        positions=nn.Embedding(3, 8),
        b=nn.Linear(8, 2),
    )
    graph = trace(model, torch.randn(2, 3, 4))
    assert graph.traced == "export"
    assert graph.is_chain
    assert graph.parameters == parameters(model)
    added = next(each for each in graph.layers if each.operation == "add")
    assert added.weights == ((3, 8),)


def data_dependent(self: Model, x: Tensor) -> object:
    y = self.a(x)
    if y.sum() > 0:
        y = F.relu(y)
    return self.b(y)


def with_item(self: Model, x: Tensor) -> object:
    return self.b(self.a(x) * x.mean().item())


def without_gradient(self: Model, x: Tensor) -> object:
    with torch.no_grad():
        y = self.a(x)
    return self.b(y)


@pytest.mark.parametrize("does", [data_dependent, with_item, without_gradient])
def test_what_cannot_be_exported_is_watched_as_a_chain(
    does: Callable[[Model, Tensor], object], capfd: pytest.CaptureFixture[str]
) -> None:
    model = Model(does, a=nn.Linear(8, 6), b=nn.Linear(6, 3))
    graph = trace(model, torch.randn(2, 8))
    assert graph.traced == "modules"
    assert graph.is_chain
    assert [each.name for each in graph.layers] == ["a", "b", "loss"]
    assert [each.inputs for each in graph.layers] == [((2, 8),), ((2, 6),), ((2, 3),)]
    assert [each.flops for each in graph.layers] == [2 * 2 * 48, 2 * 2 * 18, 5 * 2 * 3]
    assert graph.parameters == parameters(model)
    assert capfd.readouterr() == ("", "")  # what torch says of it is of no use to anybody


def test_watched_modules_that_use_the_weights_of_others_have_them() -> None:
    def forward(self: Model, x: Tensor) -> object:
        y = self.attention(x, x, x, need_weights=False)[0].mean(1) * self.scale
        return self.b(y) if float(y.sum()) < 1e9 else y

    attention = nn.MultiheadAttention(8, 2, batch_first=True)  # takes the weights of the module that it holds
    model = Model(forward, attention=attention, b=nn.Linear(8, 3), scale=nn.Parameter(torch.ones(8)))
    graph = trace(model, torch.randn(2, 4, 8))
    assert graph.traced == "modules"
    assert graph.parameters == parameters(model)
    assert layer(graph, "attention").parameters == parameters(attention)
    assert layer(graph, "attention").flops >= 2 * 2 * 4 * 4 * 64


def test_a_batch_may_be_converted_first() -> None:
    model = Model(lambda self, x: self.a(x.float() / 255), a=nn.Linear(8, 3))
    graph = trace(model, torch.ones(2, 8, dtype=torch.uint8))
    assert graph.traced == "export"
    assert [each.name for each in graph.layers] == ["to", "div", "a", "loss"]


def test_the_loss_follows_what_the_model_returns() -> None:
    model = Model(lambda self, x: (self.a(x), self.b(x))[0], a=nn.Linear(8, 3), b=nn.Linear(8, 5))
    graph = trace(model, torch.randn(2, 8))
    assert graph.layers[-1].inputs == ((2, 3),)
    assert sources(graph, "loss") == ["a"]


@pytest.mark.parametrize("how", ["export", "modules"])
def test_the_model_is_left_as_it_was(how: str) -> None:
    def forward(self: Model, x: Tensor) -> object:
        y = self.dropout(self.norm(self.a(x)))
        return self.b(y) if how == "export" or float(y.sum()) < 1e9 else y

    model = Model(forward, a=nn.Linear(8, 8), norm=nn.BatchNorm1d(8), dropout=nn.Dropout(), b=nn.Linear(8, 3))
    model.norm.eval()  # as a frozen norm is kept while the others train
    model.a.weight.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    random = torch.get_rng_state()
    assert trace(model, torch.randn(2, 8, generator=torch.Generator().manual_seed(0))).traced == how
    assert [module.training for module in model.modules()] == modes == [True, True, False, True, True]
    assert not model.a.weight.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("how", ["export", "modules"])
def test_frozen_layers_have_no_backward_pass(how: str) -> None:
    def forward(self: Model, x: Tensor) -> object:
        y = F.relu(self.b(self.a(x)))
        return self.c(y) if how == "export" or float(y.sum()) < 1e9 else y

    model = Model(forward, a=nn.Linear(8, 6), b=nn.Linear(6, 6), c=nn.Linear(6, 3))
    model.a.requires_grad_(False)
    model.b.weight.requires_grad_(False)
    graph = trace(model, torch.randn(2, 8))
    assert graph.traced == how
    learned = {each.name: (each.parameters, each.frozen) for each in graph.layers}
    assert {name: learned[name] for name in "abc"} == {"a": (0, 54), "b": (6, 36), "c": (21, 0)}
    learns = {each.name: learns for each, learns in zip(graph.layers, graph.learns, strict=True)}
    assert [learns[name] for name in ("a", "b", "c", "loss")] == [False, True, True, True]


def test_leaves_that_do_several_things_are_not_taken_for_one() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Parameter(torch.randn(6, 8)), nn.Parameter(torch.randn(3, 6))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(F.relu(F.linear(x, self.one)), self.two)

    graph = trace(nn.Sequential(Two()), torch.randn(2, 8))
    assert [(each.name, each.kind) for each in graph.layers] == [("0", "other"), ("loss", "loss")]
    assert graph.layers[0].flops == 2 * 2 * 48 + 2 * 6 + 2 * 2 * 18
    assert trace(Two(), torch.randn(2, 8)).parameters == 66


def test_a_product_of_two_results_has_no_weights_to_cut() -> None:
    model = Model(lambda self, x: self.a(x) @ self.b(x).transpose(1, 2), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    graph = trace(model, torch.randn(2, 3, 4))
    assert layer(graph, "matmul").kind == "other"
    assert sources(graph, "matmul") == ["a", "transpose"]


def test_errors_are_one_line() -> None:
    with pytest.raises(ModelError, match=r"^Linear does not take samples of shape \(5,\): mat1 and mat2 .*$"):
        trace(nn.Linear(8, 3), torch.randn(2, 5))
    with pytest.raises(ModelError, match=r"^Model has no layers to split: it must compute something of its input$"):
        trace(Model(lambda self, x: x, unused=nn.ReLU()), torch.randn(2, 5))
