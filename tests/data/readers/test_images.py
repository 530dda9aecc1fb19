"""Images: every layout of folders and zips, sizes and modes, and every kind of damage named."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data import make
from manyhands.data.dataset import Dataset, Split
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import DataError

CLASSES = ("ant", "bee")


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)))


def by_class(folder: str = "", count: int = 10, first: int = 0) -> dict[str, bytes]:
    """count images of each class, all different."""
    return {
        f"{folder}{name}/{each}.png": make.picture(100 * number + first + each)
        for number, name in enumerate(CLASSES)
        for each in range(count)
    }


def shown(dataset: Dataset, split: Split) -> set[tuple[bytes, str]]:
    """The pixels and class names of a part."""
    return {(split.inputs[row].tobytes(), dataset.schema.classes[split.labels[row]]) for row in split.index}


def written(files: dict[str, bytes]) -> set[tuple[bytes, str]]:
    return {(pixels(content).tobytes(), name.split("/")[-2]) for name, content in files.items()}


@pytest.mark.parametrize("top", ["", "archive/", "a/b/"])
@pytest.mark.parametrize("pack", [False, True])
def test_class_folders(tmp_path: Path, top: str, pack: bool) -> None:
    files = by_class(top)
    extra = {**files, f"{top}readme.txt": b"?", "__MACOSX/ant/._0.png": b"?", f"{top}ant/.DS_Store": b"?"}
    path = make.packed(tmp_path / "set.zip", extra) if pack else make.tree(tmp_path / "set", extra)
    dataset = load(str(path), DataOptions(validation=0))
    assert dataset.schema.classes == CLASSES
    assert dataset.schema.shape == (3, 8, 8)
    assert (len(dataset.train), len(dataset.test)) == (16, 4)
    assert shown(dataset, dataset.train) | shown(dataset, dataset.test) == written(files)
    assert len(set(dataset.train.labels[:8].tolist())) == 2, "not in class order"


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_parts(tmp_path: Path, validation: str) -> None:
    train, held, test = by_class("train/"), by_class(f"{validation}/", 2, 20), by_class("test/", 3, 30)
    dataset = load(str(make.tree(tmp_path / "set", train | held | test)))
    assert shown(dataset, dataset.train) == written(train)
    assert shown(dataset, dataset.validation) == written(held)
    assert shown(dataset, dataset.test) == written(test)


def test_test_images_without_classes_are_left_out(tmp_path: Path) -> None:
    files = by_class("train/") | {"test/1.png": make.picture(1)}
    assert len(load(str(make.tree(tmp_path / "set", files))).test.labels) == 20


def test_the_same_samples_from_a_folder_and_a_zip(tmp_path: Path) -> None:
    files = by_class()
    folder = load(str(make.tree(tmp_path / "a" / "set", files)))
    packed = load(str(make.packed(tmp_path / "set.zip", files)))
    np.testing.assert_array_equal(folder.train.inputs, packed.train.inputs)
    np.testing.assert_array_equal(folder.train.labels, packed.train.labels)


def test_a_changed_image_is_seen(tmp_path: Path) -> None:
    folder = make.tree(tmp_path / "set", by_class())
    before = load(str(folder)).train.inputs.copy()
    (folder / "bee" / "3.png").write_bytes(make.picture(999, (8, 8)))
    assert (load(str(folder)).train.inputs != before).any(axis=(1, 2, 3)).sum() == 1


@pytest.mark.parametrize("pack", [False, True])
def test_cats_and_dogs_by_kaggle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: bool) -> None:
    files = {
        f"train/{name}.{number}.jpg": make.picture(number, (20 + number % 3, 16), form="JPEG")
        for name in ("cat", "dog")
        for number in (0, 1, 9_999, 10_000, 12_499)
    }
    if pack:
        make.packed(tmp_path / "dogs-vs-cats" / "any-name.zip", files)
    else:
        make.tree(tmp_path / "dogs-vs-cats", files)
    monkeypatch.setenv("MANYHANDS_DATA", str(tmp_path))
    dataset = load("dogs-vs-cats", DataOptions(validation=0))
    assert dataset.schema.classes == ("cat", "dog")
    assert dataset.schema.shape == (3, 128, 128), "sizes differ"
    assert (len(dataset.train), len(dataset.test)) == (6, 4)
    assert np.bincount(dataset.test.labels[dataset.test.index]).tolist() == [2, 2]
    assert load("dogs-vs-cats", DataOptions(image_size=32)).schema.shape == (3, 32, 32)


def tiny_imagenet() -> dict[str, bytes]:
    root, ids = "tiny-imagenet-200/", ("n02", "n01")
    files = {
        f"{root}train/{each}/images/{each}_{k}.JPEG": make.picture(k, form="JPEG") for each in ids for k in range(5)
    }
    files |= {f"{root}val/images/val_{k}.JPEG": make.picture(k, form="JPEG", mode="L") for k in range(4)}
    files |= {f"{root}test/images/test_{k}.JPEG": make.picture(k, form="JPEG") for k in range(3)}
    annotations = "".join(f"val_{k}.JPEG\t{ids[k % 2]}\t0\t0\t9\t9\n" for k in range(4))
    words = "n01\tgoldfish, Carassius auratus\nn02\tsnail\nn03\tunused\n"
    return files | {
        f"{root}wnids.txt": b"n02\nn01\n",
        f"{root}words.txt": words.encode(),
        f"{root}val/val_annotations.txt": annotations.encode(),
    }


@pytest.mark.parametrize("pack", [False, True])
def test_tiny_imagenet(tmp_path: Path, pack: bool) -> None:
    files = tiny_imagenet()
    path = make.packed(tmp_path / "set.zip", files) if pack else make.tree(tmp_path / "set", files)
    dataset = load(str(path), DataOptions(validation=0))
    assert dataset.schema.classes == ("goldfish, Carassius auratus", "snail")
    assert dataset.schema.shape == (3, 8, 8), "some are grey, so all are in colour"
    assert (len(dataset.train), len(dataset.test)) == (10, 4)
    assert sorted(dataset.test.labels[dataset.test.index].tolist()) == [0, 0, 1, 1]


def test_tiny_imagenet_lacks_an_image(tmp_path: Path) -> None:
    files = {name: content for name, content in tiny_imagenet().items() if not name.endswith("val_2.JPEG")}
    with pytest.raises(DataError, match=r"lacks .*val_2.JPEG"):
        load(str(make.tree(tmp_path / "set", files)))


def test_real_tiny_imagenet_matches_its_files(real: Callable[[str], Dataset]) -> None:
    schema = real("tiny-imagenet").schema
    assert "goldfish, Carassius auratus" in schema.classes
    assert all(90 < mean < 130 for mean in schema.mean)


def test_all_grey_is_one_channel_and_keeps_its_proportions(tmp_path: Path) -> None:
    files = {f"{name}/{k}.png": make.picture(k, (9, 7), "L") for name in CLASSES for k in range(5)}
    dataset = load(str(make.tree(tmp_path / "set", files)))
    assert dataset.schema.shape == (1, 7, 9)
    assert dataset.train.inputs.shape == (10, 7, 9, 1)


def test_the_short_side_is_scaled_and_the_centre_cut_out(tmp_path: Path) -> None:
    """Stripes of 16 pixels, red, green, blue: half the size, the middle 16 of 24 are 4 red, 8 green, 4 blue."""
    stripes = np.repeat(np.eye(3, dtype=np.uint8)[None] * 255, 32, axis=0).repeat(16, axis=1)
    file = io.BytesIO()
    Image.fromarray(stripes).save(file, "PNG")
    files = {f"{name}/{k}.png": file.getvalue() for name in CLASSES for k in range(3)}
    dataset = load(str(make.tree(tmp_path / "set", files)), DataOptions(image_size=16))
    assert dataset.train.inputs[0, 8].argmax(axis=1).tolist() == [0] * 4 + [1] * 8 + [2] * 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ant/3.png": make.picture(0)[:60]}, r"cannot decode ant/3.png in "),
        ({"ant/3.png": b"no image"}, r"cannot decode ant/3.png in .*cannot identify image file\)"),
        ({"top.png": make.picture(0)}, "top.png in .* lies in no class folder"),
    ],
)
@pytest.mark.parametrize("pack", [False, True])
def test_damage_is_named(tmp_path: Path, home: Path, change: dict[str, bytes], message: str, pack: bool) -> None:
    files = by_class() | change
    path = make.packed(tmp_path / "set.zip", files) if pack else make.tree(tmp_path / "set", files)
    with pytest.raises(DataError, match=message) as caught:
        load(str(path))
    assert "\n" not in str(caught.value)
    assert not [each for each in (home / "data").iterdir() if each.is_dir()], "nothing half-written"


def test_a_truncated_jpeg_is_named(tmp_path: Path) -> None:
    """Its header is whole: only decoding finds out."""
    whole = make.picture(0, (64, 64), form="JPEG")
    files = {f"{name}/{k}.jpg": whole for name in CLASSES for k in range(5)} | {"bee/2.jpg": whole[:-900]}
    with pytest.raises(DataError, match=r"cannot decode bee/2.jpg in .*set.zip \(.*truncated"):
        load(str(make.packed(tmp_path / "set.zip", files)))


def test_a_flipped_bit_in_a_zip_is_named(tmp_path: Path) -> None:
    files = by_class()
    path = make.packed(tmp_path / "set.zip", files)
    content = path.read_bytes()
    at = content.index(files["bee/4.png"]) + 40
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(DataError, match=r"cannot read bee/4.png in .*set.zip \(Bad CRC"):
        load(str(path))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"ant/1.png": make.picture(1)}, "lies in no class folder"),
        (by_class("train/") | {"test/cow/1.png": make.picture(1)}, "the class 'cow', which has no training images"),
        ({"ant/readme.txt": b"?"}, "holds no images"),
    ],
)
def test_layouts_that_cannot_be_used(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(str(make.tree(tmp_path / "set", files)))


def test_an_empty_class_folder(tmp_path: Path) -> None:
    for folder in ("", "train/"):
        root = make.tree(tmp_path / f"set{len(folder)}", by_class(folder))
        (root / folder / "cow").mkdir()
        with pytest.raises(DataError, match=f"class folder {folder}cow in .* holds no images"):
            load(str(root))


def test_zips_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(make.packed(tmp_path / "b.zip", by_class()).read_bytes()[:-40])
    with pytest.raises(DataError, match=r"a\.zip is not a whole zip"):
        load(str(tmp_path / "a.zip"))
    with pytest.raises(DataError, match=r"holds 2 zips \(a\.zip, b\.zip\): leave one there"):
        load(str(tmp_path))
