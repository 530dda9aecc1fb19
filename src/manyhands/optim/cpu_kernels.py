"""CPU kernels: what LARS and LAMB do with every element, as loops over memory that numba compiles.

A step is bound by memory, and torch would go through it many times: the sums of squares alone cost more than half a
step of its fused SGD. Here a layer is read for its norms, and once more, at best from the cache, to be changed. A pass
goes over all layers in one call, for a call with arrays costs more than a small layer. It is done by torch's own
threads: after each of its operations they wait for the next one busily, for milliseconds, and would be in the way of
others.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
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
from manyhands.optim.layerwise import ratio

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


def _to_next(context: Any, address: Any) -> Any:
    """Count one up, whichever thread is the first; gives the number before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        pointer = builder.inttoptr(arguments[0], number.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(number, 1), "monotonic")

    return types.int64(types.intp), generate


_pointer: Any = intrinsic(_to_pointer)
_fetch: Any = intrinsic(_to_fetch)
_next: Any = intrinsic(_to_next)
_carray: Any = numba.carray  # type: ignore[attr-defined]


@_inner
def _row(address: int, size: int, like: Array) -> Array:
    array: Array = _carray(_pointer(address), size, like.dtype)
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
def _strands(x: Array, at: int) -> float:
    """The squares of a row, read in four places at a time: one core alone reads 1.6 times as fast, two 1.1 times."""
    quarter = x.size // (4 * PAGE) * PAGE
    total = 0.0
    for start in range(0, quarter, PAGE):
        for each in range(4):
            _fetch(at + (each * quarter + start + PAGE) * x.itemsize)
        p, q = x[start : start + PAGE], x[quarter + start : quarter + start + PAGE]
        r, s = x[2 * quarter + start : 2 * quarter + start + PAGE], x[3 * quarter + start : 3 * quarter + start + PAGE]
        a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for i in range(PAGE):
            a += p[i] * p[i]
            b += q[i] * q[i]
            c += r[i] * r[i]
            d += s[i] * s[i]
        total += float(a) + float(b) + float(c) + float(d)
    for start in range(4 * quarter, x.size, PAGE):
        total += _page(x[start : start + PAGE])
    return total


@_inner
def _squares(w: Array, g: Array, at: Array, known: Any) -> tuple[float, float]:
    """Of both, or of g alone; those of w in the order in which an update tells them."""
    first = 0.0
    if not known:
        for start in range(0, w.size, PAGE):
            _fetch(at[0] + (start + PAGE) * w.itemsize)
            first += _page(w[start : start + PAGE])
    return first, _strands(g, at[1])


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


# Passes in shares, which threads take one after the other. numba does not keep what takes a kernel as an argument.


@_inner
def _shares(address: int) -> Iterator[tuple[Array, ...]]:
    head = _carray(_pointer(address), 10, np.int64)
    shares, rows, arrays, width = head[1], head[2], head[3], head[4]
    share = _next(address)
    while share < shares:
        first = share * rows
        yield (
            _carray(_pointer(head[5] + 8 * first * arrays), (rows, arrays), np.int64),
            _carray(_pointer(head[6] + 8 * first), rows, np.int64),
            _carray(_pointer(head[7] + 8 * first * width), (rows, width), np.float64),
            _carray(_pointer(head[8] + 16 * first), (rows, 2), np.float64),
            _carray(_pointer(head[9] + 4 * share * width), width, np.float32),
        )
        share = _next(address)


def _share_squares(head: int) -> None:
    for share in _shares(head):
        squares(*share)


def _share_lars(head: int) -> None:
    for share in _shares(head):
        lars(*share)


def _share_lars_whole(head: int) -> None:
    for share in _shares(head):
        lars_whole(*share)


def _share_moments(head: int) -> None:
    for share in _shares(head):
        moments(*share)


def _share_lamb(head: int) -> None:
    for share in _shares(head):
        lamb(*share)


def _share_lamb_whole(head: int) -> None:
    for share in _shares(head):
        lamb_whole(*share)


SHARED: dict[Any, Any] = {
    squares: _share_squares,
    lars: _share_lars,
    lars_whole: _share_lars_whole,
    moments: _share_moments,
    lamb: _share_lamb,
    lamb_whole: _share_lamb_whole,
}


@cache
def _compiled(kernel: Kernel) -> Any:
    return numba.cfunc(types.void(types.intp), cache=True, error_model="numpy")(SHARED[kernel])


@cache
def _parallel() -> Callable[[int, int, int, int], object]:
    """What lets torch's threads call a function, where they are OpenMP's; else threads of our own."""
    try:
        found = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return _beside
    found.argtypes, found.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return found


def _beside(address: int, head: int, threads: int, flags: int) -> None:
    call = ctypes.CFUNCTYPE(None, ctypes.c_ssize_t)(address)
    others = [_helpers(threads).submit(call, head) for _ in range(threads - 1)]
    call(head)
    for each in others:
        each.result()


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "optimizer")


def over(kernel: Kernel, rows: Sequence[Sequence[Tensor]], numbers: Sequence[Sequence[float]]) -> Tensor:
    """A pass in which all threads share every layer; gives the two sums of each."""
    if not rows:
        return torch.zeros(0, 2, dtype=torch.float64)
    kind, at, sizes, given = _arrays(rows, numbers)
    threads = torch.get_num_threads()
    edges = sizes * np.arange(threads + 1)[:, None] // threads
    begins = at + kind.itemsize * edges[:-1, :, None]
    parts, counts = begins.reshape(-1, at.shape[1]), np.diff(edges, axis=0).ravel()
    told = _shared_out(kernel, kind, parts, counts, np.tile(given, (threads, 1)), threads)
    return torch.from_numpy(told.reshape(threads, len(rows), 2).sum(0))


def each(kernel: Kernel, rows: Sequence[Sequence[Tensor]], numbers: Sequence[Sequence[float]]) -> Tensor:
    """A pass in which a layer is done by one thread, the largest first; gives the two sums of each."""
    kind, at, sizes, given = _arrays(rows, numbers)
    if torch.get_num_threads() == 1:
        return torch.from_numpy(_shared_out(kernel, kind, at, sizes, given, 1))
    order = np.argsort(-sizes, kind="stable")
    told = np.empty((len(rows), 2))
    told[order] = _shared_out(kernel, kind, at[order], sizes[order], given[order], len(rows))
    return torch.from_numpy(told)


def _arrays(rows: Sequence[Sequence[Tensor]], numbers: Sequence[Sequence[float]]) -> tuple[Any, Array, Array, Array]:
    """The type of all, and for each layer addresses, size and numbers."""
    at = np.array([[tensor.data_ptr() for tensor in row] for row in rows])
    return TYPES[rows[0][0].dtype], at, np.array([row[0].numel() for row in rows]), np.array(numbers, np.float64)


def _shared_out(kernel: Kernel, kind: Any, at: Array, sizes: Array, numbers: Array, shares: int) -> Array:
    """Run a kernel over rows in so many equal shares; two sums of each row. In fp64, which is rare, one thread does."""
    told = np.zeros((len(sizes), 2))
    own = np.empty((shares, numbers.shape[1]), kind)
    if shares == 1 or kind.itemsize > 4:
        kernel(at, sizes, numbers, told, own[0])
        return told
    given = [np.ascontiguousarray(each) for each in (at, sizes, numbers)]  # held until it is done
    places = [each.ctypes.data for each in (*given, told, own)]
    head = np.array([0, shares, len(sizes) // shares, at.shape[1], numbers.shape[1], *places])
    _parallel()(_compiled(kernel).address, head.ctypes.data, torch.get_num_threads(), 0)
    return told
