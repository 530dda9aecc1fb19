"""Constructs: what people write between layers, each as code that keeps the shape of two dimensions of its input."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from numerics.random_models import Drawn

Code = Callable[["Drawn", Tensor], Tensor]
WIDTHS = (4, 6, 8, 12)


def _stateless(function: Callable[[Tensor], Tensor]) -> Callable[["Drawn"], Code]:
    return lambda model: lambda _, x: function(x)


def _clamp(x: Tensor) -> Tensor:
    x.clamp_(-0.5, 0.5)
    return x


def _masked(x: Tensor) -> Tensor:
    x[x < -0.1] = 0
    return x


def _sub(x: Tensor) -> Tensor:
    x.sub_(x.mean(1, keepdim=True))
    return x


def _tanh(x: Tensor) -> Tensor:
    return x.tanh_()


def _masked_fill(x: Tensor) -> Tensor:
    return x.masked_fill_(x > 0.3, 0.1)


def _data(x: Tensor) -> Tensor:
    x = x * 1.0
    x.data[:, 0] = 1
    return x


def _column(x: Tensor) -> Tensor:
    x = x * 1.0
    x[:, 1] = x[:, 1] * 2
    return x


def _view_in_place(x: Tensor) -> Tensor:
    x = x * 1.0
    half = x[:, : x.shape[1] // 2]
    half += 1
    return x


def _in_place_relu(x: Tensor) -> Tensor:
    return functional.relu(x * 1.0, inplace=True) - 0.1


def _root(x: Tensor) -> Tensor:
    return x / x.shape[1] ** 0.5


def _positions(x: Tensor) -> Tensor:
    return x + torch.arange(x.shape[1], dtype=x.dtype)


def _counted(x: Tensor) -> Tensor:
    return x * (x.numel() / len(x) / x.size(-1))


def _turned(x: Tensor) -> Tensor:
    return (x.T * 2).T


def _gate(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x.mean(1, keepdim=True))


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(dim=-1, keepdim=True)


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, 1) * 3


def _normed(x: Tensor) -> Tensor:
    return functional.normalize(x, dim=1)


def _spread(x: Tensor) -> Tensor:
    return x / (x.std(1, keepdim=True) + 1)


def _largest(x: Tensor) -> Tensor:
    return x - x.max(1, keepdim=True).values


def _pairs(x: Tensor) -> Tensor:
    one, other = x.chunk(2, 1)
    return torch.cat([one * torch.tanh(other), other], 1)


def _reversed(x: Tensor) -> Tensor:
    return torch.cat([x[:, ::2], x[:, 1::2]], dim=-1)


def _picked(x: Tensor) -> Tensor:
    return x[:, torch.arange(x.size(1) - 1, -1, -1)]


def _viewed(x: Tensor) -> Tensor:
    pairs = x.view(x.shape[0], -1, 2)
    return (pairs * pairs.sum(2, keepdim=True)).reshape(x.size(0), -1)


def _stacked(x: Tensor) -> Tensor:
    return torch.stack([x, torch.relu(x)], 0).mean(0)


def _einsum(x: Tensor) -> Tensor:
    return x + torch.einsum("bi,bj->bij", x, x).mean(2)


def _rolled(x: Tensor) -> Tensor:
    return torch.roll(x, 1, 1) + x


def _flipped(x: Tensor) -> Tensor:
    return x.flip(1) - 0.5 * x


def _summed(x: Tensor) -> Tensor:
    return x + x.cumsum(1) / 4


def _where(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.1 * x)


def _rows(x: Tensor) -> Tensor:
    return torch.stack([row * 2 for row in x.unbind(1)], 1)


def _unsqueezed(x: Tensor) -> Tensor:
    return functional.avg_pool1d(x.unsqueeze(1), 3, 1, 1).squeeze(1)


def _mixed(model: "Drawn") -> Code:
    """`layer(x) + x.mean(1)`."""
    dense = model.dense(model.rng.choice(WIDTHS))
    return lambda model, x: dense(model, x) + x.mean(1, keepdim=True)


def _residual(model: "Drawn") -> Code:
    number = model.add(nn.Linear(model.width, model.width))
    return lambda model, x: x + torch.relu(model.layers[number](x))


def _residual_in_place(model: "Drawn") -> Code:
    number = model.add(nn.Linear(model.width, model.width))

    def code(model: "Drawn", x: Tensor) -> Tensor:
        y = model.layers[number](x)
        y += x
        return y

    return code


def _view_changed_twice(model: "Drawn") -> Code:
    number = model.add(nn.Linear(model.width, model.width))

    def code(model: "Drawn", x: Tensor) -> Tensor:
        y, x = model.layers[number](x), x * 1.0
        half = x[:, : x.shape[1] // 2]
        half += 1
        y = y + x  # which keeps no x for its gradient
        half += 1
        return y + torch.relu(x) * x

    return code


def _changed_view_in_no_grad(model: "Drawn") -> Code:
    number = model.add(nn.Linear(model.width, model.width))

    def code(model: "Drawn", x: Tensor) -> Tensor:
        x = x * 1.0
        half = x[:, : x.shape[1] // 2]
        half += 1
        with torch.no_grad():
            scale = model.layers[number](x).mean(1, keepdim=True)
        return model.layers[number](x) + x * scale

    return code


def _kept_and_changed(model: "Drawn") -> Code:
    """A shortcut that an in-place change reaches, as it reaches on one device."""
    number = model.add(nn.Linear(model.width, model.width))

    def code(model: "Drawn", x: Tensor) -> Tensor:
        x = torch.tanh(x)
        kept = x.clone()
        y = model.layers[number](x)
        kept.mul_(2)
        return y + kept

    return code


def _shared(model: "Drawn") -> Code:
    """The same layer twice."""
    number = model.add(nn.Linear(model.width, model.width))
    return lambda model, x: model.layers[number](torch.tanh(model.layers[number](x)))


def _loop(model: "Drawn") -> Code:
    numbers = [model.add(nn.Linear(model.width, model.width)) for _ in range(3)]

    def code(model: "Drawn", x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for number in numbers:
            x = torch.tanh(model.layers[number](x))
            total = total + x
        return total / len(numbers)

    return code


def _excite(model: "Drawn") -> Code:
    down, up = model.add(nn.Linear(model.width, 3)), model.add(nn.Linear(3, model.width))
    return lambda model, x: x * torch.sigmoid(model.layers[up](torch.relu(model.layers[down](x))))


def _branches(model: "Drawn") -> Code:
    one, other = model.add(nn.Linear(model.width, 4)), model.add(nn.Linear(model.width, 6))
    model.width = 10
    return lambda model, x: torch.cat([model.layers[one](x), model.layers[other](x)], 1)


def _layer_norm(model: "Drawn") -> Code:
    number = model.add(nn.LayerNorm(model.width))
    return lambda model, x: model.layers[number](x)


def _batch_norm(model: "Drawn") -> Code:
    number = model.add(nn.BatchNorm1d(model.width))
    return lambda model, x: model.layers[number](x)


def _running(model: "Drawn") -> Code:
    """A statistic of the model's own."""
    model.register_buffer("seen", torch.zeros(model.width))

    def code(model: "Drawn", x: Tensor) -> Tensor:
        if model.training:
            model.seen.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            return x
        return x - 0.1 * model.seen

    return code


def _unused(model: "Drawn") -> Code:
    model.add(nn.Linear(3, 3))
    return lambda model, x: x


def _constant(model: "Drawn") -> Code:
    model.register_buffer("offset", torch.linspace(-1, 1, model.width), persistent=False)
    return lambda model, x: x + model.offset


def _gain(model: "Drawn") -> Code:
    """Parameters that are no layer's."""
    name = f"gain{len(model.names)}"
    model.register_parameter(name, nn.Parameter(torch.linspace(0.5, 1.5, model.width)))
    return lambda model, x: x * getattr(model, name)


def _matrix(model: "Drawn") -> Code:
    name = f"matrix{len(model.names)}"
    model.register_parameter(name, nn.Parameter(torch.eye(model.width) + 0.1 * torch.randn(model.width, model.width)))
    return lambda model, x: x @ getattr(model, name)


def _functional(model: "Drawn") -> Code:
    """A layer whose weight is used by hand."""
    number = model.add(nn.Linear(model.width, model.width))
    return lambda model, x: functional.linear(x, model.layers[number].weight, model.layers[number].bias)


def _tied(model: "Drawn") -> Code:
    """Back by the weight that it came by."""
    number = model.add(nn.Linear(model.width, 5))
    return lambda model, x: torch.tanh(model.layers[number](x)) @ model.layers[number].weight


def _gru(model: "Drawn") -> Code:
    number = model.add(nn.GRU(2, 2, batch_first=True))
    return lambda model, x: model.layers[number](x.reshape(len(x), -1, 2))[0].reshape(len(x), -1)


def _attention(model: "Drawn") -> Code:
    number = model.add(nn.MultiheadAttention(2, 2, batch_first=True))

    def code(model: "Drawn", x: Tensor) -> Tensor:
        y = x.reshape(len(x), -1, 2)
        return (y + model.layers[number](y, y, y, need_weights=False)[0]).flatten(1)

    return code


def _attention_by_hand(model: "Drawn") -> Code:
    number = model.add(nn.Linear(2, 6))

    def code(model: "Drawn", x: Tensor) -> Tensor:
        y = x.view(x.size(0), -1, 2)
        query, key, value = model.layers[number](y).chunk(3, -1)
        weights = torch.softmax(query @ key.transpose(1, 2) / query.shape[-1] ** 0.5, -1)
        return (y + weights @ value).reshape(x.shape)

    return code


def _convolution(model: "Drawn") -> Code:
    number = model.add(nn.Conv1d(1, 2, 3, padding=1))
    return lambda model, x: model.layers[number](x.unsqueeze(1)).mean(1)


def _group_norm(model: "Drawn") -> Code:
    number = model.add(nn.GroupNorm(2, model.width))
    return lambda model, x: model.layers[number](x)


def _embedding(model: "Drawn") -> Code:
    number = model.add(nn.Embedding(4, 3))
    return lambda model, x: x + model.layers[number]((x.detach() > 0).long() + 1).sum(-1)


def _recomputed(model: "Drawn") -> Code:
    """As people save memory."""
    number = model.add(nn.Linear(model.width, model.width))
    return lambda model, x: checkpoint(lambda y: torch.tanh(model.layers[number](y)), x, use_reentrant=False)


def _functional_norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[1:])


def _stopped(x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = x.abs().amax(1, keepdim=True) + 1
    return x / scale + x.detach() * 0.1


CONSTRUCTS: dict[str, Callable[["Drawn"], Code]] = {
    # changes in place
    "clamp_": _stateless(_clamp),
    "x[mask] = 0": _stateless(_masked),
    "sub_": _stateless(_sub),
    "tanh_": _stateless(_tanh),
    "masked_fill_": _stateless(_masked_fill),
    "x.data[:, 0] = 1": _stateless(_data),
    "x[:, 1] = y": _stateless(_column),
    "a view in place": _stateless(_view_in_place),
    "relu(inplace)": _stateless(_in_place_relu),
    "y += x": _residual_in_place,
    "kept.mul_": _kept_and_changed,
    # sizes
    "x.shape[1] ** 0.5": _stateless(_root),
    "arange(x.shape[1])": _stateless(_positions),
    "numel": _stateless(_counted),
    "x.T": _stateless(_turned),
    # over features
    "layer(x) + x.mean(1)": _mixed,
    "x * mean": _stateless(_gate),
    "x - mean": _stateless(_centred),
    "softmax": _stateless(_softmax),
    "normalize": _stateless(_normed),
    "std": _stateless(_spread),
    "max": _stateless(_largest),
    "cumsum": _stateless(_summed),
    "einsum": _stateless(_einsum),
    "layer norm": _layer_norm,
    "batch norm": _batch_norm,
    # pieces
    "chunk": _stateless(_pairs),
    "x[:, ::2]": _stateless(_reversed),
    "x[:, index]": _stateless(_picked),
    "view": _stateless(_viewed),
    "stack": _stateless(_stacked),
    "roll": _stateless(_rolled),
    "flip": _stateless(_flipped),
    "where": _stateless(_where),
    "unbind": _stateless(_rows),
    "unsqueeze": _stateless(_unsqueezed),
    # layers
    "residual": _residual,
    "shared": _shared,
    "loop": _loop,
    "squeeze and excite": _excite,
    "branches": _branches,
    "running mean": _running,
    "constant": _constant,
    "unused": _unused,
    "own parameter": _gain,
    "own matrix": _matrix,
    "linear()": _functional,
    "tied": _tied,
    "gru": _gru,
    "attention": _attention,
    "attention by hand": _attention_by_hand,
    "convolution": _convolution,
    "group norm": _group_norm,
    "embedding": _embedding,
    "recomputed": _recomputed,
    "layer_norm()": _stateless(_functional_norm),
    "no_grad": _stateless(_stopped),
    # found by drawing, and not drawn: all seeds would draw other models
    "a view changed twice": _view_changed_twice,
    "a changed view in no_grad": _changed_view_in_no_grad,
}
