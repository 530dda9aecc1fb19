"""Every error a user can cause: one line, the value, exit code 2, and nothing half-written."""

import gzip
import os
import struct
from pathlib import Path

import pytest
from PIL import Image

SMALL = ("--plan", "serial,precision=fp32,layout=channels_last,compile=off", "--batch-size", "16", "--epochs", "1")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train"], "which model?"),
        (["train", "convnett"], "unknown model 'convnett': did you mean 'convnet'?"),
        (["train", "missing.py:build"], "missing.py"),
        (
            ["train", "convnet", "--data", "minst"],
            "'minst' is neither a known data set nor a path: did you mean 'mnist'?",
        ),
        (["train", "convnet", "--data", "mnist"], "the files of mnist are not here"),
        (["train", "convnet", "--data", "no/such/file.csv"], "no/such/file.csv"),
        (["train", "text", "--data", "digits"], "text takes text data"),
        (["train", "convnet", "--plan", "seril"], "unknown plan 'seril': did you mean 'serial'?"),
        (["train", "convnet", "--plan", "serial,colour=red"], "unknown plan option 'colour'"),
        (["train", "convnet", "--plan", "server:2+1,device=cuda"], "plan server:2+1 with device=cuda cannot run yet"),
        (["train", "convnet", "--plan", "none.toml"], "there is no plan file none.toml"),
        (["train", "convnet", "--colour", "red"], "--colour"),
        (["train", "convnet", "--epochs", "many"], "many"),
        (["train", "convnet", "--epochs", "0"], "train.epochs=0"),
        (["train", "convnet", "--batch-size", "0"], "train.batch_size=0: it must be at least 1"),
        (["train", "convnet", "--batch-size", "57001"], "batch size 57001 is larger than the training set of 57000"),
        (["train", "convnet", "--set", "optim.rl=1"], "unknown key 'optim.rl': did you mean 'optim.lr'?"),
        (["train", "convnet", "--set", "model.activation=swish"], "swish"),
        (["train", "convnet", "--set", "model.cell=lstm"], "convnet has no model.cell"),
        (["train", "convnet", "--init-from", "nothing"], "--init-from nothing"),
        (["train", "convnet", "--freeze", "x.*"], "x.*"),
        (["train", "--resume", "nothing"], "nothing is not a run"),
        (["train", "convnet", "--resume", "nothing"], "leave out all but"),
        (["train", "--resume", "nothing", "--epochs", "9"], "leave out all but"),
        (["train", "src/net.py"], "unknown model 'src/net.py'"),
        (["compare", "convnet", "--plan", "plain", "--plan", "seril"], "unknown plan 'seril'"),
        (["compare", "convnet", "--plan", "plain", "--plan", "server:2"], "write server:3+1"),
        (["compare", "convnet", "--plan", "plain", "--repeats", "0"], "repeats=0"),
        (["compare", "convnet"], "--plan"),
        (["predict", "nothing", "x.png"], "nothing is not a run"),
        (["export", "nothing"], "--onnx FILE or --torch FILE"),
        (["show", "nothing"], "nothing is not a run"),
        (["runs", "nothing"], "there is no folder nothing"),
        (["data", "get", "minst"], "unknown data set 'minst'"),
        (["data", "info", "synthetic:3x64"], "synthetic:3x64"),
        (["nonsense"], "nonsense"),
        (["show", "x" * 300], "File name too long"),
        (["train", "mlp", "--data", "x" * 300], "File name too long"),
        (["train", "mlp", "--seed", "9" * 23], "train.seed="),
    ],
    ids=lambda each: " ".join(each)[:60] if isinstance(each, list) else "",
)
def test_one_line(manyhands, monkeypatch, tmp_path: Path, shared_home: Path, arguments: list[str], told: str) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    monkeypatch.chdir(tmp_path)
    out = ["--out", "run"] if arguments[0] in ("train", "compare") and "--resume" not in arguments else []
    said = manyhands(*arguments, *out, "--quiet")
    assert said.code == 2
    assert told in said.error
    assert said.out == ""
    assert os.listdir(tmp_path) == []


def test_json_errors_are_json(manyhands) -> None:
    said = manyhands("train", "convnett", "--json")
    assert said.code == 2
    assert said.json["exit_code"] == 2
    assert "convnett" in said.json["error"]
    assert manyhands("train", "--colour", "--json").json["exit_code"] == 2


def test_no_arguments_show_the_help(manyhands) -> None:
    assert "Commands:" in manyhands().out


def test_a_wrong_class_count(manyhands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5))\n"
    )
    said = manyhands(
        "train", f"{tmp_path}/mine.py:build", "--data", "synthetic:1x6x6,3", *SMALL, "--out", tmp_path / "run", "-q"
    )
    assert said.code == 2
    assert "gives (2, 5) for 2 samples, the data needs (2, 3)" in said.error
    assert not (tmp_path / "run").exists()


def test_a_model_that_does_not_take_the_data(manyhands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from torch import nn\ndef build():\n    return nn.Linear(7, 3)\n")
    said = manyhands("train", f"{tmp_path}/mine.py:build", "--data", "synthetic:1x6x6,3", *SMALL, "-q")
    assert said.code == 2
    assert "does not take samples of shape (1, 6, 6)" in said.error


def idx(shape: tuple[int, ...], content: bytes) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}i", *shape) + content


def test_a_truncated_idx(manyhands, monkeypatch, tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, count in (("train", 20), ("t10k", 10)):
        images = idx((count, 28, 28), bytes(count * 784 - (100 if part == "train" else 0)))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx((count,), bytes(count))))
    monkeypatch.setenv("MANYHANDS_DATA", str(tmp_path))
    said = manyhands("train", "convnet", "--data", "mnist", *SMALL, "--out", tmp_path / "run", "-q")
    assert said.code == 2
    assert "train-images-idx3-ubyte.gz" in said.error
    assert "15,596 bytes" in said.error
    assert not (tmp_path / "run").exists()


def test_a_corrupt_jpeg(manyhands, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for number in range(8):
            Image.new("RGB", (16, 16), (number * 30, 0, 0)).save(tmp_path / "pets" / label / f"{number}.jpg")
    bad = tmp_path / "pets" / "dog" / "5.jpg"
    bad.write_bytes(bad.read_bytes()[:200])
    said = manyhands("train", "mlp", "--data", tmp_path / "pets", *SMALL, "--out", tmp_path / "run", "-q")
    assert said.code == 2
    assert "5.jpg" in said.error
    assert not (tmp_path / "run").exists()


def test_a_csv_without_its_target(manyhands, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,colour,kind\n1,red,a\n2,blue,b\n")
    said = manyhands("train", "mlp", "--data", tmp_path / "t.csv", "--set", "data.target=sort", *SMALL, "-q")
    assert said.code == 2
    assert "sort" in said.error
    assert "age" in said.error
    assert "colour" in said.error


def test_an_unwritable_folder(manyhands) -> None:
    said = manyhands("train", "mlp", "--data", "synthetic:4,2", *SMALL, "--out", "/proc/run", "-q")
    assert said.code == 2
    assert "/proc/run" in said.error


def test_a_run_folder_that_exists(manyhands, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "letter.txt").write_text("keep me")
    said = manyhands("train", "mlp", "--data", "synthetic:4,2", *SMALL, "--out", tmp_path / "run", "-q")
    assert said.code == 2
    assert "exists and is not empty" in said.error
    assert os.listdir(tmp_path / "run") == ["letter.txt"]
