"""Options: what a plan may say of its execution, with the values that each option takes."""

from typing import Any

from manyhands.errors import PlanError, choices
from manyhands.plan.pipeline_schedule import SCHEDULES

# What an option may be: a tuple of words, or the smallest whole number.
OPTIONS: dict[str, tuple[str, ...] | int] = {
    "device": ("cpu", "cuda"),
    "precision": ("fp32", "bf16", "fp64"),
    "layout": ("channels_last", "contiguous"),
    "allocator": ("keep", "default"),
    "kernels": ("own", "torch"),
    "compile": ("on", "off"),
    "capture": ("on", "off"),
    "backward": ("whole", "apart", "concurrent"),
    "feed": ("device", "host", "loader"),
    "workers": 0,
    "threads": 1,
    "backend": ("gloo", "nccl", "mpi", "shm"),
    "compress": ("none", "bf16", "fp16", "topk", "powersgd"),
    "shard": ("none", "optimizer", "full"),
    "microbatches": 1,
    "schedule": SCHEDULES,
    "balance": ("auto", "equal"),
    "recompute": ("on", "off"),
    "boundary": ("gather", "turns", "updates"),
    "consistency": ("sync", "async", "stale"),
    "staleness": 0,
    "every": 1,
    "after": 0,
    "average": ("mean", "elastic"),
    "topology": ("ring", "exponential", "pairs"),
    "adapt": ("on", "off"),
}


# Options that only some axes obey.
RANKS = ("ddp", "data", "tensor", "pipeline", "owt", "server", "local", "gossip")
USES: dict[str, tuple[str, ...]] = {
    "backward": ("serial",),
    "backend": RANKS,
    "compress": RANKS,
    "shard": ("data",),
    "microbatches": ("pipeline",),
    "schedule": ("pipeline",),
    "balance": ("pipeline",),
    "recompute": ("pipeline",),
    "boundary": ("owt",),
    "consistency": ("data", "server"),
    "staleness": ("data", "server"),
    "every": ("local",),
    "after": ("local",),
    "average": ("local",),
    "topology": ("gossip",),
    "adapt": ("server",),
}
BY_RANK = ("cores", "loader_cores")  # lists of cores, which only a file can say


def check_option(name: str, value: Any) -> None:
    allowed = OPTIONS[name]
    if isinstance(allowed, int):
        if not isinstance(value, int) or isinstance(value, bool) or value < allowed:
            raise PlanError(f"plan option {name}={value}: a whole number, at least {allowed}, is allowed")
    elif value not in allowed:
        raise PlanError(f"plan option {name}={value}: {choices(str(value), allowed)}")
