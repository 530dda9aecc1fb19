"""Sharded layer: a layer of a model, of whose weights a rank has the part that a plan gives it.

The module stays the one it is, with smaller weights; its forward takes a part of the results before it, brought to
where the layer's own split wants them, and gives a part. A rank that has no part of the layer, or no samples, goes
through the same motions with no rows: so all ranks carry out one program, and nobody waits in vain.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.comm.ranks import objects
from manyhands.compat import DisableTorchFunctionSubclass
from manyhands.engine.modules.sync_batchnorm import GlobalBatchNorm
from manyhands.engine.sharding.activation import Known, Part, along, become, current, kin_of, moved_like, part_of, plain
from manyhands.engine.sharding.layers.attention import Attention
from manyhands.engine.sharding.layers.cannon import Cannon
from manyhands.engine.sharding.layers.embedding import Table
from manyhands.engine.sharding.layers.rnn import Recurrent
from manyhands.engine.sharding.pytree import mapped, tensors
from manyhands.engine.sharding.redistribute import Lay, Post, absent
from manyhands.engine.sharding.tensor_parallel_group import Fellows
from manyhands.engine.sharding.weight_shards import Piece, way_of
from manyhands.errors import ModelError
from manyhands.graph.graph import Layer
from manyhands.plan.resharding import part_of as place_of
from manyhands.plan.sharding import Split
from manyhands.plan.sharding_rules import SUMMED, Grain, feature_dim, takes, ways
from manyhands.plan.tensor_layout import Layout, Span, edges, made, taken


@dataclass
class Cut:
    """One layer on one rank."""

    name: str
    module: nn.Module
    layer: Layer
    split: Split
    post: Post
    grain: Grain
    stage: int = 0
    before: bool = False  # the layers by parameter, which take over in turns
    follows: bool = True  # something before it learns, and wants a gradient
    group: Any = None  # with whom results are added up
    fellows: Fellows | None = None  # who take the same, for other parts of the results
    types: dict[tuple[bool, ...], torch.dtype] = field(default_factory=dict)  # of results, by what decides them
    takes: dict[int, Layout] = field(default_factory=dict)  # by the number of features
    makes: dict[tuple[Layout, int], Lay] = field(default_factory=dict)
    passes: dict[Lay, tuple[Lay, list[int]]] = field(default_factory=dict)  # where results lie, by what is passed by

    def __post_init__(self) -> None:
        self.same = ways(self.layer, self.layer.output[0]).same and self.layer.operation not in SUMMED
        self.reduces = not self.same and self.split.reduction > 1
        self.part = place_of(self.split, self.post.rank)
        self.cannon = self.split.cannon and isinstance(self.module, nn.Linear)
        if self.cannon:  # whose blocks lie where the sizes alone say, and whose rounds add up what others add up here
            self.grain, self.fellows = Grain(), None
        self.shapes = {name: each.shape for name, each in self._tensors()}
        self.pieces = {name: self._pieces(name) for name in self.shapes}
        self._keep_own()
        self.run = self._run()
        self.module.forward = self.forward

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.module.named_parameters()
        yield from self.module.named_buffers()

    def tensor(self, name: str) -> Any:
        """This rank's part of a weight; None where it has none."""
        home, _, own = name.rpartition(".")
        return getattr(self.module.get_submodule(home), own)

    def learned(self) -> list[nn.Parameter]:
        """This rank's weights that learn."""
        return [each for each in self.module.parameters() if each.requires_grad]

    def added(self) -> list[nn.Parameter]:
        """Those whose gradients are added up over samples; Cannon's rounds have done so for the weight."""
        weight = self.tensor("weight") if self.cannon else None
        return [each for each in self.learned() if each is not weight]

    def _pieces(self, name: str) -> dict[Piece, int]:
        """Each different part of a weight, and the first rank that has it."""
        found: dict[Piece, int] = {}
        for device in self.split.devices:
            if (where := self._where(name, place_of(self.split, device))) is not None:
                found.setdefault(where, device)
        return found

    def _where(self, name: str, part: tuple[int, int, int] | None) -> Piece | None:
        """What a part has of a weight; none of a bias that another one adds."""
        if part is None or (name in ("bias", "out_proj.bias") and self.reduces and part[2]):
            return None
        way, whole, (sample, parameter, reduction) = way_of(self.module, name), self.shapes[name], part
        inputs = (self.split.sample, (sample + parameter) % self.split.sample) if self.cannon else None
        shape = (whole[0] // way.blocks, *whole[1:]) if whole else ()
        where = [Span(0, size) for size in shape]
        for dim, degree, number, pieces in (
            (way.parameter, self.split.parameter, parameter, self.grain.made),
            (way.reduction, *(inputs or (self.split.reduction, reduction)), max(way.pieces, self.grain.taken)),
        ):
            if dim is not None and dim < len(shape) and degree > 1:  # a count of batches has no dimension
                bounds = edges(shape[dim], degree, _unit(shape[dim], pieces))
                where[dim] = Span(bounds[number], bounds[number + 1])
        return Piece(tuple(where), way.blocks)

    def owned(self, name: str) -> list[Piece]:
        """The parts of a weight that this rank is the one to tell."""
        return [where for where, owner in self.pieces[name].items() if owner == self.post.rank]

    def mine(self, name: str) -> Piece | None:
        """What this rank has of a weight."""
        return self._where(name, self.part)

    def _keep_own(self) -> None:
        """Let the module have this rank's part of each weight, and nothing of the others."""
        for name, each in list(self._tensors()):
            home, _, own = name.rpartition(".")
            module, where = self.module.get_submodule(home), self.mine(name)
            if where is None:
                setattr(module, own, None)
            elif where.shape != each.shape:
                mine = where.of(each.detach())
                if isinstance(each, nn.Parameter):
                    setattr(module, own, nn.Parameter(mine, each.requires_grad))
                else:
                    module.register_buffer(own, mine)

    def _run(self) -> Callable[..., Any]:
        """What computes the results of this rank's part."""
        module = self.module
        if isinstance(module, nn.RNNBase) and self.split.parameter > 1 and self.fellows is not None:
            return Recurrent(module, self.fellows, edges(module.hidden_size, self.split.parameter))
        if isinstance(module, nn.MultiheadAttention) and self.reduces:
            return Attention(module)
        if isinstance(module, nn.Embedding) and self.reduces and (where := self.mine("weight")) is not None:
            return Table(module, where.spans[0])
        if self.cannon and isinstance(module, nn.Linear) and self.part is not None:
            grid = Cannon(self.post.rank, self.split.devices, module.in_features, module.out_features)
            return lambda x: grid(x, module.weight, module.bias)
        run: Callable[..., Any] = module.forward
        return run

    def forward(self, *given: Any, **named: Any) -> Any:
        asked = tensors(Part, given)
        given, named = mapped(Known, lambda each: current(each, self.name), (given, named))
        main, *_ = tensors(Part, (given, named)) or (None,)
        if main is None:
            raise ModelError(
                f"layer {self.name} ({type(self.module).__name__}) is given nothing that has samples first: "
                "such a model cannot be cut; use data:N"
            )
        handover = self.post.handover
        if handover is not None and self.before and self.name in handover.made:
            return handover.made[self.name]
        result = self._result(main, given, named, asked)
        if handover is not None and self.before:
            handover.made[self.name] = result
        return result

    def _result(self, main: Part, given: tuple[Any, ...], named: dict[str, Any], asked: Sequence[Part]) -> Any:
        self.post.enter(self.stage)
        changes = getattr(self.module, "inplace", False) is True
        elsewhere, came = self.part is None and self.post.handover is None and not changes, main.lay
        if elsewhere and came in self.passes and all(map(self._passed_by, found := tensors(Tensor, (given, named)))):
            self.post.on_way.draws += self._draws
            return self._nothing(found, *self.passes[came])
        main = along(main, feature_dim(self.layer, self.layer.inputs[0]))
        want = main.lay._replace(layout=self._taken(main.lay.layout.columns[-1]))
        brought: dict[int, Tensor] = {}  # what is given twice goes once
        handover = self.post.handover
        if handover is not None and not self.before and main.lay.rows == handover.rows:
            part = handover.activation_of_turn(self.name, main, want.layout)
            want, given = part.lay, (plain(part), *given[1:])

        def bring(part: Part) -> Tensor:
            if id(part) not in brought:
                brought[id(part)] = self._brought(along(part, want.dim), want)
            return brought[id(part)]

        with nullcontext() if self.follows else torch.no_grad():
            given, named = mapped(Part, bring, (given, named))
        with self.post.drawing(self._drawn(want.layout)) if self._draws else nullcontext():
            result = self._computed(want, given, named)
        first, *rest = result if isinstance(result, tuple) else (result,)
        if changes and asked:
            become(asked[0], given[0], want)
        lay = self._made(want)
        dtype = self._agreed(first)
        inputs = tensors(Tensor, (given, named))
        if first is None:
            shape = list(self.layer.output[1:])
            shape[lay.dim - 1] = lay.layout.block(self.post.rank, 1).columns.size or shape[lay.dim - 1]
            if elsewhere and not isinstance(self.module, nn.RNNBase | nn.MultiheadAttention):
                self.passes[came] = lay, shape
            first = absent(self.post, shape, inputs, dtype)
        if self.reduces and self.part is not None:
            first = self.post.summed(first, self.group)
        first = part_of(first, self.post, lay, kin_of(first, main, given[0] if given else None))
        if isinstance(self.module, nn.RNNBase):
            return first, self._states(rest[0] if rest else None, want.rows, inputs, dtype)
        if isinstance(self.module, nn.MultiheadAttention):
            return first, rest[0] if rest else None
        return (first, *rest) if isinstance(result, tuple) else first

    def _passed_by(self, given: Tensor) -> bool:
        """Whether this rank has none of it, and no work with it for a layer that it has none of."""
        return isinstance(given, Part) and self.post.rank not in given.lay.layout.places

    def _nothing(self, inputs: Sequence[Tensor], lay: Lay, shape: Sequence[int]) -> Part:
        """What no rows make, the short way: half of what a pipeline's rank goes through is elsewhere."""
        with DisableTorchFunctionSubclass():
            return part_of(absent(self.post, shape, inputs, self._agreed(None)), self.post, lay)

    def _taken(self, features: int) -> Layout:
        """Where what the layer takes must lie; the same each time, and asked for every micro-batch."""
        if features not in self.takes:
            self.takes[features] = self._taken_of(features)
        return self.takes[features]

    def _taken_of(self, features: int) -> Layout:
        if self.same or self.cannon:
            return taken(self.split, features, True, _unit(features, self.grain.made))
        split = takes(self.layer, self.split)
        columns = edges(features, split.reduction, _unit(features, self.grain.taken))
        return replace(taken(split, features, False), columns=columns)

    def _brought(self, part: Part, want: Lay) -> Tensor:
        """A part where it must lie; if all have it already, the summands of its gradient are added up in one go."""
        if self.fellows is not None and part.lay.dim == want.dim and _lies(part.lay.layout, want.layout):
            own = plain(part)
            return self.fellows.entered(own) if own.requires_grad else own
        return moved_like(part, want)

    @property
    def _draws(self) -> bool:
        """Whether random numbers are drawn in it."""
        inner = isinstance(self.module, nn.RNNBase | nn.MultiheadAttention)
        chance = getattr(self.module, "dropout" if inner else "p", 0.0)
        return self.module.training and isinstance(chance, float) and chance > 0

    def _drawn(self, layout: Layout) -> Layout:
        """Who draws the same: of a recurrent layer all parts, for they drop of what they have gathered."""
        return made(self.split, 1).together() if isinstance(self.module, nn.RNNBase) else layout

    def _computed(self, want: Lay, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What the module makes of this rank's rows, None of none."""
        norm = self.module if isinstance(self.module, GlobalBatchNorm) and self.module.training else None
        if want.layout.span(self.post.rank, want.rows).size or (self.cannon and self.part is not None):
            if norm is not None:
                norm.muted = False
            return self.run(*given, **named)
        if norm is None or self.part is None:
            return None
        # Others wait for this rank in a batch norm: it takes part with a row that does not count.
        norm.muted = True
        return self.run(torch.cat([given[0], given[0].new_zeros(1, *given[0].shape[1:])]))[:0]

    def _states(self, found: Any, rows: int, inputs: list[Tensor], dtype: torch.dtype) -> Any:
        """The last states of a recurrent layer: for each of its layers and directions a part, samples first."""
        module = self.module
        assert isinstance(module, nn.RNNBase)
        sizes = (module.proj_size or module.hidden_size, module.hidden_size)[: 2 if module.mode == "LSTM" else 1]
        tensors = found if isinstance(found, tuple) else (found,) * len(sizes)
        states = []
        for size, tensor in zip(sizes, tensors, strict=True):
            lay = Lay(made(self.split, size), rows, 1)
            if tensor is None:
                own = lay.layout.block(self.post.rank, 1).columns.size or size
                none = absent(self.post, (own,), inputs, dtype)
                tensor = [none] * (module.num_layers * (1 + module.bidirectional))
            states.append(tuple(part_of(each, self.post, lay) for each in tensor))
        return tuple(states) if module.mode == "LSTM" else states[0]

    def _agreed(self, result: Tensor | None) -> torch.dtype:
        """The type of the results, as those have it that computed some; asked once."""
        narrow = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        key = (self.module.training, narrow, torch.is_grad_enabled())
        if key not in self.types:
            told = objects.gather(None if result is None else str(result.dtype))
            self.types[key] = objects.DTYPES[next(each for each in told if each is not None)]
        return self.types[key]

    def _made(self, want: Lay) -> Lay:
        """Where the results lie; the same each time too."""
        key = want.layout, want.dim
        if key not in self.makes:
            self.makes[key] = self._made_of(want)
        return self.makes[key]._replace(rows=want.rows)

    def _made_of(self, want: Lay) -> Lay:
        output = self.layer.output
        dim = feature_dim(self.layer, output)
        if self.layer.kind == "pointwise" and len(output) == len(self.layer.inputs[0]):
            dim = want.dim
        if self.same and self.split.parameter > 1:
            before = want.layout.columns
            columns = tuple(each * output[dim] // before[-1] for each in before)
            return Lay(replace(want.layout, columns=columns), want.rows, dim)
        features = output[dim] if dim else 1
        return Lay(made(self.split, features, _unit(features, self.grain.made)), want.rows, dim)


@lru_cache(maxsize=4096)
def _lies(have: Layout, want: Layout) -> bool:
    """Whether every device has what it wants, but for the summands."""
    placed = {device: place._replace(summand=0) for device, place in want.places.items()}
    return have.rows == want.rows and have.columns == want.columns and have.places == placed


def _unit(features: int, pieces: int) -> int:
    """Features that stay together, of so many pieces (see Grain)."""
    return features // pieces if pieces > 1 and features % pieces == 0 else 1
