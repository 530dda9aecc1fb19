"""Spin wait: look at a condition until it holds, fast when it soon does, without burning a core for ever when it does
not.

A core is not given away between looks (sched_yield): where anything else runs, that costs a time slice of some
milliseconds, for which the other ranks then wait, and give theirs away.
"""

import time
from collections.abc import Callable

PATIENCE = 50e-3  # seconds of looking without a pause
CROWDED = 200e-6  # the same where ranks share cores: whoever looks keeps another from working
PAUSE = 100e-6
LOOK = 1.0  # seconds between two looks at whether there is any hope


def wait_until(
    ready: Callable[[], bool],
    timeout: float,
    *,
    crowded: bool = False,
    in_vain: Callable[[], bool] = lambda: False,
) -> bool:
    """Wait; False after the time-out, in seconds, or when there has been no hope for a second."""
    start, patience = time.monotonic(), CROWDED if crowded else PATIENCE
    look, hopeless = LOOK, False
    while not ready():
        seconds = time.monotonic() - start
        if seconds > timeout:
            return False
        if seconds > look:
            if hopeless:  # for what was sent before hope ended there was time since
                return False
            hopeless, look = in_vain(), seconds + LOOK
        if seconds > patience:
            time.sleep(PAUSE)
    return True
