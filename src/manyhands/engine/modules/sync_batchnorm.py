"""Batch normalization over the batch of all ranks, so that they compute what one device computes.

    forward    rank r has n_r values of a channel, of mean m_r and variance v_r; every rank gathers all:

               N = Σ n_r        m = Σ n_r·m_r / N        v = Σ n_r·(v_r + (m_r − m)²) / N        (Chan's formula)
               x̂ = (x − m) / √(v + ε)                    y = w·x̂ + b

    backward   B = Σ dy and D = Σ dy·x̂, added up over the ranks:

               dx = w/√(v + ε) · (dy − B/N − x̂·D/N)
               dw, db = this rank's own D and B, which the exchange of gradients adds up with all others

torch has this for GPUs only (SyncBatchNorm). All arithmetic on whole tensors is done by torch's own kernels for
batch normalization with given statistics; one gather a layer goes forward, one all-reduce backward.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from manyhands.comm.ranks.rank_group import Team
from manyhands.compat import BatchNorm, disable_dynamo
from manyhands.errors import ModelError


class GlobalBatchNorm(BatchNorm):
    """Batch normalization whose statistics, in training, are those of the batch of all ranks.

    Muted, a layer takes part in what the ranks exchange, but its rows count for nothing: for a rank that has no
    share of the last batch and computes a stand-in, whose loss weighs 0.
    """

    team: Team
    muted: bool = False

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.team.world == 1:
            return super().forward(input)
        return self._over_ranks(input)

    # A compiler must not reorder or drop what ranks exchange. (The public decorator would import it at once.)
    @disable_dynamo
    def _over_ranks(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            count, mean, var = _statistics(input, self.team, self.muted)
            if count < 2:
                raise ValueError(f"Expected more than 1 value per channel when training, got {count:.0f} on all ranks")
            if self.track_running_stats:
                self._track(count, mean, var)
        settings = (count, self.eps, self.team, self.muted)
        result: Tensor = _Normalize.apply(input, self.weight, self.bias, mean, var, settings)  # type: ignore[no-untyped-call]
        return result

    def _track(self, count: float, mean: Tensor, var: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.mul_(1 - rate).add_(mean, alpha=rate)
        self.running_var.mul_(1 - rate).add_(var, alpha=rate * count / (count - 1))


class GlobalBatchNorm1d(GlobalBatchNorm, nn.BatchNorm1d):
    """For inputs of shape (N, C) or (N, C, L)."""


class GlobalBatchNorm2d(GlobalBatchNorm, nn.BatchNorm2d):
    """For inputs of shape (N, C, H, W)."""


class GlobalBatchNorm3d(GlobalBatchNorm, nn.BatchNorm3d):
    """For inputs of shape (N, C, D, H, W)."""


SWAPS: dict[type[nn.Module], type[GlobalBatchNorm]] = {
    nn.BatchNorm1d: GlobalBatchNorm1d,
    nn.BatchNorm2d: GlobalBatchNorm2d,
    nn.BatchNorm3d: GlobalBatchNorm3d,
}


def over_ranks(model: nn.Module, team: Team) -> list[GlobalBatchNorm]:
    """Let every batch normalization of a model, in place, span the ranks; gives these layers, none for one rank."""
    if team.world == 1:
        return []
    layers = [layer for layer in model.modules() if isinstance(layer, BatchNorm)]
    for layer in layers:
        if type(layer) not in SWAPS and not isinstance(layer, GlobalBatchNorm):
            name = type(layer).__name__
            raise ModelError(f"batch norm of class {name} cannot span ranks: use nn.BatchNorm1d, 2d or 3d, or one rank")
    spanning = []
    for layer in layers:
        layer.__class__ = SWAPS.get(type(layer), type(layer))  # keeps parameters, names, hooks and settings
        assert isinstance(layer, GlobalBatchNorm)
        layer.team = team
        spanning.append(layer)
    return spanning


def own_norms(model: nn.Module) -> list[BatchNorm]:
    """The layers that do not span ranks."""
    return [
        layer for layer in model.modules() if isinstance(layer, BatchNorm) and not isinstance(layer, GlobalBatchNorm)
    ]


def with_own_norms(model: nn.Module, norms: Sequence[BatchNorm], inputs: Tensor) -> Tensor:
    """A model's output, its norms by this rank's statistics; of one sample, which has none, by those tracked so far."""
    learning = [norm for norm in norms if norm.training] if len(inputs) == 1 else []
    for norm in learning:
        norm.eval()
    result: Tensor = model(inputs)
    for norm in learning:
        norm.train()
    return result


def _exact(dtype: torch.dtype) -> torch.dtype:
    """In which statistics are computed and parameters are used."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _statistics(x: Tensor, team: Team, muted: bool) -> tuple[float, Tensor, Tensor]:
    """Values per channel, their mean and biased variance over all ranks, in float64; the same bits on every rank."""
    channels = x.shape[1]
    if muted:
        row = x.new_zeros(1 + 2 * channels, dtype=torch.float64)
    else:
        # The kernel of nn.BatchNorm itself: var_mean is up to 30 times slower. It answers in the type of the
        # running statistics that it is to update, which are of no use here.
        unused = x.new_zeros(channels, dtype=_exact(x.dtype))
        own_mean, own_var = torch.batch_norm_update_stats(x, unused, unused, 0.0)
        # In float64 the count is exact, and combining loses nothing that the ranks had.
        row = torch.cat([x.new_tensor([x.numel() // channels], dtype=torch.float64), own_mean, own_var])
    rows = row.new_empty(team.world, row.numel())
    dist.all_gather(list(rows), row, group=team.group)
    counts, means, variances = rows.split([1, channels, channels], dim=1)  # type: ignore[no-untyped-call]
    total = counts.sum()
    shares = counts / total
    mean = (shares * means).sum(0)
    apart = means - mean
    return total.item(), mean, (shares * torch.addcmul(variances, apart, apart)).sum(0)


class _Normalize(torch.autograd.Function):
    """y of x and the statistics, which are functions of x too: their share of the gradient is in the one of x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, settings: Any
    ) -> Tensor:
        # The kernels take parameters of one type, that of the statistics.
        exact = _exact(x.dtype)
        mean, var = mean.to(exact), var.to(exact)
        factor, offset = (each if each is None else each.to(exact) for each in (weight, bias))
        ctx.save_for_backward(x, factor, mean, var)
        ctx.count, ctx.eps, ctx.team, ctx.muted = settings
        return batch_norm(x, mean, var, factor, offset, eps=ctx.eps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, _, mean, var = saved = ctx.saved_tensors
        if dy.stride() != x.stride():
            dy = torch.empty_like(x).copy_(dy)  # the kernels are fast only where both are laid out alike
        d, b = _sums(dy, x, mean, var, ctx.eps)
        needed: tuple[bool, ...] = ctx.needs_input_grad
        dx = _dx(ctx, saved, dy, d, b) if needed[0] else None
        return dx, d if needed[1] else None, b if needed[2] else None, None, None, None


def _sums(dy: Tensor, x: Tensor, mean: Tensor, var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """D and B of this rank."""
    if x.is_cuda:  # whose kernel for given statistics refuses to leave out dx; this is what SyncBatchNorm has
        scale = (var + eps).rsqrt()
        b, d, _, _ = torch.batch_norm_backward_reduce(dy, x, mean, scale, None, True, False, False)
        return d * scale, b
    parts = (False, True, True)  # not dx
    _, d, b = torch.ops.aten.native_batch_norm_backward(dy, x, None, mean, var, None, None, False, eps, parts)
    return d, b


def _dx(ctx: Any, saved: Sequence[Any], dy: Tensor, d: Tensor, b: Tensor) -> Tensor:
    """Two passes over memory: slope·x̂ + offset, then scale·dy onto it."""
    x, weight, mean, var = saved
    scale = (var + ctx.eps).rsqrt()
    if weight is not None:
        scale *= weight
    # No statistics depend on a muted rank's rows: it neither adds to the sums nor feels them.
    voice = 0 if ctx.muted else 1
    sums: Tensor = ctx.team.sum(torch.cat([d, b]) * voice) * (-voice / ctx.count)
    slope, offset = (sums.view(2, -1) * scale).unbind()
    dx = batch_norm(x, mean, var, slope, offset, eps=ctx.eps)
    if dx.dtype == scale.dtype:
        return dx.addcmul_(dy, scale.view(-1, *[1] * (x.dim() - 2)))
    # Scaled in bf16 it would be off by a bit for the whole channel; addcmul of two types is slow.
    return dx.add_(batch_norm(dy, torch.zeros_like(mean), torch.ones_like(var), scale, eps=0.0))
