"""Ranks normalize as one device does; norm_cases.py has what runs in them."""

from typing import Any

import pytest
import torch
from torch import nn

from engine import norm_cases as cases
from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.modules.sync_batchnorm import GlobalBatchNorm1d, GlobalBatchNorm2d, GlobalBatchNorm3d, over_ranks
from manyhands.errors import ModelError


@pytest.mark.parametrize(
    ("backend", "world"),
    [("gloo", 2), ("gloo", 3), ("shm", 2), ("shm", 3), pytest.param("mpi", 2, marks=pytest.mark.long)],
)
@pytest.mark.parametrize("case", [case.__name__ for case in cases.CASES])
def test_as_one_device(pools: Any, case: str, backend: str, world: int) -> None:
    pools(backend).run("engine.norm_cases:run", backend, world, case)


def model() -> nn.Module:
    return nn.Sequential(
        nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm2d(4, affine=False), nn.ReLU()), nn.BatchNorm3d(5)
    )


def test_one_rank_keeps_its_layers() -> None:
    alone = model()
    assert over_ranks(alone, Team()) == []
    assert [type(layer) for layer in alone.modules()] == [type(layer) for layer in model().modules()]


def test_only_the_class_changes() -> None:
    many = model()
    many[1].eval()
    state = many.state_dict(keep_vars=True)
    training = [layer.training for layer in many.modules()]
    layers = over_ranks(many, Team(0, 2))
    assert [type(layer) for layer in layers] == [GlobalBatchNorm1d, GlobalBatchNorm2d, GlobalBatchNorm3d]
    assert not any(layer.muted for layer in layers)
    after = many.state_dict(keep_vars=True)
    assert list(after) == list(state)
    assert all(after[name] is state[name] for name in state)
    assert [layer.training for layer in many.modules()] == training
    assert over_ranks(many, Team(0, 2)) == layers


def test_a_layer_of_another_class_is_refused_before_any_changes() -> None:
    class Own(nn.BatchNorm1d):
        pass

    many = nn.Sequential(nn.BatchNorm1d(3), Own(3))
    with pytest.raises(ModelError, match=r"batch norm of class Own cannot span ranks: use nn\.BatchNorm1d"):
        over_ranks(many, Team(0, 2))
    assert type(many[0]) is nn.BatchNorm1d


def test_the_wrong_dimensions_are_named_before_ranks_wait() -> None:
    layer = nn.BatchNorm2d(3)
    over_ranks(layer, Team(0, 2))
    with pytest.raises(ValueError, match="expected 4D input"):
        layer(torch.ones(2, 3))
