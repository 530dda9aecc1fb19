"""The exception tree.

    ManyhandsError
    ├── InputError            what the user gave cannot be used                  exit code 2
    │   ├── ModelError        unknown model, a factory that fails, wrong classes
    │   ├── PlanError         unknown plan word or option, a value not allowed
    │   ├── ConfigError       unknown key, a value not allowed
    │   ├── MachineError      a machine file with a field or value not allowed
    │   ├── DataError         missing, truncated, corrupt or unfitting data
    │   ├── StorageError      a folder that exists, cannot be written, or is full
    │   └── MissingPackage    an optional package that the command needs
    └── RunError              the training itself failed                         exit code 1
        ├── Diverged          the loss is not a finite number
        └── RankError         a rank failed, was killed, or did not come
            └── RankLeft      a rank has ended while others wait for it

Every message is one line: the offending value, what is allowed, how to repair it.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class ManyhandsError(Exception):
    """Anything that manyhands raises on purpose."""

    exit_code = 1


class InputError(ManyhandsError):
    """What the user gave cannot be used."""

    exit_code = 2


class ModelError(InputError):
    """A model that is unknown, cannot be built, or does not fit its data."""


class PlanError(InputError):
    """A plan that cannot be read or cannot be run."""


class ConfigError(InputError):
    """A configuration key or value that is not allowed."""


class MachineError(InputError):
    """A machine file that cannot be read, or a field of it that is not allowed."""


class DataError(InputError):
    """Data that is missing, broken or does not fit."""


class StorageError(InputError):
    """A folder that exists already, cannot be written, or is full."""


class MissingPackage(InputError):
    """An optional package that the command needs is not installed."""


class RunError(ManyhandsError):
    """The training failed."""


class Diverged(RunError):
    """The loss is NaN or infinite."""


class RankError(RunError):
    """A rank failed, was killed, or did not come."""


class RankLeft(RankError):
    """A rank has ended while others wait for it."""


# How reading a damaged file of our own ends, where something takes its place: a cache, an older checkpoint.
UNREADABLE: tuple[type[Exception], ...] = (
    *(
        OSError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        RecursionError,
        ArithmeticError,
        InputError,
    ),
)


def choices(value: str, allowed: Iterable[str]) -> str:
    """The tail of an error about a name that is not known: the nearest one first, then all.

    >>> choices("conv", ["convnet", "mlp"])
    "did you mean 'convnet'? Allowed: convnet, mlp"
    """
    names = list(allowed)
    near = get_close_matches(value, names, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"{hint}Allowed: {few(names)}"


def few(names: Iterable[str], most: int = 30) -> str:
    """Names as an error tells them: no more than fit into a line that somebody reads."""
    listed = list(names)
    left = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {left:,} more" if left > 0 else "")
