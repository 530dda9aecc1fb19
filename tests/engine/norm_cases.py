"""What batch normalization over ranks must do: each case runs in all ranks and compares with nn.BatchNorm on one."""

import copy
from collections.abc import Sequence
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.modules.sync_batchnorm import GlobalBatchNorm, over_ranks

UNEVEN = (5, 1, 3)  # rows of each rank
EMPTY = (5, 3, 0)
STEPS = 3


def spanning(layer: nn.Module, team: Team, muted: bool = False) -> GlobalBatchNorm:
    (own,) = over_ranks(nn.Sequential(copy.deepcopy(layer)), team)
    own.muted = muted
    return own


def randomized(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, 0.5, 1.5)
    return layer


def near(one: Tensor, other: Tensor, tolerance: float) -> None:
    """Within the tolerance of the largest element."""
    assert one.shape == other.shape
    error, size = (one.double() - other.double()).abs().max(), other.double().abs().max()
    assert error <= tolerance * size, f"{error:.2e} is more than {tolerance} of {size:.2e}"


def same_bits(tensor: Tensor, team: Team) -> None:
    for other in team.all_gather_json(tensor):
        assert torch.equal(tensor, other)


def shares(team: Team, rows: Sequence[int]) -> tuple[int, slice]:
    """Rows of all ranks, the last of whom has the last share, and this rank's."""
    counts = [*rows[: team.world - 1], rows[-1]]
    start = sum(counts[: team.rank])
    return sum(counts), slice(start, start + counts[team.rank])


def compare(
    layer: nn.Module,
    shape: Sequence[int],
    team: Team,
    *,
    dtype: torch.dtype = torch.float64,
    tolerance: float = 1e-12,
    rows: Sequence[int] = UNEVEN,
    layout: torch.memory_format = torch.contiguous_format,
    cast: bool = False,
) -> None:
    """Some steps of a layer, on inputs of (N, *shape), against nn.BatchNorm on all rows, in float64."""
    torch.manual_seed(1)
    total, mine = shares(team, rows)
    empty = mine.start == mine.stop
    layer = randomized(layer)
    one = copy.deepcopy(layer).double()
    own = spanning(layer.to(torch.float32 if cast else dtype), team, empty)
    for _ in range(STEPS):
        # Rounded first, so that both have the same numbers.
        x, dy = ((torch.randn(total, *shape) * 2 + 1).to(dtype) for _ in range(2))
        whole = x.to(torch.float64, copy=True).requires_grad_()
        expected = one(whole)
        expected.backward(dy.double())
        part = x[mine] if not empty else torch.full((1, *shape), 100.0, dtype=dtype)
        part = part.clone(memory_format=layout).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16) if cast else nullcontext():
            result = own(part)
        assert result.dtype == dtype
        assert result.stride() == part.stride()
        result.backward(dy[mine] if not empty else torch.zeros_like(part))
        assert part.grad is not None
        assert whole.grad is not None
        if empty:
            assert not part.grad.any()
        else:
            near(result, expected[mine], tolerance)
            near(part.grad, whole.grad[mine], tolerance)
    for parameter, other in zip(own.parameters(), one.parameters(), strict=True):
        assert parameter.grad is not None
        near(team.sum(parameter.grad), other.grad, tolerance)
    for buffer, other in zip(own.buffers(), one.buffers(), strict=True):
        near(buffer, other, tolerance)
        same_bits(buffer, team)


def plain_1d(team: Team) -> None:
    compare(nn.BatchNorm1d(6), (6,), team)
    compare(nn.BatchNorm1d(6), (6,), team, dtype=torch.float32, tolerance=1e-6)


def sequence_1d(team: Team) -> None:
    compare(nn.BatchNorm1d(6), (6, 7), team)
    compare(nn.BatchNorm1d(6), (6, 7), team, dtype=torch.float32, tolerance=1e-6)


def pictures_2d(team: Team) -> None:
    for layout in (torch.contiguous_format, torch.channels_last):
        compare(nn.BatchNorm2d(17), (17, 5, 4), team, layout=layout)
        compare(nn.BatchNorm2d(17), (17, 5, 4), team, layout=layout, dtype=torch.float32, tolerance=1e-6)


def volumes_3d(team: Team) -> None:
    for layout in (torch.contiguous_format, torch.channels_last_3d):
        compare(nn.BatchNorm3d(4), (4, 3, 5, 2), team, layout=layout)
        compare(nn.BatchNorm3d(4), (4, 3, 5, 2), team, layout=layout, dtype=torch.float32, tolerance=1e-6)


def muted_rank(team: Team) -> None:
    compare(nn.BatchNorm1d(6), (6,), team, rows=EMPTY)
    compare(nn.BatchNorm2d(6), (6, 3, 3), team, rows=EMPTY, layout=torch.channels_last)
    compare(nn.BatchNorm2d(6), (6, 3, 3), team, rows=EMPTY, dtype=torch.bfloat16, tolerance=0.02, cast=True)


def muted_gradient(team: Team) -> None:
    """Even a gradient that is not 0 goes into nobody's sums: a muted rank's rows see the statistics as given."""
    torch.manual_seed(1)
    last = team.rank == team.world - 1
    whole = torch.randn(2 * team.world - 2, 3, dtype=torch.float64).requires_grad_()
    mine = slice(2 * team.rank, 2 * team.rank + 2)
    one = randomized(nn.BatchNorm1d(3)).double()
    own = spanning(one, team, muted=last)
    one(whole).pow(3).sum().backward()
    assert whole.grad is not None
    part = (torch.ones(1, 3).double() if last else whole[mine].detach()).requires_grad_()
    own(part).pow(1 if last else 3).sum().backward()
    scale = (one.weight / (whole.var(0, correction=0) + one.eps).sqrt()).detach()
    near(part.grad, scale[None] if last else whole.grad[mine], 1e-12)


def options(team: Team) -> None:
    for settings in ({"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.3}):
        compare(nn.BatchNorm2d(6, **settings), (6, 3, 3), team)


def autocast(team: Team) -> None:
    for layout in (torch.contiguous_format, torch.channels_last):
        compare(nn.BatchNorm2d(6), (6, 9, 9), team, layout=layout, dtype=torch.bfloat16, tolerance=0.01, cast=True)
    compare(nn.BatchNorm2d(6), (6, 9, 9), team, dtype=torch.float32, tolerance=1e-6, cast=True)


def whole_model_in_bf16(team: Team) -> None:
    compare(nn.BatchNorm2d(6), (6, 9, 9), team, dtype=torch.bfloat16, tolerance=0.02)


def far_from_zero(team: Team) -> None:
    """Sums of squares would lose all digits of the variance."""
    x = torch.randn(8, 3, dtype=torch.float64) + 1e6 * (1 + team.rank)
    layer = spanning(nn.BatchNorm1d(3, momentum=1.0).double(), team)
    layer(x)
    near(layer.running_var, torch.cat(team.all_gather_json(x)).var(0), 1e-12)


def frozen(team: Team) -> None:
    """A frozen scale, and inputs that need no gradient."""
    torch.manual_seed(1)
    x = torch.randn(2 * team.world, 3, dtype=torch.float64)
    mine = slice(2 * team.rank, 2 * team.rank + 2)
    for needs, weight in ((True, False), (False, True), (False, False)):
        one = randomized(nn.BatchNorm1d(3)).double()
        one.weight.requires_grad_(weight)
        own = spanning(one, team)
        whole, part = x.clone().requires_grad_(needs), x[mine].clone().requires_grad_(needs)
        one(whole).pow(3).sum().backward()
        own(part).pow(3).sum().backward()
        if needs:
            near(part.grad, whole.grad[mine], 1e-12)
        assert (own.weight.grad is None) == (not weight)
        if weight:
            near(team.sum(own.weight.grad), one.weight.grad, 1e-12)
        near(team.sum(own.bias.grad), one.bias.grad, 1e-12)


def finite_differences(team: Team) -> None:
    torch.manual_seed(1)
    own = spanning(randomized(nn.BatchNorm1d(2)).double(), team)
    whole = torch.randn(2 * team.world, 2, dtype=torch.float64)
    mine = slice(2 * team.rank, 2 * team.rank + 2)

    def loss(whole: Tensor) -> Tensor:
        return (own(whole[mine]).sin() * (1 + team.rank)).sum()

    leaf = whole.clone().requires_grad_()
    loss(leaf).backward()
    assert leaf.grad is not None
    gradient, step = team.sum(leaf.grad), 1e-6
    for index in range(whole.numel()):
        shift = torch.zeros(whole.numel(), dtype=whole.dtype)
        shift[index] = step
        up, down = (team.sum(loss(whole + sign * shift.view_as(whole)).detach()) for sign in (1, -1))
        assert gradient.flatten()[index].item() == pytest.approx(((up - down) / (2 * step)).item(), abs=1e-8)


def without_gradients(team: Team) -> None:
    torch.manual_seed(1)
    x = torch.randn(3 * team.world, 4, 5)
    for mode in (torch.no_grad, torch.inference_mode):
        one = nn.BatchNorm1d(4)
        own = spanning(one, team)
        with mode():
            near(own(x[3 * team.rank : 3 * team.rank + 3]), one(x)[3 * team.rank : 3 * team.rank + 3], 1e-6)
        near(own.running_var, one.running_var, 1e-6)


def evaluation(team: Team) -> None:
    """As nn.BatchNorm does, alone: the ranks exchange nothing, or the leader would wait for ever."""
    if team.is_leader:
        for tracks in (True, False):
            one = randomized(nn.BatchNorm2d(4, track_running_stats=tracks)).eval()
            x = torch.randn(3, 4, 5, 5)
            assert torch.equal(spanning(one, team)(x), one(x))


def one_value(team: Team) -> None:
    """Too few on all ranks together, and so on each."""
    layer = spanning(nn.BatchNorm1d(3), team, muted=not team.is_leader)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        layer(torch.ones(1, 3))


CASES = (
    plain_1d, sequence_1d, pictures_2d, volumes_3d, muted_rank, muted_gradient, options, autocast, whole_model_in_bf16,
    far_from_zero, frozen, finite_differences, without_gradients, evaluation, one_value,
)  # fmt: skip


def run(backend: str, rank: int, world: int, case: str) -> None:
    """The case of this name, in a rank of a fresh group."""
    next(each for each in CASES if each.__name__ == case)(Team(rank, world))
