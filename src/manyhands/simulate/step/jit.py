"""JIT: how numba compiles the step simulator, and how Python runs it uncompiled where compiling does not pay."""

# mypy: disable-error-code="no-untyped-def"
import hashlib
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher

from manyhands.files import home


def interpreted(compiled: Any) -> Callable[..., Any]:
    """The same function, and all that it calls, uncompiled."""
    made: dict[FunctionType, FunctionType] = {}

    def twin(function: FunctionType) -> FunctionType:
        if function not in made:
            names = dict(function.__globals__)
            made[function] = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
            for name in function.__code__.co_names:
                if isinstance(names.get(name), Dispatcher):
                    names[name] = twin(names[name].py_func)
        return made[function]

    return twin(compiled.py_func)


def is_compiled(function: Any) -> bool:
    """Whether it was, now or by an earlier process that kept it."""
    if function.signatures:
        return True
    name = f"{Path(function.py_func.__code__.co_filename).stem}.{function.__name__}-*.nbi"
    return any(Path(numba.config.CACHE_DIR).rglob(name))  # type: ignore[attr-defined]


# numba looks only at a function's own file to see whether what it compiled still holds, not at those of the functions
# that it calls: so a folder for each state of the sources, below that of numba's own setting where there is one.
_sources = sorted(path for room in ("step", "search") for path in (Path(__file__).parents[1] / room).glob("*.py"))
sources_hash = hashlib.sha256(b"".join(path.read_bytes() for path in _sources)).hexdigest()[:16]
numba.config.CACHE_DIR = str(Path(numba.config.CACHE_DIR or home() / "compiled") / sources_hash)  # type: ignore[attr-defined]

# What Python calls is an entry; the rest is compiled into it. Nothing in it allocates, so that nothing needs to count
# references to arrays, which would take half of the time. A large function with one caller is put into that before
# either is compiled: every further layer of calls is optimized again with each layer above it.
_options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
_inner = {**_options, "no_cpython_wrapper": True}
compiled = numba.njit(**_inner, forceinline=True)
inlined = numba.njit(**_options, inline="always")
entry = numba.njit(**_options, cache=True)
