"""Catalog: the data sets that have a name: their files, where these are from, under which licence, who reads them."""

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands import files
from manyhands.data.schema import Kind
from manyhands.errors import DataError, choices

if TYPE_CHECKING:
    from manyhands.data.source import Reader


@dataclass(frozen=True)
class Remote:
    """A file to download: its name below the set's address, and its checksum where it is known."""

    name: str
    sha256: str | None = None


@dataclass(frozen=True)
class Known:
    """A set that has a name."""

    name: str
    kind: Kind
    licence: str
    reader: str = ""  # a module of data.readers; none: made here
    address: str = ""  # empty: cannot be fetched without a login
    files: tuple[Remote, ...] = ()
    advice: str = ""  # where the files are to be had, without an address


_SETS = (
    Known("digits", "image", "BSD 3-Clause (scikit-learn); the originals CC BY 4.0 (UCI)"),
    Known(
        "mnist",
        "image",
        "CC BY-SA 3.0, Yann LeCun and Corinna Cortes",
        "idx",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            Remote(
                "train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            Remote(
                "train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            Remote(
                "t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            Remote(
                "t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
    Known(
        "tiny-imagenet",
        "image",
        "non-commercial research and education only (ImageNet)",
        "images",
        "http://cs231n.stanford.edu/",
        (Remote("tiny-imagenet-200.zip"),),
    ),
    Known(
        "dogs-vs-cats",
        "image",
        "non-commercial research only (Kaggle, Microsoft Research)",
        "images",
        files=(Remote("train.zip"),),
        advice="Kaggle asks for a login: https://www.kaggle.com/c/dogs-vs-cats/data",
    ),
    Known(
        "tweets",
        "text",
        "TweetEval: unrestricted, but for the terms of SemEval-2018 task 2 and Twitter",
        "tweeteval",
        "https://raw.githubusercontent.com/cardiffnlp/tweeteval/4fbd22cd78421f05b1ecdb4fc5725bc7a7bd8f66/datasets/emoji/",
        (
            Remote("mapping.txt", "ac172bfbb0972d875a832224f48602472279be365454e3bce01084689100f4d3"),
            Remote("train_text.txt", "eacb6b0ee1fe2803d72a009c2e731fe07659f604318a979951d2f07c23c564a1"),
            Remote("train_labels.txt", "daee7da826683dbfa50ad3a29c60bc527e498f06c70eabee3745a99cc37ab3a5"),
            Remote("val_text.txt", "3bc3742d6af404cea792671878684d110f3bc02fd79a2e34643789a521d81a26"),
            Remote("val_labels.txt", "21ba456f688668d049ff0fb1fa04469ee684cf4e2467c71d2c3fe5ca2ba1bd1a"),
            Remote("test_text.txt", "e4de11de1597842c431dd67868e83322f5a432564dfd8558889ed8ac6a1a5e09"),
            Remote("test_labels.txt", "c1662b84788f36674ab8f0106f3e2e7d3e258ddf4959086ac7cc75b1e68dd1f6"),
        ),
    ),
    Known(
        "adult",
        "table",
        "CC BY 4.0 (UCI)",
        "adult",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",
        (
            Remote("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
            Remote("adult.test"),
        ),
    ),
)

KNOWN = {each.name: each for each in _SETS}


def by_name(name: str) -> Known:
    """The known set of a name."""
    if name not in KNOWN:
        raise DataError(f"unknown data set '{name}': {choices(name, KNOWN)}")
    return KNOWN[name]


def download_folder(name: str) -> Path:
    """Where the files of a set are downloaded to."""
    return files.home() / "downloads" / name


def folders(name: str) -> list[Path]:
    """Where a set is looked for, in order: below each folder of MANYHANDS_DATA, then among the downloads."""
    named = [Path(each).expanduser() for each in os.environ.get("MANYHANDS_DATA", "").split(":") if each]
    return [*(folder / name for folder in named), download_folder(name)]


def reader_of(known: Known) -> "Reader":
    """Loaded only now: readers need numpy and Pillow, and who only names a set does not."""
    reader: Reader = import_module(f"manyhands.data.readers.{known.reader}")
    return reader


def find(known: Known) -> Path | None:
    """The first folder that holds a set's files."""
    if not known.reader:
        return None
    reader = reader_of(known)
    return next((each for each in folders(known.name) if each.is_dir() and reader.matches(each)), None)


def absent(known: Known) -> DataError:
    """What to say where a set is nowhere: which files to put where."""
    names = ", ".join(each.name for each in known.files)
    places = " or ".join(str(each) for each in folders(known.name))
    get = f"run `manyhands data get {known.name}`" if known.address else known.advice
    return DataError(f"the files of {known.name} are not here: put {names} into {places}, or {get}")


def listing() -> list[dict[str, Any]]:
    """The known sets, with whether they are here and where."""
    rows = []
    for entry in KNOWN.values():
        folder = find(entry)
        made = not entry.reader
        rows.append(
            {
                "name": entry.name,
                "kind": entry.kind,
                "present": made or folder is not None,
                "where": "made here" if made else str(folder) if folder else None,
                "download": bool(entry.address),
                "licence": entry.licence,
            }
        )
    return rows
