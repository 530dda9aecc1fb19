"""The arithmetic of layer sizes."""

from math import prod

from manyhands.errors import ModelError


def scaled(units: int, width: float) -> int:
    """So many channels or hidden units at this width, at least one."""
    return max(1, round(units * width))


def window(size: tuple[int, int], kernel: int, stride: int = 1, padding: int = 0) -> tuple[int, int]:
    """What a convolution or pooling window leaves of (height, width); 0 or less means nothing."""
    height, width = ((side + 2 * padding - kernel) // stride + 1 for side in size)
    return height, width


def remaining(family: str, shape: tuple[int, ...], left: tuple[int, int], least: int) -> int:
    """How many positions are left for the dense part; a ModelError when the image is too small for any."""
    if min(left) < 1:
        got = "x".join(map(str, shape))
        raise ModelError(
            f"{family} leaves nothing of {got} images: it takes at least {least}x{least}; mlp takes any size"
        )
    return prod(left)
