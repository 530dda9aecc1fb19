"""Files that were made to do harm, or are not what they seem: one line, soon, and little memory."""

import io
import os
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import DataError


def picture() -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(content, "PNG")
    return content.getvalue()


def folder_with(other: Callable[[Path], object]) -> Callable[[Path], Path]:
    def make(home: Path) -> Path:
        for name in ("a", "b"):
            (home / "set" / name).mkdir(parents=True)
            for number in range(4):
                (home / "set" / name / f"{number}.png").write_bytes(picture())
        other(home / "set" / "a" / "x.png")
        return home / "set"

    return make


def zip_with(name: str, size: int) -> Callable[[Path], Path]:
    def make(home: Path) -> Path:
        with zipfile.ZipFile(home / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for each in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
                archive.writestr(each, picture())
            with archive.open(name, "w", force_zip64=True) as file:
                for _ in range(size):
                    file.write(bytes(1 << 20))
        return home / "set.zip"

    return make


def npz_of(header: bytes) -> Callable[[Path], Path]:
    def make(home: Path) -> Path:
        with zipfile.ZipFile(home / "set.npz", "w") as archive:
            archive.writestr("x.npy", header)
            archive.writestr("y.npy", header)
        return home / "set.npz"

    return make


def claims(count: int) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": (count,)})
    return content.getvalue() + bytes(100)


def csv_of(text: str) -> Callable[[Path], Path]:
    def make(home: Path) -> Path:
        (home / "set.csv").write_text(text)
        return home / "set.csv"

    return make


def rows(values: list[str]) -> str:
    return "a,k\n" + "".join(f"{value},{'xy'[number % 2]}\n" for number, value in enumerate(values))


WIDE = ",".join(f"c{each}" for each in range(50_000)) + "\n" + ",".join("1" * 50_000)
CASES = {
    "a pipe": (folder_with(os.mkfifo), "is a device, a pipe or a socket"),
    "a link to a device": (folder_with(lambda path: path.symlink_to("/dev/zero")), "is a device, a pipe or a socket"),
    "an absolute name": (zip_with("/a/9.png", 0), "has the absolute name /a/9.png"),
    "packed zeros": (zip_with("a/9.png", 400), "an image at most 256,000,000"),
    "a trillion numbers": (npz_of(claims(10**12)), "expected arrays of numbers"),
    "no header": (npz_of(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'shape': ((((" + b" " * 88), "expected arrays"),
    "many columns": (csv_of(WIDE), "49,970 more"),
    "a number too large": (csv_of(rows([*map(str, range(20)), "1e300"])), "column 'a' has 1e"),
    "a class of one row": (csv_of(rows([*map(str, range(20))]) + "1,z\n"), "the class 'z' in one row only"),
}  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES)
def test_refused_in_one_line(tmp_path: Path, case: str) -> None:
    make, said = CASES[case]
    path = make(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=said) as caught:
        load(str(path), DataOptions(target="k" if path.suffix == ".csv" else None))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kilobytes


def test_equal_numbers_are_one_class(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("a,k\n" + "".join(f"{row},{('1', '1.0', '2')[row % 3]}\n" for row in range(30)))
    assert load(str(tmp_path / "set.csv"), DataOptions(target="k")).schema.classes == ("1", "2")
