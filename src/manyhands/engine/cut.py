"""Cut: a layer of a model, of whose weights a rank has the part that a plan gives it.

The module stays the one it is, with smaller weights; its forward takes a part of the results before it, brought to
where the layer's own split wants them, and gives a part. A rank that has no part of the layer, or no samples, goes
through the same motions with no rows: so all ranks carry out one program, and nobody waits in vain.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils._pytree import tree_map_only

from manyhands.engine.batchnorm import GlobalBatchNorm
from manyhands.engine.part import Part, along, moved_like, part_of
from manyhands.engine.post import Lay, Post, absent, summed
from manyhands.errors import PlanError
from manyhands.graph.graph import Layer
from manyhands.plan.layout import Span, edges, made, taken
from manyhands.plan.layout import part_of as place_of
from manyhands.plan.partition import feature_dim, ways
from manyhands.plan.split import Split

Spans = tuple[Span, ...]  # of a tensor, by dimension


@dataclass
class Cut:
    """One layer on one rank."""

    name: str
    module: nn.Module
    layer: Layer
    split: Split
    post: Post
    group: Any = None  # with whom results are added up
    types: dict[tuple[bool, ...], torch.dtype] = field(default_factory=dict)  # of results, by what decides them

    def __post_init__(self) -> None:
        self.same = ways(self.layer, self.layer.output[0]).same
        self.reduces = not self.same and self.split.reduction > 1
        self.part = place_of(self.split, self.post.rank)
        self.run: Callable[..., Any] = self.module.forward
        self.shapes = {name: each.shape for name, each in self._tensors()}
        self.pieces = {name: self._pieces(name) for name in self.shapes}
        self._keep_own()
        self.module.forward = self.forward

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.module.named_parameters(recurse=False)
        yield from self.module.named_buffers(recurse=False)

    def _pieces(self, name: str) -> dict[Spans, int]:
        """Each different part of a weight, and the first rank that has it."""
        found: dict[Spans, int] = {}
        for device in self.split.devices:
            if (where := self._where(name, place_of(self.split, device))) is not None:
                found.setdefault(where, device)
        return found

    def _where(self, name: str, part: tuple[int, int, int] | None) -> Spans | None:
        """What a part has of a weight; none of a bias that another one adds."""
        if part is None or (name == "bias" and self.reduces and part[2]):
            return None
        shape, (_, parameter, reduction) = self.shapes[name], part
        by_output, by_input = _dimensions(self.module, name)
        where = [Span(0, size) for size in shape]
        for dim, degree, number in (
            (by_output, self.split.parameter, parameter),
            (by_input, self.split.reduction, reduction),
        ):
            if dim is not None and dim < len(shape) and degree > 1:  # a count of batches has no dimension
                bounds = edges(shape[dim], degree)
                where[dim] = Span(bounds[number], bounds[number + 1])
        return tuple(where)

    def owned(self, name: str) -> list[Spans]:
        """The parts of a weight that this rank is the one to tell."""
        return [where for where, owner in self.pieces[name].items() if owner == self.post.rank]

    def mine(self, name: str) -> Spans | None:
        """What this rank has of a weight."""
        return self._where(name, self.part)

    def _keep_own(self) -> None:
        """Let the module have this rank's part of each weight, and nothing of the others."""
        for name, each in list(self._tensors()):
            where = self.mine(name)
            if where is None:
                setattr(self.module, name, None)
            elif tuple(span.size for span in where) != each.shape:
                mine = each.detach()[slices(where)].clone()
                if isinstance(each, nn.Parameter):
                    setattr(self.module, name, nn.Parameter(mine, each.requires_grad))
                else:
                    self.module.register_buffer(name, mine)

    def forward(self, *given: Any, **named: Any) -> Any:
        main = along(
            next(each for each in given if isinstance(each, Part)), feature_dim(self.layer, self.layer.inputs[0])
        )
        features = main.lay.layout.columns[-1]
        unit = features // self.layer.groups if self.layer.kind == "attention" else 1
        want = main.lay._replace(layout=taken(self.split, features, self.same, unit))
        given, named = tree_map_only(Part, lambda part: moved_like(along(part, want.dim), want), (given, named))
        with self.post.drawing(want.layout) if self._draws else nullcontext():
            result = self._computed(want, given, named)
        first = result[0] if isinstance(result, tuple) else result
        lay = self._made(want)
        dtype = self._agreed(first)
        if first is None:
            shape = list(self.layer.output[1:])
            shape[lay.dim - 1] = lay.layout.block(self.post.rank, 1).columns.size or shape[lay.dim - 1]
            first = absent(self.post, shape, [each for each in given if isinstance(each, Tensor)], dtype)
        if self.reduces and self.part is not None:
            first = summed(first, self.group)
        first = part_of(first, self.post, lay)
        if isinstance(result, tuple):
            return first, *result[1:]
        return (first, None) if isinstance(self.module, nn.RNNBase) else first

    @property
    def _draws(self) -> bool:
        """Whether random numbers are drawn in it."""
        chance = getattr(self.module, "dropout" if isinstance(self.module, nn.RNNBase) else "p", 0.0)
        return self.module.training and isinstance(chance, float) and chance > 0

    def _computed(self, want: Lay, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What the module makes of this rank's rows, None of none."""
        norm = self.module if isinstance(self.module, GlobalBatchNorm) and self.module.training else None
        if want.layout.span(self.post.rank, want.rows).size:
            if norm is not None:
                norm.muted = False
            return self.run(*given, **named)
        if norm is None or self.part is None:
            return None
        # Others wait for this rank in a batch norm: it takes part with a row that does not count.
        norm.muted = True
        return self.run(torch.cat([given[0], given[0].new_zeros(1, *given[0].shape[1:])]))[:0]

    def _agreed(self, result: Tensor | None) -> torch.dtype:
        """The type of the results, as those have it that computed some; asked once."""
        key = (self.module.training, torch.is_autocast_enabled("cpu"), torch.is_grad_enabled())
        if key not in self.types:
            told: list[torch.dtype | None] = [None] * dist.get_world_size()
            dist.all_gather_object(told, None if result is None else result.dtype)
            self.types[key] = next(each for each in told if each is not None)
        return self.types[key]

    def _made(self, want: Lay) -> Lay:
        """Where the results lie."""
        output = self.layer.output
        dim = feature_dim(self.layer, output)
        if self.layer.kind == "pointwise" and len(output) == len(self.layer.inputs[0]):
            dim = want.dim
        if self.same and self.split.parameter > 1:
            before = want.layout.columns
            columns = tuple(each * output[dim] // before[-1] for each in before)
            return Lay(replace(want.layout, columns=columns), want.rows, dim)
        return Lay(made(self.split, output[dim] if dim else 1), want.rows, dim)


def slices(where: Spans) -> tuple[slice, ...]:
    return tuple(slice(span.begin, span.end) for span in where)


def _dimensions(module: nn.Module, name: str) -> tuple[int | None, int | None]:
    """Where a weight is cut by parameter, and where by reduction."""
    if name == "bias" and isinstance(module, nn.Linear | _ConvNd):
        return 0, None
    if isinstance(module, _ConvTransposeNd):
        return 1, 0
    if isinstance(module, nn.Linear | _ConvNd):
        return 0, 1
    if isinstance(module, nn.Embedding):
        return 1, None
    if isinstance(module, _NormBase):
        return 0, None
    return None, None


def check(module: nn.Module, layer: Layer, split: Split) -> None:
    """Refuse what cannot be cut so."""
    cut = split.parameter * split.reduction > 1
    known = isinstance(module, nn.Linear | _ConvNd | nn.Embedding | _NormBase)
    if cut and not known and any(True for _ in module.parameters(recurse=False)):
        raise PlanError(
            f"layer {layer.name} ({type(module).__name__}) cannot be cut by its features: only its samples can; "
            "use sample in its split"
        )
