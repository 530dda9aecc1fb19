"""User factory: a factory in a file or a module, called with what it asks for."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from manyhands.errors import ModelError


def load(name: str, given: dict[str, Any]) -> nn.Module:
    """Build `file.py:factory` or `package.module:factory`; it takes any of `given` by keyword."""
    source, _, attribute = name.rpartition(":")
    if not source or not attribute:
        raise ModelError(f"'{name}' does not name a factory: write file.py:factory or package.module:factory")
    is_file = source.endswith(".py")
    folder = Path(source).expanduser().resolve().parent if is_file else Path.cwd()
    with _importable(folder):
        module = _from_file(source) if is_file else _from_module(source)
        factory = _attribute(module, attribute, name)
        model = _call(factory, name, given)
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise ModelError(f"{name} returned {kind}, not an nn.Module: let the factory return the model")
    return model


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the user's file import its neighbours, as it could when run as a script."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(folder))


def _from_file(source: str) -> ModuleType:
    path = Path(source).expanduser().resolve()
    if not path.is_file():
        raise ModelError(f"no file {source}: check the path (relative paths start at {Path.cwd()})")
    main = sys.modules["__main__"]
    if (running := getattr(main, "__file__", None)) and Path(running).resolve() == path:
        return main  # the script that asks: running it once more would ask once more
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Pickling and dataclasses look a class's module up by name; a name that is taken stays with its owner.
    ours = path.stem not in sys.modules
    if ours:
        sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if ours:
            sys.modules.pop(path.stem, None)
        raise ModelError(f"{source} cannot be imported ({_line(error)}): try `python {source}`") from error
    return module


def _from_module(source: str) -> ModuleType:
    try:
        return importlib.import_module(source)
    except (Exception, SystemExit) as error:
        repair = "is it installed, or below the current folder?"
        raise ModelError(f"the module {source} cannot be imported ({_line(error)}): {repair}") from error


def _attribute(module: ModuleType, attribute: str, name: str) -> Callable[..., Any]:
    factory = getattr(module, attribute, None)
    if callable(factory):
        return factory  # type: ignore[no-any-return]
    own = (key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
    public = [key for key in own if not key.startswith("_") and callable(getattr(module, key))]
    what = "no" if factory is None else "no callable"
    raise ModelError(f"{name}: the file has {what} '{attribute}'; it has: {', '.join(public) or 'no function'}")


def _call(factory: Callable[..., Any], name: str, given: dict[str, Any]) -> Any:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    by_keyword = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    arguments = {key: value for key, value in given.items() if takes_any or key in by_keyword}
    for each in parameters:
        variadic = each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        if each.default is each.empty and not variadic and each.name not in arguments:
            allowed = ", ".join(given)
            raise ModelError(
                f"{name} needs '{each.name}': a factory gets {allowed} by keyword; give the rest a default"
            )
    try:
        return factory(**arguments)
    except (Exception, SystemExit) as error:
        said = ", ".join(f"{key}={value}" for key, value in arguments.items())
        raise ModelError(f"{name} failed with {_line(error)} when called with ({said}): repair the factory") from error


def _line(error: BaseException) -> str:
    """An exception as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
