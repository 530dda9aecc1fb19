"""Image folders: which image of a folder or zip belongs to which class and part, by its name."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from manyhands.data.image_file import SUFFIXES
from manyhands.data.source import TEST, TRAIN, VALIDATION
from manyhands.errors import DataError

PARTS = {"train": TRAIN, "val": VALIDATION, "valid": VALIDATION, "validation": VALIDATION, "test": TEST}
CAT_OR_DOG = re.compile(r"(?:.*/)?(cat|dog)\.(\d+)\.jpe?g", re.IGNORECASE)  # as Kaggle names them
FIRST_HELD_OUT = 10_000

Entry = tuple[str, str, int]  # name, class, part


@dataclass(frozen=True)
class Layout:
    """The labelled images of a source, in the order of their names."""

    names: tuple[str, ...]
    labels: NDArray[np.int64]
    parts: NDArray[np.int64]
    classes: tuple[str, ...]


def layout(where: str, names: Sequence[str], read: Callable[[str], bytes]) -> Layout:
    """Sort out the files of a source, given by relative names (those of folders end with a slash)."""
    visible = sorted(name for name in names if not any(part[0] in "._" for part in PurePosixPath(name).parts))
    if outside := next((name for name in visible if name.startswith("/")), None):
        raise DataError(f"{where} has the absolute name {outside}: pack the folder anew, from inside of it")
    pictures = [name for name in visible if name.lower().endswith(SUFFIXES)]
    if not pictures:
        raise DataError(f"{where} holds no images: expected class/image or train/class/image ({SUFFIXES[0]}, …)")
    annotations = next((name for name in visible if name.endswith("val/val_annotations.txt")), None)
    if annotations:
        return _tiny_imagenet(where, annotations.removesuffix("val/val_annotations.txt"), pictures, read)
    if numbered := [match for match in map(CAT_OR_DOG.fullmatch, pictures) if match]:
        entries = [
            (match[0], match[1].lower(), TEST if int(match[2]) >= FIRST_HELD_OUT else TRAIN) for match in numbered
        ]
        return _laid_out(where, entries)
    return _laid_out(where, _by_folder(where, visible, pictures))


def _laid_out(where: str, entries: Sequence[Entry]) -> Layout:
    classes = sorted({name for _, name, part in entries if part == TRAIN})
    if len(classes) < 2:
        raise DataError(f"{where} has the classes {classes} to train on: at least two are needed, a folder each")
    number = {name: each for each, name in enumerate(classes)}
    for name, label, _ in entries:
        if label not in number:
            raise DataError(f"{name} in {where} has the class '{label}', which has no training images: add some")
    names, labels, parts = zip(*sorted(entries, key=lambda entry: (number[entry[1]], entry[0])), strict=True)
    return Layout(names, np.array([number[label] for label in labels]), np.array(parts), tuple(classes))


def _by_folder(where: str, visible: Sequence[str], pictures: Sequence[str]) -> list[Entry]:
    """class/image, or train/class/image beside val and test, below any folders that all have in common."""
    holding = {str(PurePosixPath(name).parent) for name in pictures}
    folders = holding | {name.rstrip("/") for name in visible if name.endswith("/")}
    above = {str(parent) for name in folders for parent in PurePosixPath(name).parents}
    common = PurePosixPath(os.path.commonpath(holding | (folders - above)))
    split = str(common / "train") in folders or any(name.startswith(f"{common / 'train'}/") for name in folders)
    entries = []
    for name in pictures:
        first, *rest = PurePosixPath(name).relative_to(common).parts
        part = PARTS.get(first.lower()) if split else TRAIN
        inner = rest if split else [first, *rest]
        if part == TRAIN and len(inner) < 2:
            raise DataError(
                f"{name} in {where} lies in no class folder: expected class/image or train/class/image, "
                "at least two classes"
            )
        if part is not None and len(inner) > 1:  # Kaggle's test folders have no classes: nothing to learn there
            entries.append((name, inner[0], part))
    top = common / "train" if split else common
    filled = {str(top / label) for _, label, part in entries if part == TRAIN}
    for folder in sorted(folders):
        if PurePosixPath(folder).parent == top and folder not in filled and folder != str(top):
            raise DataError(f"the class folder {folder} in {where} holds no images: add some or remove it")
    return entries


def _tiny_imagenet(where: str, root: str, pictures: Sequence[str], read: Callable[[str], bytes]) -> Layout:
    """Tiny ImageNet: its test images have no labels, so the validation part is the test part."""
    there = set(pictures)
    entries = [
        (name, PurePosixPath(name.removeprefix(f"{root}train/")).parts[0], TRAIN)
        for name in pictures
        if name.startswith(f"{root}train/")
    ]
    for line in _table(read(f"{root}val/val_annotations.txt")):
        name = f"{root}val/images/{line[0]}"
        if name not in there:
            raise DataError(f"{where} lacks {name}, which val_annotations.txt names: get a whole copy")
        entries.append((name, line[1], TEST))
    found = _laid_out(where, entries)
    words = {line[0]: line[1] for line in _table(read(f"{root}words.txt"))}
    return Layout(found.names, found.labels, found.parts, tuple(words.get(each, each) for each in found.classes))


def _table(content: bytes) -> list[list[str]]:
    return [line.split("\t") for line in content.decode().split("\n") if "\t" in line]
