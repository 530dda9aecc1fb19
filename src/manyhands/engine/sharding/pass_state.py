"""Pass state: what a forward or backward pass of one micro-batch keeps on its way through the stages."""

import threading

from torch import Tensor


class OnWay(threading.local):
    """What a pass has with it; passes that stop are threads."""

    stage = 0  # of the layer that it has come to
    number = 0  # of the pass in its step
    draws = 0  # layers of it that have drawn random numbers
    kept: list[Tensor] | None = None  # where what came from others is kept
    again: list[Tensor] | None = None  # from where it is taken once more
