"""Tiny files of every format."""

import gzip
import io
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, size: tuple[int, int] = (8, 8), mode: str = "RGB", form: str = "PNG") -> bytes:
    """An image of noise."""
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    pixels = np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def tree(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def packed(path: Path, files: Mapping[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def idx(array: np.ndarray) -> bytes:
    shape = struct.pack(f">{array.ndim}i", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


def mnist(root: Path, train: int = 40, test: int = 10, pack: bool = True) -> Path:
    """A small MNIST: image k has the value k in its first pixel, label k modulo 4, but for a shuffled start."""
    files = {}
    for part, count in (("train", train), ("t10k", test)):
        images = np.zeros((count, 5, 6))
        images[:, 0, 0] = np.arange(count)
        files[f"{part}-images-idx3-ubyte"] = idx(images)
        files[f"{part}-labels-idx1-ubyte"] = idx(np.arange(count)[::-1] % 4)
    if pack:
        files = {f"{name}.gz": gzip.compress(content) for name, content in files.items()}
    return tree(root, files)


def tweets(root: Path, parts: Mapping[str, Sequence[tuple[str, int]]], mapping: str = "") -> Path:
    files = {}
    for part, rows in parts.items():
        files[f"{part}_text.txt"] = "".join(f"{text}\n" for text, _ in rows).encode()
        files[f"{part}_labels.txt"] = "".join(f"{label}\n" for _, label in rows).encode()
    if mapping:
        files["mapping.txt"] = mapping.encode()
    return tree(root, files)
