"""Passes: what LARS and LAMB do with every element, as loops over memory that numba compiles.

A step is bound by memory, and torch would go through it many times: the sums of squares alone cost more than half a
step of its fused SGD. Here a layer is read for its norms, and once more, at best from the cache, to be changed. A pass
goes over all layers in one call, for a call with arrays costs more than a small layer; it is done by as many threads as
torch has.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from manyhands.files import home
from manyhands.optim.trust import ratio

Array = NDArray[Any]
Kernel = Callable[..., None]

PAGE = 1024  # elements: the squares of so many are added up in their own type, before those of all pages in fp64
TYPES = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}

# Where it can be written, whichever folder the package is in.
numba.config.CACHE_DIR = numba.config.CACHE_DIR or str(home() / "compiled")  # type: ignore[attr-defined]

# No assumption that there is no NaN: one must come through, for it to be seen that a training diverges.
_FAST = {"reassoc", "nsz", "arcp", "contract"}
_inner = numba.njit(nogil=True, error_model="numpy", fastmath=_FAST)
_entry = numba.njit(nogil=True, error_model="numpy", fastmath=_FAST, cache=True)

_ratio = _inner(ratio)


def _to_pointer(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), generate


def _to_fetch(context: Any, address: Any) -> Any:
    """Begin to fetch what is there, and first of all to find its page: that takes as long as to read all of it.

    The next page of every array is asked for before this one is worked on: LARS's update is 1.2 times as fast by it.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        form = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        pointer = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        builder.call(fetch, [pointer, *(ir.Constant(number, each) for each in (0, 3, 1))])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(types.intp), generate


_pointer: Any = intrinsic(_to_pointer)
_fetch: Any = intrinsic(_to_fetch)


@_inner
def _row(address: int, size: int, like: Array) -> Array:
    array: Array = numba.carray(_pointer(address), size, like.dtype)  # type: ignore[attr-defined]
    return array


# What is done with the arrays of one layer.


@_inner
def _page(x: Array) -> float:
    """The squares of a page, in the same order wherever they are asked for."""
    a = np.float32(0)
    for i in range(x.size):
        a += x[i] * x[i]
    return float(a)


@_inner
def _squares(w: Array, g: Array, at: Array, known: Any) -> tuple[float, float]:
    """Of both, or of g alone."""
    first, second = 0.0, 0.0
    for start in range(0, w.size, PAGE):
        end = start + PAGE
        _fetch(at[1] + end * w.itemsize)
        if not known:
            _fetch(at[0] + end * w.itemsize)
            first += _page(w[start:end])
        second += _page(g[start:end])
    return first, second


@_inner
def _lars(w: Array, g: Array, v: Array, at: Array, momentum: Any, rate: Any, decay: Any) -> float:
    """The squares of what w becomes, while it is in the cache."""
    squares = 0.0
    for start in range(0, w.size, PAGE):
        end = start + PAGE
        for each in range(3):
            _fetch(at[each] + end * w.itemsize)
        x, y, z = w[start:end], g[start:end], v[start:end]
        for i in range(x.size):
            speed = momentum * z[i] + rate * (y[i] + decay * x[i])
            z[i] = speed
            x[i] -= speed
        squares += _page(x)
    return squares


@_inner
def _moments(w: Array, g: Array, m: Array, v: Array, at: Array, numbers: Array) -> tuple[float, float]:
    """Let m and v learn, and put r + λ w in the gradient's place; the squares of w, and of that.

    To make it a second time, which takes a root and a quotient, costs more than to read it.
    """
    keep1, add1, keep2, add2, times, eps, decay = numbers[:7]
    first, second = 0.0, 0.0
    for start in range(0, w.size, PAGE):
        end = start + PAGE
        for each in range(4):
            _fetch(at[each] + end * w.itemsize)
        x, y, p, q = w[start:end], g[start:end], m[start:end], v[start:end]
        a, b = np.float32(0), np.float32(0)
        for i in range(x.size):
            mean = keep1 * p[i] + add1 * y[i]
            variance = keep2 * q[i] + add2 * y[i] * y[i]
            p[i] = mean
            q[i] = variance
            u = times * mean / (np.sqrt(variance) + eps) + decay * x[i]
            y[i] = u
            a += x[i] * x[i]
            b += u * u
        first += float(a)
        second += float(b)
    return first, second


@_inner
def _lamb(w: Array, u: Array, at: Array, rate: Any) -> None:
    for start in range(0, w.size, PAGE):
        end = start + PAGE
        for each in range(2):
            _fetch(at[each] + end * w.itemsize)
        x, y = w[start:end], u[start:end]
        for i in range(x.size):
            x[i] -= rate * y[i]


# Passes over many: each takes the addresses and sizes of the arrays of each layer, numbers for each, a place to tell
# two sums of each, and a place for the numbers in the type of the arrays.


@_entry
def squares(at: Array, sizes: Array, numbers: Array, told: Array, own: Array) -> None:
    for row in range(sizes.size):
        a, n = at[row], sizes[row]
        told[row] = _squares(_row(a[0], n, own), _row(a[1], n, own), a, numbers[row, 0])


@_entry
def lars(at: Array, sizes: Array, numbers: Array, told: Array, own: Array) -> None:
    for row in range(sizes.size):
        own[:] = numbers[row]
        a, n = at[row], sizes[row]
        told[row, 0] = _lars(_row(a[0], n, own), _row(a[1], n, own), _row(a[2], n, own), a, own[0], own[1], own[2])


@_entry
def lars_whole(at: Array, sizes: Array, numbers: Array, told: Array, own: Array) -> None:
    for row in range(sizes.size):
        own[:] = numbers[row]
        a, n = at[row], sizes[row]
        w, g, v = _row(a[0], n, own), _row(a[1], n, own), _row(a[2], n, own)
        _, rate, decay, trusted, known, before = numbers[row]
        if trusted:
            first, second = _squares(w, g, a, known)
            norm = np.sqrt(before if known else first)
            own[1] = rate * _ratio(norm, np.sqrt(second) + decay * norm)
        told[row, 0] = _lars(w, g, v, a, own[0], own[1], own[2])


@_entry
def moments(at: Array, sizes: Array, numbers: Array, told: Array, own: Array) -> None:
    for row in range(sizes.size):
        own[:] = numbers[row]
        a, n = at[row], sizes[row]
        told[row] = _moments(_row(a[0], n, own), _row(a[1], n, own), _row(a[2], n, own), _row(a[3], n, own), a, own)


@_entry
def lamb(at: Array, sizes: Array, numbers: Array, told: Array, own: Array) -> None:
    for row in range(sizes.size):
        own[:] = numbers[row]
        a, n = at[row], sizes[row]
        _lamb(_row(a[0], n, own), _row(a[1], n, own), a, own[0])


@_entry
def lamb_whole(at: Array, sizes: Array, numbers: Array, told: Array, own: Array) -> None:
    for row in range(sizes.size):
        own[:] = numbers[row]
        a, n = at[row], sizes[row]
        w, g, m, v = _row(a[0], n, own), _row(a[1], n, own), _row(a[2], n, own), _row(a[3], n, own)
        first, second = _moments(w, g, m, v, a, own)
        rate, trusted = numbers[row, 7:]
        if trusted:
            own[7] = rate * _ratio(np.sqrt(first), np.sqrt(second))
        _lamb(w, g, a, own[7])


def over(kernel: Kernel, rows: Sequence[Sequence[Tensor]], numbers: Sequence[Sequence[float]]) -> Tensor:
    """A pass in which all threads share every layer; gives the two sums of each."""
    if not rows:
        return torch.zeros(0, 2, dtype=torch.float64)
    kind, at, sizes, given = _arrays(rows, numbers)
    threads = torch.get_num_threads()

    def work(thread: int) -> Array:
        begin, end = (sizes * each // threads for each in (thread, thread + 1))
        return _run(kernel, at + kind.itemsize * begin[:, None], end - begin, given, kind)

    return torch.from_numpy(sum(_spread(work, range(threads))))


def each(kernel: Kernel, rows: Sequence[Sequence[Tensor]], numbers: Sequence[Sequence[float]]) -> Tensor:
    """A pass in which a layer is done by one thread, the largest first; gives the two sums of each."""
    kind, at, sizes, given = _arrays(rows, numbers)
    threads = torch.get_num_threads()
    shares: list[list[int]] = [[] for _ in range(threads)]
    taken = [0] * threads
    for row in range(len(rows)) if threads == 1 else np.argsort(-sizes, kind="stable"):
        least = taken.index(min(taken))
        shares[least].append(row)
        taken[least] += int(sizes[row])
    shares = [each for each in shares if each]
    told = _spread(lambda share: _run(kernel, at[share], sizes[share], given[share], kind), shares)
    found = np.zeros((len(rows), 2))
    for share, sums in zip(shares, told, strict=True):
        found[share] = sums
    return torch.from_numpy(found)


def _arrays(rows: Sequence[Sequence[Tensor]], numbers: Sequence[Sequence[float]]) -> tuple[Any, Array, Array, Array]:
    """The type of all, and for each layer addresses, size and numbers."""
    at = np.array([[tensor.data_ptr() for tensor in row] for row in rows])
    return TYPES[rows[0][0].dtype], at, np.array([row[0].numel() for row in rows]), np.array(numbers, np.float64)


def _run(kernel: Kernel, at: Array, sizes: Array, numbers: Array, kind: Any) -> Array:
    told = np.zeros((len(sizes), 2))
    kernel(at, sizes, numbers, told, np.empty(numbers.shape[1], kind))
    return told


def _spread(work: Callable[[Any], Array], shares: Sequence[Any]) -> list[Array]:
    """The first share here, the others in threads of their own."""
    others = [_helpers(len(shares) - 1).submit(work, share) for share in shares[1:]]
    return [work(shares[0]), *(other.result() for other in others)]


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "optimizer")
