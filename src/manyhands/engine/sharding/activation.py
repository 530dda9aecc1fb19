"""Activation: a rank's part of a result, that knows where the rest of it lies.

A model's own code between its layers (`x + shortcut`, `torch.flatten(x, 1)`) runs on parts as it is. Where samples are
cut, it does what it would with fewer samples. Where features are cut, what works on each number by itself goes on;
before anything else the features of a sample are brought together. Sizes are those of all features.

What is changed in place is changed where it lies. Where it had to be brought elsewhere first, the part is from then on
what it was brought to; what is still a view of the old one is refused when it is used again (see Kin).

A rank that has none of the samples goes through the same code: sizes say one sample there, and what cannot be done with
no rows is done with one of ones, to learn its shape.
"""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from math import prod
from typing import Any

import torch
from torch import Tensor

from manyhands.compat import DisableTorchFunctionSubclass, storage_id
from manyhands.engine.sharding.elementwise import (
    ASKED,
    DECIDES,
    ELEMENTWISE,
    PASSES,
    RANDOM,
    SHAPED,
    SIZES,
    changes,
    keeps_samples,
    name_of,
)
from manyhands.engine.sharding.pytree import mapped, tensors
from manyhands.engine.sharding.redistribute import Lay, Post, absent
from manyhands.errors import ModelError
from manyhands.plan.tensor_layout import Layout, Place


class Kin:
    """What a tensor and all views of it have in common: how often it was changed, and in which memory last.

    On one device a view and what it is a view of are one memory. Here a view may be one of a copy: of all features,
    brought together. After a change only those that share its memory are still right.
    """

    def __init__(self) -> None:
        self.changed, self.memory = 0, 0
        self.latest: Tensor | None = None  # what a change gave on a rank without samples, whose memory holds nothing


class Known(Tensor):
    """What is made of parts; changes in place are seen."""

    kin: Kin
    seen: int  # changes that are in it
    some: bool  # whether it is made of some of the batch's samples, and other ranks have another one

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Of results that have not their samples first, and other tensors: as ever."""
        if any(issubclass(each, Part) for each in types):
            return NotImplemented
        kwargs, name = kwargs or {}, name_of(func)
        known = tensors(Known, (args, kwargs))
        with DisableTorchFunctionSubclass():
            some = any(each.some for each in known)
            if name in DECIDES and some:
                _refuse_decision(name)
            if name not in ASKED and name not in SIZES:
                for each in known:
                    current(each, name)
            result = func(*args, **kwargs)
            if changes(name, kwargs):
                _changed(args[0])
                return result
            return mapped(Tensor, lambda tensor: _view(tensor, known, some), result)


class Part(Known):
    """Made by `part_of`; what comes of parts is a part as well."""

    lay: Lay
    post: Post
    stage: int  # in which it was made
    now: "Part | None"  # what it has become, changed in place elsewhere
    # Where it lies by now as well: whether gradients come back from there, and after how many changes.
    brought: dict[tuple[Layout, bool, int], Tensor]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, name_of(func)
        with DisableTorchFunctionSubclass():
            if name in ASKED or (name.endswith("=") and name != "data="):
                return func(*args, **kwargs)
            if name in SIZES:
                return _size(name, current(args[0], name), *args[1:], **kwargs)
            if name in DECIDES and any(each.some for each in tensors(Part, (args, kwargs))):
                _refuse_decision(name)
            target = args[0] if args and changes(name, kwargs) else None
            args, kwargs = before = mapped(Known, lambda each: current(each, name), (args, kwargs))
            if tensors(Part, kwargs.get("out", ())):
                raise ModelError(f"{name} with out= changes a tensor of which each rank has a part: leave out= out")
            parts = tensors(Part, (args, kwargs))
            # Where the latest stage has its results: it is for earlier ones to send, never to wait for a later one.
            latest = max(parts, key=lambda part: part.stage)
            post, lay = latest.post, latest.lay
            given = None
            if not lay.layout.whole:
                alone = name in ELEMENTWISE and (target is None or isinstance(target, Part))
                given = _aligned(latest, before) if alone else None
                lay = lay if given else lay.together()
            args, kwargs = given or mapped(Part, lambda part: moved_like(part, lay), before)
            has_rows = lay.layout.span(post.rank, lay.rows).size > 0
            with post.drawing(lay.layout) if name in RANDOM else nullcontext():
                result = func(*args, **kwargs) if has_rows else _of_no_rows(post, func, target, args, kwargs)
            if target is not None:
                return _change(target, args[0] if has_rows else result, result, lay)
            keeps = not args or keeps_samples(name, args[0], args[1:], kwargs)
            # Most results are their own; a view has to know of what.
            own = name in ELEMENTWISE and name not in PASSES
            sources = [] if own else list(zip(tensors(Tensor, before), tensors(Tensor, (args, kwargs)), strict=True))
            return mapped(Tensor, lambda tensor: _wrapped(tensor, post, lay, keeps, sources), result)


def _view(tensor: Tensor, known: Sequence[Known], some: bool) -> Tensor:
    """A result, which is to know of what it is a view."""
    kin = next((each.kin for each in known if _memory(each) == _memory(tensor)), None)
    return _known(tensor, kin, some) if kin or some else tensor


def part_of(tensor: Tensor, post: Post, lay: Lay, kin: Kin | None = None) -> Part:
    part = tensor.as_subclass(Part)
    part.lay, part.post, part.stage, part.brought, part.now = lay, post, post.on_way.stage, {}, None
    part.kin, part.some = kin or Kin(), _of_some(lay.layout, post)
    part.seen = part.kin.changed
    return part


def plain(part: Tensor) -> Tensor:
    with DisableTorchFunctionSubclass():
        return part.as_subclass(Tensor)


def current(known: Known, name: str) -> Known:
    """What a tensor is by now; refuses one that a change has passed by."""
    asked = known
    if isinstance(known, Part) and known.now is not None:
        known = known.now
    if known.seen != known.kin.changed:
        if known.kin.latest is not None:
            if not isinstance(known, Part) or not isinstance(asked, Part):
                return known
            # Made once a change: with rows it is brought elsewhere once, however often it is used.
            asked.now = _none_of(known, known.kin.latest)
            return asked.now
        if known.kin.memory != _memory(known):
            raise ModelError(
                f"{name or 'the model'} uses a tensor of which a view was changed in place, and each rank has a part "
                "of it: change a copy instead (x = x.clone() before, or x = x * mask), or use data:N"
            )
        known.seen = known.kin.changed
    return known


def _none_of(part: Part, latest: Tensor) -> Part:
    """No rows, which depend on a change as they do where there are rows."""
    inputs = [plain(part), plain(latest)]
    with torch.enable_grad():  # whoever uses it first: later uses may learn
        none = part_of(absent(part.post, part.shape[1:], inputs, part.dtype), part.post, part.lay, part.kin)
    none.stage = part.stage
    return none


def moved_like(part: Part, lay: Lay) -> Tensor:
    """A part as a plain tensor, with the rows of another and, if it has as many features, their columns.

    What several layers take, such as that to which a shortcut leads, goes there once, and one gradient comes back.
    """
    return _moved(part, _wanted(part, lay))


def _wanted(part: Part, lay: Lay) -> Layout:
    if part.lay.dim != lay.dim or part.lay.layout.columns[-1] != lay.layout.columns[-1]:
        return lay.layout.of(part.lay.layout.columns[-1])
    return lay.layout


def _moved(part: Part, want: Layout) -> Tensor:
    if part.lay.layout == want:
        return plain(part)
    key = want, torch.is_grad_enabled(), part.kin.changed
    if key not in part.brought:
        part.brought[key] = part.post.moved(plain(part), part.lay, want)
    return part.brought[key]


def along(part: Part, dim: int) -> Part:
    """The same with its features counted in another dimension, for which they must be together."""
    if part.lay.dim == dim or dim >= part.dim():
        return part
    if not part.lay.layout.whole:
        lay = part.lay.together()
        part = part_of(moved_like(part, lay), part.post, lay)
    return part_of(plain(part), part.post, Lay(part.lay.layout.of(part.shape[dim]), part.lay.rows, dim), part.kin)


def become(part: Part, tensor: Tensor, lay: Lay) -> None:
    """Of a part that was changed in place: in its own memory, or where it was brought to, which it is from now on."""
    now = part if part.now is None else part.now
    if _memory(tensor) != _memory(now):
        now = part.now = part_of(tensor, part.post, lay, part.kin)
    _changed(now)


def kin_of(tensor: Tensor, part: Known, given: Any) -> Kin | None:
    """A part's kin, where a tensor is a view of what the part was brought to."""
    return part.kin if isinstance(given, Tensor) and _memory(tensor) == _memory(given) else None


def feature_dim(tensor: Tensor) -> int:
    """Where features lie: after the samples in images, last in tokens and tables."""
    return 1 if tensor.dim() > 3 else tensor.dim() - 1


def _memory(tensor: Tensor) -> int:
    """Which memory it lies in."""
    with DisableTorchFunctionSubclass():
        return storage_id(tensor)


def _changed(known: Tensor) -> None:
    if isinstance(known, Known):
        known.kin.changed += 1
        known.kin.memory, known.seen = _memory(known), known.kin.changed
        known.kin.latest = plain(known) if isinstance(known, Part) and not known.numel() else None


def _size(name: str, part: Known, dim: int | None = None) -> Any:
    """With all features of this rank's samples."""
    assert isinstance(part, Part)
    sizes = list(Tensor.size(part))
    if not part.lay.layout.whole:
        sizes[part.lay.dim] = part.lay.layout.columns[-1]
    sizes[0] = sizes[0] or 1  # as the stand-in of a rank without samples
    if name in ("numel", "nelement"):
        return prod(sizes)
    if name == "__len__":
        return sizes[0]
    return torch.Size(sizes) if dim is None else sizes[dim]


def _aligned(latest: Part, given: Any) -> Any:
    """What an elementwise function is given, each with the columns of the latest part; None where they do not fit.

    torch lines dimensions up from the last one. What has one feature, or none, goes with every column: each rank has a
    summand of its gradient then.
    """
    lay, count = latest.lay, latest.dim()
    layout, back = lay.layout, lay.dim - count
    columns = layout.columns[-1]
    for each in tensors(Tensor, given):
        dim = each.dim() + back
        size = _size("size", each)[dim] if isinstance(each, Part) and dim >= 0 else each.shape[dim] if dim >= 0 else 1
        is_part = isinstance(each, Part)
        if size not in (1, columns) or each.dim() > count or (is_part and each.dim() != count):
            return None
        if not is_part and each.requires_grad:
            return None  # of many parts, perhaps: its gradient must be whole on every rank

    summands = {device: Place(place.row, 0, place.column) for device, place in layout.places.items()}
    alike = Layout(layout.rows, (0, 1), summands)
    own = layout.block(latest.post.rank, lay.rows).columns

    def bring(tensor: Tensor) -> Tensor:
        dim = tensor.dim() + back
        if isinstance(tensor, Part):
            part = along(tensor, lay.dim)
            return _moved(part, layout if part.lay.layout.columns[-1] == columns else alike)
        if dim < 0 or tensor.shape[dim] == 1 or columns == 1:
            return plain(tensor)
        # A rank that has no part of it has no rows, but columns as a layer's absent results have them.
        return plain(tensor).narrow(dim, own.begin, own.size) if own.size else plain(tensor)

    return mapped(Tensor, bring, given)


def _of_no_rows(post: Post, func: Any, target: Any, args: Any, kwargs: Any) -> Any:
    """The result of a function on a rank that has none of the samples; what learns goes on depending on it."""
    inputs = tensors(Tensor, (args, kwargs))
    if target is not None:
        first = args[0]
        return absent(post, first.shape[1:], inputs, first.dtype) if isinstance(target, Part) else first
    if name_of(func) not in SHAPED:
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("error")
            return func(*args, **kwargs)
    args, kwargs = mapped(Tensor, _stand_in, (args, kwargs))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = func(*args, **kwargs)

    def nothing(tensor: Tensor) -> Tensor:
        is_sample = tensor.dim() > 0 and len(tensor) == 1
        return absent(post, tensor.shape[1:], inputs, tensor.dtype) if is_sample else tensor

    return mapped(Tensor, nothing, result)


def _stand_in(tensor: Tensor) -> Tensor:
    return tensor.new_ones(1, *tensor.shape[1:]) if tensor.dim() and not len(tensor) else tensor


def _refuse_decision(name: str) -> None:
    raise ModelError(
        f"the model asks for a number of a batch ({name}), of which each rank has other samples: ranks could go on in "
        "different ways; use torch.where, or data:N"
    )


def _of_some(layout: Layout, post: Post) -> bool:
    """Whether a rank has not all samples with all their features."""
    return layout.rows > 1 or not layout.whole or len(layout.places) < post.world


def _change(target: Any, changed: Tensor, result: Any, lay: Lay) -> Any:
    """After a function that has changed its first argument: the target, or what that was brought to."""
    if isinstance(target, Part):
        part = current(target, "")
        assert isinstance(part, Part)
        become(target, changed, Lay(_wanted(part, lay), lay.rows, part.lay.dim))
    else:  # another tensor takes what parts have
        _changed(target)
    return target if isinstance(result, Tensor) else result


def _known(tensor: Tensor, kin: Kin | None, some: bool) -> Known:
    view = tensor.as_subclass(Known)
    view.kin, view.some = kin or Kin(), some
    view.seen = view.kin.changed
    return view


def _wrapped(tensor: Tensor, post: Post, lay: Lay, keeps: bool, sources: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Results with samples first are parts; others, such as a mean over all, are not.

    `sources`: what a function was given, and what these were brought to.
    """
    found = (kin_of(tensor, part, given) for part, given in sources if isinstance(part, Known))
    kin = next((each for each in found if each), None)
    place = lay.layout.span(post.rank, lay.rows)
    if tensor.dim() < 1 or not keeps or tensor.shape[0] != place.size:
        some = _of_some(lay.layout, post)
        return _known(tensor, kin, some) if kin or some else tensor
    if not lay.layout.whole:
        return part_of(tensor, post, lay, kin)
    dim = feature_dim(tensor)
    return part_of(tensor, post, Lay(lay.layout.of(tensor.shape[dim] if dim else 1), lay.rows, dim), kin)
