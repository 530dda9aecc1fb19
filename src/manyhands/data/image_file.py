"""Image file: one image file as the array that is stored."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from manyhands.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
GREY = ("1", "L", "LA", "I", "I;16", "I;16B")


def header(name: str, content: bytes) -> tuple[bool, tuple[int, int]]:
    """Whether an image is grey, and its width and height, without decoding it."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.mode in GREY, image.size
    except Exception as error:
        raise _broken(name, error) from error


def decoded(name: str, content: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An image as uint8 [H, W, C] for a sample of shape (C, H, W): scaled to cover it, the centre cut out."""
    channels, height, width = shape
    mode = "L" if channels == 1 else "RGB"
    try:
        with Image.open(io.BytesIO(content)) as image:
            # JPEG decodes faster at a half, a quarter or an eighth; at twice the size needed nothing is lost.
            image.draft(mode, (2 * width, 2 * height))
            picture = _eight_bits(image).convert(mode)
    except Exception as error:  # each format fails in its own way
        raise _broken(name, error) from error
    if picture.size != (width, height):
        picture = ImageOps.fit(picture, (width, height), Image.Resampling.BICUBIC)
    return np.asarray(picture, dtype=np.uint8).reshape(height, width, channels)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Sixteen-bit grey as eight bits; Pillow's own conversion cuts off all above 255."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, 65535) // 256).astype(np.uint8))


def _broken(name: str, error: Exception) -> DataError:
    reason = str(error).split("\n")[0].replace("<_io.BytesIO object at ", "<").split(" <")[0]
    return DataError(f"cannot decode {name} ({reason}): replace the image or remove it")
