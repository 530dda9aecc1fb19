"""Works: what a child can be asked for."""

from collections.abc import Callable
from typing import Any

from manyhands.runs.tune import loaders, pursuit, ramp, throughput
from manyhands.runs.tune.child import Task

WORKS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "throughput": throughput.work,
    "reference": pursuit.reference,
    "pursuit": pursuit.work,
    "ramp": ramp.work,
    "loaders": loaders.work,
}
