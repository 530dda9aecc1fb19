"""Comm hook: a rank's gradients on their way to the sum over all ranks, made smaller.

    owed = residual + weight · gradient

    none       weight · gradient ── all-reduce ────────────────────────────────────────────────────────▶ sum
    bf16 fp16  owed ── cast ─────── all-reduce ── cast back ───────────────────────────────────────────▶ sum
    topk       owed ── largest ──── all-gather ── scatter and add ─────────────────────────────────────▶ sum
    powersgd   owed · Qᵀ ────────── all-reduce ── orthogonal: P ── Pᵀ · owed ── all-reduce: Q ── P · Q ▶ sum

    residual = owed − what this rank sent of it, so that nothing is lost, only late

Each kind treats a parameter alike in whichever bucket it lies, so that a training goes on as before when DDP rebuilds
its buckets after the first step, and when it is resumed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

from manyhands.comm.backends.mpi import WIDER, MpiGroup
from manyhands.comm.error_feedback import ErrorFeedback, split, strides
from manyhands.compat import GradBucket
from manyhands.errors import PlanError
from manyhands.plan.options import check_option

SMALLER = 2  # PowerSGD leaves a matrix whole unless its factors are that many times smaller
SAMPLE = 1 << 14  # elements from which the size of the largest ones is guessed


class Compression:
    """The state of one rank in one training: `ddp.register_comm_hook(compression, Compression.hook)`.

    `model` is the plain one inside DDP; its names of parameters are the keys of `state_dict`.
    """

    def __init__(
        self,
        kind: str,
        model: nn.Module,
        group: dist.ProcessGroup | None = None,
        *,
        share: float = 0.01,
        rank: int = 4,
    ) -> None:
        check_option("compress", kind)
        if not 0 < share <= 1 or rank < 1:
            raise PlanError(f"compress={kind}: share={share}, rank={rank}: 0 < share ≤ 1 and rank ≥ 1 are allowed")
        self.kind, self.share, self.rank = kind, share, rank
        self.group: Any = group or dist.group.WORLD
        self.weight = 1.0  # of this rank's gradients in the sum; to be set before a backward
        self.watch: Callable[[Tensor], None] | None = None  # sees this rank's gradients before they are sent
        self.sent_bytes = self.plain_bytes = 0
        self.parameters = dict(model.named_parameters())
        self.names: Mapping[Tensor, str] = {parameter: name for name, parameter in self.parameters.items()}
        self.residuals = ErrorFeedback(self.names)
        self.factors: dict[str, Tensor] = {}  # the last Q of each matrix, from which the next step begins

    @property
    def ratio(self) -> float:
        """How many times fewer bytes were sent than without compression."""
        return self.plain_bytes / self.sent_bytes if self.sent_bytes else 1.0

    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """The sum over ranks of weight · gradient, all ranks' the same to the bit."""
        self.plain_bytes += bucket.buffer().nbytes
        if self.watch is not None:
            self.watch(bucket.buffer())
        match self.kind:
            case "bf16":
                return self._cast(bucket, torch.bfloat16)
            case "fp16":
                return self._cast(bucket, torch.float16)
            case "topk":
                return self._top(bucket)
            case "powersgd":
                return self._low_rank(bucket)
        buffer = bucket.buffer().mul_(self.weight)
        return _after(self._all_reduce(buffer), lambda: buffer)

    def state_dict(self) -> dict[str, Tensor]:
        """What this rank needs to go on as before: the tensors themselves, not copies."""
        residuals = {f"residual.{name}": tensor for name, tensor in self.residuals.left.items()}
        return residuals | {f"factor.{name}": tensor for name, tensor in self.factors.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there; a parameter without a residual in it begins with none."""
        self.residuals, self.factors = ErrorFeedback(self.names), {}
        for key, tensor in state.items():
            what, _, name = key.partition(".")
            held = self.residuals.left if what == "residual" else self.factors
            held[name] = tensor.to(self.parameters[name].device, copy=True)

    def _owed(self, bucket: GradBucket) -> Tensor:
        """The bucket's row of residuals, with the new gradients in it."""
        return self.residuals.row(bucket).add_(bucket.buffer(), alpha=self.weight)

    def _cast(self, bucket: GradBucket, dtype: torch.dtype) -> Future[Tensor]:
        buffer, owed = bucket.buffer(), self._owed(bucket)
        narrow = owed.to(dtype)
        if dtype == torch.float16:
            # No sum overflows, with room for its rounding. What is cut off, or too small for fp16, stays owed.
            limit = torch.finfo(dtype).max / 2 / self.group.size()
            narrow.clamp_(-limit, limit)
        # Through the buffer, for torch subtracts a tensor of another type three times slower.
        owed.sub_(buffer.copy_(narrow))
        return _after(self._all_reduce(narrow), lambda: buffer.copy_(narrow))

    def _top(self, bucket: GradBucket) -> Future[Tensor]:
        """The largest of each parameter, for the largest of a bucket would change with the buckets."""
        buffer, owed = bucket.buffer(), self._owed(bucket)
        places, start = [], 0
        for part in split(owed, bucket):
            places.append(largest(part, min(part.numel(), max(1, round(self.share * part.numel())))) + start)
            start += part.numel()
        place = torch.cat(places)
        message = torch.cat([owed[place].view(torch.int32), place.int()])
        owed.index_fill_(0, place, 0)
        messages = [torch.empty_like(message) for _ in range(self.group.size())]
        self.sent_bytes += message.nbytes
        work = dist.all_gather(messages, message, self.group, async_op=True)

        def add_up() -> Tensor:
            total: Tensor = buffer.zero_()
            for each in messages:  # in the order of ranks, for the sum is to be the same on all
                values = each[: -place.numel()].view(owed.dtype)
                total.index_add_(0, each[-place.numel() :], values.to(total.dtype))
            return total

        return _after(work, add_up)

    def _low_rank(self, bucket: GradBucket) -> Future[Tensor]:
        """PowerSGD (Vogels et al. 2019).

        Torch's hook keeps its state by bucket, so that no training resumes with it, and hangs on gloo when there are
        several buckets: it begins exchanges in several threads. Here each ends before the next begins.
        """
        buffer, owed = bucket.buffer(), self._owed(bucket)
        whole, matrices, sums, factors = [], [], [], []
        for parameter, part, total in zip(bucket.parameters(), split(owed, bucket), split(buffer, bucket), strict=True):
            rows, columns = _sides(parameter)
            if (rows + columns) * self.rank * SMALLER > parameter.numel():
                whole.append((part, total))
            else:
                matrices.append(part.view(rows, columns))
                sums.append(total.view(rows, columns))
                factors.append(self._factor(parameter, matrices[-1]))
        # Products whose result is wide: to a narrow one the CPU takes up to ten times longer.
        sides = [factor @ matrix.T for factor, matrix in zip(factors, matrices, strict=True)]
        self._add_up([part for part, _ in whole] + sides)
        for part, total in whole:
            total.copy_(part)
            part.zero_()
        sides = [torch.linalg.qr(side.T).Q for side in sides]
        for side, matrix, factor in zip(sides, matrices, factors, strict=True):
            torch.mm(side.T, matrix, out=factor)
            # Before the factors are summed: what this rank sends of its own, so that residuals do not drift apart.
            matrix.addmm_(side, factor, alpha=-1)
        self._add_up(factors)
        for side, factor, total in zip(sides, factors, sums, strict=True):
            total.copy_(side @ factor)
        done: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else None)
        done.set_result(buffer)
        return done

    def _factor(self, parameter: Tensor, matrix: Tensor) -> Tensor:
        """The factor that a matrix had last; at first a random one, the same on all ranks."""
        name = self.names[parameter]
        if name not in self.factors:
            generator = torch.Generator().manual_seed(list(self.parameters).index(name))
            random = torch.randn(self.rank, matrix.shape[1], generator=generator, dtype=matrix.dtype)
            self.factors[name] = random.to(matrix.device)
        return self.factors[name]

    def _add_up(self, tensors: list[Tensor]) -> None:
        """All-reduce in one message, in place, and wait."""
        if not tensors:
            return
        row = torch.cat([tensor.flatten() for tensor in tensors])
        self._all_reduce(row).wait()
        for tensor, part in zip(tensors, torch.split(row, [each.numel() for each in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def _all_reduce(self, tensor: Tensor) -> Any:
        sent_as = WIDER.get(tensor.dtype, tensor.dtype) if isinstance(self.group, MpiGroup) else tensor.dtype
        self.sent_bytes += tensor.numel() * sent_as.itemsize
        return dist.all_reduce(tensor, group=self.group, async_op=True)


def largest(row: Tensor, count: int) -> Tensor:
    """The places of the `count` elements of largest size.

    Torch's topk passes over a long row slowly: a sample says how large about the largest 2 · count are, and of those
    alone it has to choose, five times faster. Should they be fewer than `count`, it chooses from all.
    """
    if 4 * count < row.numel() > 4 * SAMPLE:
        sample = row[:: row.numel() // SAMPLE | 1].abs()  # an odd step, so as not to walk down a matrix's column
        bound = sample.kthvalue(sample.numel() - 2 * count * sample.numel() // row.numel()).values
        near = ((row > bound) | (row < -bound)).nonzero().squeeze(1)
        if near.numel() >= count:
            return near[row[near].abs().topk(count, sorted=False).indices]
    return row.abs().topk(count, sorted=False).indices


def _sides(parameter: Tensor) -> tuple[int, int]:
    """A parameter as a matrix: its outermost dimension in memory, and the rest."""
    rows = max(zip(strides(parameter), parameter.shape, strict=True), default=(1, 1))[1]
    return rows, parameter.numel() // max(rows, 1)


def _after(work: Any, finish: Callable[[], Tensor]) -> Future[Tensor]:
    """What comes of an exchange once it has ended; an exchange that failed raises."""

    def then(done: Future[Any]) -> Tensor:
        done.value()
        return finish()

    future: Future[Tensor] = work.get_future().then(then)
    return future
