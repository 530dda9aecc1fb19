"""manyhands: finds and runs the fastest way to train a PyTorch model on the machine you have.

Public names are resolved lazily, so that `import manyhands` (and `manyhands --help`) does not import torch.
"""

# Nothing is imported here: Ctrl-C in the first moments would end in Python's traceback (see cli.start).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "fit": "manyhands.api",
    "find_plan": "manyhands.api",
    "parallelize": "manyhands.train.user_script.api",
    "mean_over_ranks": "manyhands.train.user_script.api",
    "rank": "manyhands.train.user_script.api",
    "world": "manyhands.train.user_script.api",
    "Plan": "manyhands.plan.plan",
    "Timeline": "manyhands.timeline",
    "ManyhandsError": "manyhands.errors",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> "Any":
    if name in _PUBLIC:
        from importlib import import_module

        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'manyhands' has no attribute '{name}'")
