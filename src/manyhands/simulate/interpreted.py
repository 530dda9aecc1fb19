"""Interpreted: a compiled function as Python itself runs it, for the few simulations that do not repay compiling."""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher


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
