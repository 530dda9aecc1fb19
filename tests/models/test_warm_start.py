"""Weights taken from another model, and parameters taken out of training."""

import pytest
import torch

from manyhands.errors import ModelError
from manyhands.models.warm_start import freeze, init_from
from manyhands.models.zoo import Options, Shapes, build


def test_all_but_the_head_moves_to_other_classes() -> None:
    source = build("convnet", Shapes(10, (1, 12, 12)), seed=1).state_dict()
    model = build("convnet", Shapes(4, (1, 12, 12)), seed=2)
    fresh = model.get_submodule("output").weight.clone()
    transfer = init_from(model, {**source, "extra": torch.zeros(3)})
    assert transfer.loaded == tuple(name for name in source if not name.startswith("output"))
    assert dict(transfer.skipped) == {
        "output.weight": "10x128 given, 4x128 in the model",
        "output.bias": "10 given, 4 in the model",
        "extra": "not in the model",
    }
    state = model.state_dict()
    assert all(torch.equal(state[name], source[name]) for name in transfer.loaded)
    assert torch.equal(state["output.weight"], fresh)


def test_what_is_not_given_is_told() -> None:
    model = build("mlp", Shapes(3, (5,)))
    transfer = init_from(model, {"output.bias": torch.ones(3, dtype=torch.float64)})
    assert transfer.loaded == ("output.bias",)
    assert ("dense1.weight", "not given: keeps its fresh weights") in transfer.skipped
    assert model.state_dict()["output.bias"].dtype == torch.float32


def test_batch_norm_statistics_come_along() -> None:
    options = Options(batch_norm=True)
    source = build("mlp", Shapes(3, (5,)), options)
    source(torch.ones(4, 5))
    model = build("mlp", Shapes(3, (5,)), options, seed=1)
    assert not init_from(model, source.state_dict()).skipped
    assert model.state_dict()["norm1.num_batches_tracked"] == 1


def test_nothing_that_fits_is_an_error() -> None:
    model = build("mlp", Shapes(3, (5,)))
    with pytest.raises(ModelError, match=r"none of the 1 tensors \(module.output.bias\).*dense1.weight"):
        init_from(model, {"module.output.bias": torch.zeros(3)})


def test_freeze_by_pattern() -> None:
    model = build("convnet", Shapes(10, (1, 12, 12)))
    assert freeze(model, ["conv*", "*.bias"]) == [
        "conv1.weight",
        "conv1.bias",
        "conv2.weight",
        "conv2.bias",
        "dense.bias",
        "output.bias",
    ]
    model(torch.zeros(2, 1, 12, 12)).sum().backward()
    trained = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert trained == ["dense.weight", "output.weight"]


def test_freeze_nothing() -> None:
    assert freeze(build("mlp", Shapes(3, (5,))), []) == []


def test_a_pattern_that_matches_nothing_freezes_nothing() -> None:
    model = build("mlp", Shapes(3, (5,)))
    with pytest.raises(ModelError, match=r"'conv\*' matches no parameter: the model has dense1.weight.* and 1 more"):
        freeze(model, ["dense*", "conv*"])
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_freezing_everything_is_refused() -> None:
    with pytest.raises(ModelError, match="leaves nothing to train"):
        freeze(build("mlp", Shapes(3, (5,))), ["*"])
