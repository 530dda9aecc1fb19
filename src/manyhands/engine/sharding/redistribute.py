"""Redistribute: blocks of results from rank to rank, forward, and their gradients back.

What goes where is plan.tensor_layout's to say. All messages of a move between two ranks are one; a rank begins to send
before it waits for what it gets, and waits for what it sent at the end of a step, so that stages of a pipeline do not
wait for each other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyhands.comm.host_staged import Going, receive, send
from manyhands.engine.seed import seed_of
from manyhands.engine.sharding.pass_state import OnWay
from manyhands.plan.resharding import Move, moves
from manyhands.plan.tensor_layout import Block, Layout


class Lay(NamedTuple):
    """Where the rows and columns of a result lie: of so many rows in all, features in dimension `dim`."""

    layout: Layout
    rows: int
    dim: int

    def together(self) -> "Lay":
        return self._replace(layout=self.layout.together())


_moves = lru_cache(maxsize=4096)(moves)
LAST = (0, 3, 1, 2)  # where the dimensions of images are, once channels are the last one


class Post:
    """One rank's side."""

    def __init__(self, rank: int, seed: int = 0, *, world: int = 1, channels_last: bool = False) -> None:
        self.rank, self.world, self.seed, self.step = rank, world, seed, 0
        self.channels_last = channels_last
        self.pending: list[Going] = []  # what is on its way
        self.sent_bytes = 0
        # What all results that learn depend on, even where a rank has none of them.
        self.anchor = torch.zeros(0, requires_grad=True)
        # Of a rank with several stages: which, with whom, whose turn it is, and how a pass waits for its own.
        self.stages: tuple[int, ...] = ()
        self.peers = frozenset({rank})
        self.stage = 0
        self.stop: Callable[[], None] | None = None  # a pass that is alone, as in scoring, does not wait
        self.on_way = OnWay()
        self.handover: Any = None  # of layers by sample to those by parameter, in turns (engine.pipeline.owt_boundary)

    @contextmanager
    def keeping(self, kept: list[Tensor]) -> Iterator[None]:
        """Keep what comes from other ranks in a list."""
        self.on_way.kept = kept
        yield
        self.on_way.kept = None

    @contextmanager
    def taking(self, kept: list[Tensor]) -> Iterator[None]:
        """Take from a list what came from other ranks, and send nothing."""
        self.on_way.again = kept
        yield
        self.on_way.again = None

    def enter(self, stage: int) -> None:
        """Before a layer of a stage: wait for the turn of a stage of this rank."""
        self._await(stage)
        self.on_way.stage = stage

    def _await(self, stage: int) -> None:
        while self.stop and stage in self.stages and stage != self.stage and self.on_way.again is None:
            self.stop()

    def come_back(self, stage: int, moves: Sequence[Move]) -> None:
        """Before gradients come back from a stage to an earlier one of this rank: wait for that one's turn."""
        if any(each.target in self.peers and each.source not in self.peers for each in moves):
            self._await(max((each for each in self.stages if each < stage), default=-1))

    @contextmanager
    def drawing(self, layout: Layout) -> Iterator[None]:
        """Let those that have the same place of a layout draw the same numbers, and others other ones.

        What is drawn hangs on the seed of the training, the step, the pass and how many layers of it have drawn
        before: on nothing that a resumed training, or another order of passes, would have otherwise.
        """
        self.on_way.draws += 1  # on every rank alike
        at = self.step, self.on_way.number, self.on_way.draws, *layout.places.get(self.rank, ())
        seed = seed_of(self.seed, *at)
        drawn = [torch.default_generator]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            drawn.append(torch.cuda.default_generators[torch.cuda.current_device()])
        states = [each.get_state() for each in drawn]
        for each in drawn:  # torch.manual_seed writes down a traceback each time, which takes half a millisecond
            each.manual_seed(seed)
        try:
            yield
        finally:
            for each, state in zip(drawn, states, strict=True):
                each.set_state(state)

    def begin_pass(self, number: int) -> None:
        """A pass of the step begins, or begins again."""
        self.on_way.stage, self.on_way.number, self.on_way.draws = 0, number, 0

    def finish(self) -> None:
        """Wait until all that was sent has gone."""
        for each in self.pending:
            each.wait()
        self.pending.clear()

    def carry(self, tensor: Tensor, have: Layout, want: Layout, lay: Lay, stage: int, *, back: bool = False) -> Tensor:
        """This rank's block of `want`, from everyone's of `have`, on the way to a stage; or back, where gradients,
        the summands of `have`, are added up."""
        return self.begin(tensor, have, want, lay, stage, back=back)()

    def begin(
        self, tensor: Tensor, have: Layout, want: Layout, lay: Lay, stage: int, *, back: bool = False
    ) -> Callable[[], Tensor]:
        """Begin to send and to receive; gives the function that waits for what comes.

        Images whose channels are last lie so on the way and on arrival: the convnet in four stages is 1.1 times as fast
        as where convolutions have to bring them there.
        """
        if self.channels_last and tensor.dim() == 4:
            lay = lay._replace(dim=LAST[lay.dim])
            finish = self._begin(tensor.permute(0, 2, 3, 1), have, want, lay, stage, back=back)
            return lambda: finish().permute(0, 3, 1, 2)
        return self._begin(tensor, have, want, lay, stage, back=back)

    def _begin(
        self, tensor: Tensor, have: Layout, want: Layout, lay: Lay, stage: int, *, back: bool
    ) -> Callable[[], Tensor]:
        given, asked = have.block(self.rank, lay.rows), want.block(self.rank, lay.rows)
        chosen = _moves(have, want, lay.rows)
        here = self.rank
        if back:
            self.come_back(stage, chosen)
        # Passes through two stages of a rank may send and take in different orders.
        tag = 2 * stage + back
        arriving = _grouped((each.source, each) for each in chosen if each.target == here != each.source)
        if self.on_way.again is not None and arriving:
            return partial(self.on_way.again.pop, 0)
        leaving = [each for each in chosen if each.source == here != each.target and self.on_way.again is None]
        coming = {
            source: receive(tensor, _count(group, tensor, lay.dim), source=source, tag=tag)
            for source, group in arriving
        }
        for target, group in _grouped((each.target, each) for each in leaving):
            pieces = [_narrow(tensor, each.block, given, lay.dim).reshape(-1) for each in group]
            # What a model made is copied: it may be changed in place while it is still on its way.
            message = torch.cat(pieces) if len(pieces) > 1 else pieces[0] if back else pieces[0].clone()
            self.sent_bytes += message.numel() * message.element_size()
            self.pending.append(send(message, target, tag=tag))

        def finish() -> Tensor:
            buffers = {source: each.wait() for source, each in coming.items()}
            shape = list(tensor.shape)
            shape[0] = asked.rows.size
            if lay.dim:
                shape[lay.dim] = asked.columns.size if here in want.places else want.columns[-1]
            mine = [each for each in chosen if each.target == here]
            if len(mine) == 1 and mine[0].source != here and mine[0].block == asked:
                result, mine = buffers[mine[0].source].view(shape), []  # all that is wanted, as it came
            else:
                result = tensor.new_zeros(shape) if back else tensor.new_empty(shape)
            for each in mine:  # in this order: those that want the same add up the same, to the bit
                place = _narrow(result, each.block, asked, lay.dim)
                if each.source == here:
                    piece = _narrow(tensor, each.block, given, lay.dim)
                else:
                    first, buffers[each.source] = _taken(buffers[each.source], _size(each.block, tensor, lay.dim))
                    piece = first.view(place.shape)
                place.add_(piece) if back else place.copy_(piece)
            if self.on_way.kept is not None and arriving and not back:
                self.on_way.kept.append(result.clone())  # layers may work in place
            return result

        return finish

    def moved(self, tensor: Tensor, lay: Lay, want: Layout) -> Tensor:
        """A result as another layout has it; its gradient comes back."""
        if lay.layout == want:
            return tensor
        anchor = self.anchor if tensor.is_floating_point() and torch.is_grad_enabled() else None
        result: Tensor = _Moved.apply(tensor, anchor, self, lay, want)  # type: ignore[no-untyped-call]
        return result

    def reduced(self, tensor: Tensor, group: Any, op: Any = dist.ReduceOp.SUM) -> Tensor:
        """Of everyone in a group, number by number, as a tensor of its own; images lie there as on the way."""
        turned = self.channels_last and tensor.dim() == 4
        row = (tensor.permute(0, 2, 3, 1) if turned else tensor).clone(memory_format=torch.contiguous_format)
        dist.all_reduce(row, op, group=group)
        self.sent_bytes += row.numel() * row.element_size()
        return row.permute(0, 3, 1, 2) if turned else row

    def summed(self, tensor: Tensor, group: Any) -> Tensor:
        """Parts of a sum, added up over a group."""
        result: Tensor = _Summed.apply(tensor, self, group)  # type: ignore[no-untyped-call]
        return result


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, anchor: Tensor | None, post: Post, lay: Lay, want: Layout) -> Tensor:
        ctx.post, ctx.lay, ctx.want, ctx.stage = post, lay, want, post.on_way.stage
        return post.carry(tensor, lay.layout, want, lay, ctx.stage)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.post.carry(gradient, ctx.want, ctx.lay.layout, ctx.lay, ctx.stage, back=True), None, None, None, None


class _Summed(torch.autograd.Function):
    """Parts of a sum, added up over a group: each has the whole, and its gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, post: Post, group: Any) -> Tensor:
        return post.reduced(tensor, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient, None, None


class _Absent(torch.autograd.Function):
    """The result of a layer on a rank that has no part of it: no rows, but of the right shape."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor | None, shape: Sequence[int], *inputs: Tensor) -> Tensor:
        ctx.shapes = [(each.shape, each.dtype) for each in inputs]
        return inputs[0].new_empty(0, *shape, dtype=anchor.dtype if anchor is not None else None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[2:]
        given = [
            gradient.new_zeros(shape, dtype=dtype) if wanted else None
            for (shape, dtype), wanted in zip(ctx.shapes, needed, strict=True)
        ]
        return None, None, *given


def absent(post: Post, shape: Sequence[int], inputs: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    learned = [each for each in inputs if each.requires_grad] if dtype.is_floating_point else []
    if learned and not any(each.numel() for each in learned):
        # No rows are no rows in any shape: torch's own view goes there and back in a third of the time.
        return sum((each.view(0, *shape) for each in learned[1:]), learned[0].view(0, *shape)).to(dtype)
    anchor = post.anchor if torch.is_grad_enabled() and dtype.is_floating_point else None
    result: Tensor = _Absent.apply(anchor, tuple(shape), *inputs)  # type: ignore[no-untyped-call]
    return result.to(dtype)


def _grouped(chosen: Iterable[tuple[int, Move]]) -> list[tuple[int, list[Move]]]:
    """Moves by the other rank."""
    found: dict[int, list[Move]] = {}
    for other, each in chosen:
        found.setdefault(other, []).append(each)
    return sorted(found.items())


def _narrow(tensor: Tensor, block: Block, whole: Block, dim: int) -> Tensor:
    rows, columns = block.rows.within(whole.rows), block.columns.within(whole.columns)
    narrow = tensor.narrow(0, rows.begin, rows.size)
    return narrow.narrow(dim, columns.begin, columns.size) if dim else narrow


def _taken(row: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first numbers of a row, and the rest."""
    return row[:count], row[count:]


def _size(block: Block, tensor: Tensor, dim: int) -> int:
    """Numbers in a block of results like these."""
    rest = 1
    for number, size in enumerate(tensor.shape):
        if number not in (0, dim):
            rest *= size
    return block.size * rest


def _count(group: Sequence[Move], tensor: Tensor, dim: int) -> int:
    return sum(_size(each.block, tensor, dim) for each in group)
