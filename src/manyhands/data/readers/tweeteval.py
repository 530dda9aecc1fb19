"""Tweeteval: one text a line and one class number a line, in the files of TweetEval."""

import gzip
from pathlib import Path

import numpy as np

from manyhands.data import vocabulary
from manyhands.data.schema import DataOptions, Schema
from manyhands.data.source import TEST, TRAIN, VALIDATION, Content, Source, arranged, in_chunks, reading
from manyhands.errors import DataError

PARTS = {"train": TRAIN, "val": VALIDATION, "test": TEST}


def matches(path: Path) -> bool:
    """Whether a folder has training texts."""
    return _file(path, "train_text").exists()


def source(name: str, path: Path, options: DataOptions) -> Source:
    """The parts that a folder has; only training texts must be there."""
    parts = [part for part in PARTS if part == "train" or _file(path, f"{part}_text").exists()]
    files = [_file(path, f"{part}_{what}") for part in parts for what in ("text", "labels")]
    mapping = [path / "mapping.txt"] if (path / "mapping.txt").exists() else []
    kept = (options.length, options.vocabulary)
    return Source(name, str(path), (*files, *mapping), kept, lambda: _read(name, path, parts, options))


def _file(folder: Path, stem: str) -> Path:
    unpacked = folder / f"{stem}.txt"
    return unpacked if unpacked.exists() else folder / f"{stem}.txt.gz"


def lines(path: Path) -> list[str]:
    """The lines of a text file, split at line feeds only: texts may hold other separators."""
    with reading(path):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        found = content.decode().split("\n")
    return found[:-1] if found[-1] == "" else found


def _read(name: str, path: Path, present: list[str], options: DataOptions) -> Content:
    texts: list[list[str]] = []
    labels: list[int] = []
    parts: list[int] = []
    for part in present:
        found, numbers = lines(_file(path, f"{part}_text")), lines(_file(path, f"{part}_labels"))
        if len(found) != len(numbers):
            raise DataError(f"{path} has {len(found):,} {part} texts and {len(numbers):,} labels: replace one file")
        texts += [vocabulary.tokens(text) for text in found]
        labels += [_number(_file(path, f"{part}_labels"), row, number) for row, number in enumerate(numbers, 1)]
        parts += [PARTS[part]] * len(found)
    if not texts:
        raise DataError(f"{_file(path, 'train_text')} has no lines: put a text on each")
    numbered = np.array(labels, dtype=np.int64)
    classes = _classes(path) or tuple(map(str, range(int(numbered.max()) + 1)))
    if not 0 <= numbered.min() <= numbered.max() < len(classes):
        wrong = numbered[(numbered < 0) | (numbered >= len(classes))][0]
        raise DataError(f"{path} has the label {wrong}: 0 to {len(classes) - 1} are allowed by mapping.txt")
    order, counts = arranged(name, numbered, np.array(parts))
    ordered = [texts[row] for row in order]
    training = ordered[: counts[0]]
    known = vocabulary.vocabulary(training, options.vocabulary)
    length = options.length or vocabulary.usual_length(training)
    schema = Schema(name, "text", (length,), classes, vocabulary=known)
    return Content(schema, numbered[order], counts, in_chunks(vocabulary.ids(ordered, known, length)))


def _number(path: Path, row: int, field: str) -> int:
    try:
        return int(field)
    except ValueError:
        raise DataError(f"{path} has '{field}' in line {row}: a class number is needed") from None


def _classes(path: Path) -> tuple[str, ...]:
    """Names by mapping.txt: number, then one or more names by tabs, of which the last is the plainest."""
    if not (path / "mapping.txt").exists():
        return ()
    rows = [line.strip().split("\t") for line in lines(path / "mapping.txt") if line.strip()]
    names = {row[0]: row[-1].strip("_") for row in rows}
    if list(names) != [str(number) for number in range(len(names))]:
        raise DataError(f"{path / 'mapping.txt'} numbers its classes {', '.join(names)}: expected 0, 1, 2, …")
    return tuple(names.values())
