"""Every command on small real work: what it prints, what it leaves behind."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from manyhands.runs import run_folder
from manyhands.timeline import Timeline

Manyhands = Callable[..., "object"]
SERIAL = "serial,precision=fp32,layout=channels_last,compile=off"
SMALL = ("--set", "data.size=400", "--set", "model.width=0.25", "--batch-size", "32", "--epochs", "1")
RESULT_KEYS = {
    "run", "plan", "world", "device", "final_loss", "test_accuracy", "val_accuracy", "samples_per_s", "seconds",
    "measured_step_ms", "predicted_step_ms", "peak_memory_mb",
}  # fmt: skip


@pytest.fixture
def trained(manyhands, shared_home, monkeypatch, tmp_path):
    """A small finished run on digits."""
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    started = time.perf_counter()
    said = manyhands("train", "convnet", "--plan", SERIAL, *SMALL, "--out", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    assert said.json["seconds"]["total"] < time.perf_counter() - started
    return said


def test_train(trained, tmp_path: Path) -> None:
    result = trained.json
    assert result.keys() >= RESULT_KEYS
    assert {"setup", "search", "compile", "train", "eval", "total"} <= result["seconds"].keys()
    phases = sum(value for phase, value in result["seconds"].items() if phase != "total")
    assert 0.5 * result["seconds"]["total"] < phases < result["seconds"]["total"]
    assert 0 <= result["test_accuracy"] <= 1
    assert result["world"] == 1
    run = run_folder.load(tmp_path / "run")
    assert run.status == "finished"
    assert run.record["ranks"][0]["rank"] == 0
    assert {"config", "plan", "machine", "versions", "layers", "samples"} <= run.record.keys()
    steps = [each["step"] for each in run.metrics() if "loss" in each]
    assert steps == list(range(1, 13))  # 380 samples in batches of 32
    assert [each["epoch"] for each in run.metrics() if "epoch" in each] == [1]
    categories = {event.category for event in Timeline.load(tmp_path / "run" / "timeline.json").events}
    assert {"train", "eval", "forward", "backward", "setup"} <= categories
    assert "plan serial" in (tmp_path / "run" / "log.txt").read_text()
    assert not list((tmp_path / "run").rglob("*.pt"))
    assert not list((tmp_path / "run").rglob("*.pkl"))


def test_train_says_a_table_without_json(manyhands, shared_home, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    said = manyhands("train", "mlp", "--plan", SERIAL, *SMALL, "--out", tmp_path / "run", "--quiet")
    assert said.code == 0
    assert "test accuracy" in said.out
    assert said.err == ""


def test_show_and_runs(trained, manyhands, tmp_path: Path) -> None:
    shown = manyhands("show", tmp_path / "run")
    assert "backward ms" in shown.out
    assert "dense" in shown.out
    assert manyhands("show", tmp_path / "run", "--json").json["status"] == "finished"
    listed = manyhands("runs", tmp_path, "--json").json["runs"]
    assert [each["status"] for each in listed] == ["finished"]
    assert "finished" in manyhands("runs", tmp_path).out


def test_predict_an_image(trained, manyhands, tmp_path: Path) -> None:
    Image.new("L", (40, 30), 128).save(tmp_path / "a.png")
    (row,) = manyhands("predict", tmp_path / "run", tmp_path / "a.png", "--json").json["predictions"]
    assert row["label"] in "0123456789"
    assert 0.1 <= row["probability"] <= 1
    assert "probability" in manyhands("predict", tmp_path / "run", tmp_path / "a.png").out


def test_predict_rows_of_a_csv(manyhands, tmp_path: Path) -> None:
    """A class that is the sign of one column is learnt, and told for new rows without the target."""
    rows = [
        f"{number % 40 - 19.5},{'red' if number % 3 else ''},{'up' if number % 40 > 19 else 'down'}"
        for number in range(400)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["x,colour,kind", *rows]))
    said = manyhands(
        "train", "mlp", "--data", tmp_path / "t.csv", "--set", "data.target=kind", "--plan", SERIAL, "--batch-size", 16,
        "--epochs", 8, "--set", "optim.lr=0.01", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert said.json["test_accuracy"] > 0.95
    (tmp_path / "new.csv").write_text("colour,x\nred,15\n,-15\n")
    found = manyhands("predict", tmp_path / "run", tmp_path / "new.csv", "--json").json["predictions"]
    assert [each["label"] for each in found] == ["up", "down"]


def test_predict_lines_of_a_text(manyhands, tmp_path: Path) -> None:
    folder = tmp_path / "posts"
    folder.mkdir()
    for part, count in (("train", 200), ("val", 20), ("test", 40)):
        words = ["good day", "bad night"]
        (folder / f"{part}_text.txt").write_text("".join(f"a {words[n % 2]} {n % 7}\n" for n in range(count)))
        (folder / f"{part}_labels.txt").write_text("".join(f"{n % 2}\n" for n in range(count)))
    (folder / "mapping.txt").write_text("0\t+\tglad\n1\t-\tsad\n")
    said = manyhands(
        "train", "text", "--data", folder, "--plan", SERIAL, "--batch-size", 20, "--epochs", 6,
        "--out", tmp_path / "run", "--set", "model.width=0.25", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert said.json["test_accuracy"] > 0.95
    (tmp_path / "new.txt").write_text("a bad night 3\na good day 4\n")
    found = manyhands("predict", tmp_path / "run", tmp_path / "new.txt", "--json").json["predictions"]
    assert [each["label"] for each in found] == ["sad", "glad"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # inside torch's exporters
@pytest.mark.parametrize("form", ["--onnx", "--torch"])
def test_export(trained, manyhands, tmp_path: Path, form: str) -> None:
    said = manyhands("export", tmp_path / "run", form, tmp_path / "model", "--json")
    assert said.code == 0, said.err
    assert said.json["checked_samples"] == 64
    assert said.json["max_difference"] < 1e-3
    assert (tmp_path / "model").stat().st_size > 1000
    assert {each.name for each in tmp_path.iterdir()} == {"run", "model"}


def test_transfer_and_freeze(trained, manyhands, tmp_path: Path) -> None:
    said = manyhands(
        "train", "convnet", "--plan", SERIAL, *SMALL, "--init-from", tmp_path / "run", "--freeze", "conv*",
        "--out", tmp_path / "second",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert "8 tensors loaded" in said.err
    assert "frozen: conv1.weight" in said.err


def test_compare(manyhands, shared_home, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    said = manyhands(
        "compare", "convnet", "--plan", "plain", "--plan", SERIAL, *SMALL, "--repeats", 2,
        "--out", tmp_path / "c", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    rows = said.json["rows"]
    assert [row["plan"] for row in rows] == ["plain", SERIAL]
    assert rows[0]["speedup"] == 1
    assert all(row["n"] == 2 and row["failed"] is None and row["samples_per_s"]["mean"] > 0 for row in rows)
    # Like for like: repeat r has the same seed under every plan, and repeats are interleaved.
    runs = run_folder.find(tmp_path / "c")
    assert [run.record["config"]["train"]["seed"] for run in runs] == [0, 0, 1, 1]
    assert [run.plan.split(",")[0] for run in runs] == ["plain", "serial", "plain", "serial"]


def test_compare_shows_a_plan_that_fails_beside_the_others(manyhands, shared_home, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    said = manyhands(
        "compare", "mlp", "--plan", SERIAL, "--plan", "serial,capture=on", *SMALL, "--repeats", 1,
        "--out", tmp_path / "c", "--json",
    )  # fmt: skip
    assert said.code == 1
    good, bad = said.json["rows"]
    assert good["failed"] is None
    assert "only a GPU" in bad["failed"]
    assert bad["speedup"] is None


def test_data(manyhands, shared_home, monkeypatch) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    sets = {each["name"]: each for each in manyhands("data", "list", "--json").json["sets"]}
    assert {"digits", "mnist", "tiny-imagenet", "dogs-vs-cats", "tweets", "adult"} == sets.keys()
    facts = manyhands("data", "info", "digits", "--json").json
    assert (facts["train"] + facts["val"], facts["test"], facts["classes"], facts["shape"]) == (
        60000,
        10000,
        10,
        [1, 28, 28],
    )
    assert "digits" in manyhands("data", "list").out
    assert "28" in manyhands("data", "info", "digits").out


def test_export_never_replaces_a_folder(trained, manyhands, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "letter.txt").write_text("keep me")
    said = manyhands("export", tmp_path / "run", "--torch", tmp_path / "models")
    assert said.code == 2
    assert "is a folder" in said.error
    assert (tmp_path / "models" / "letter.txt").read_text() == "keep me"


def test_a_model_that_needs_contiguous_images(manyhands, tmp_path: Path) -> None:
    """As tutorials write it: .view after a convolution. Channels-last loses its trial, nothing fails."""
    (tmp_path / "lenet.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv, self.out = nn.Conv2d(3, 4, 3), nn.Linear(144, 3)\n"
        "    def forward(self, x):\n"
        "        x = self.conv(x)\n"
        "        return self.out(x.view(x.size(0), -1))\n"
    )
    data = ("--data", "synthetic:3x8x8,3", "--batch-size", 64, "--epochs", 1, "--set", "data.size=500")
    for plan in ("plain", "serial"):
        said = manyhands("train", f"{tmp_path}/lenet.py:Net", *data, "--plan", plan, "--out", tmp_path / plan, "--json")
        assert said.code == 0, said.err
        assert "layout=contiguous" in said.json["plan"]
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    assert manyhands("predict", tmp_path / "serial", tmp_path / "a.png").code == 0


def test_a_run_is_found_again_from_another_folder(manyhands, monkeypatch, tmp_path: Path) -> None:
    """Model file and data were given relative to the folder of the training."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("mine.py").write_text("from torch import nn\ndef build():\n    return nn.Linear(2, 2)\n")
    Path("t.csv").write_text("a,b,kind\n" + "".join(f"{n},{n % 5},{'xy'[n % 2]}\n" for n in range(60)))
    said = manyhands(
        "train", "mine.py:build", "--data", "t.csv", "--set", "data.target=kind", "--plan", SERIAL, "--batch-size", 8,
        "--epochs", 1, "--out", "run", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    monkeypatch.chdir(tmp_path)
    assert manyhands("predict", "work/run", "work/t.csv").code == 0
    assert manyhands("export", "work/run", "--torch", "model").code == 0


def test_a_script_that_fits_its_own_model(tmp_path: Path) -> None:
    """Without a guard for __main__: the script is not run a second time to find the model."""
    (tmp_path / "script.py").write_text(
        "import manyhands as mh\nfrom torch import nn\n"
        "def build():\n    return nn.Linear(4, 2)\n"
        "run = mh.fit(build, 'synthetic:4,2', plan='serial,precision=fp32,compile=off', epochs=1, out='run')\n"
        "print(run.status)\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "finished\n", done.stderr


def test_an_error_inside_a_model_is_one_line(manyhands, tmp_path: Path) -> None:
    (tmp_path / "moody.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(4, 2)\n"
        "    def forward(self, x):\n"
        "        if self.training and len(x) == 50:\n"
        "            raise KeyError('not today')\n"
        "        return super().forward(x)\n"
    )
    said = manyhands(
        "train", f"{tmp_path}/moody.py:Net", "--data", "synthetic:4,2", "--batch-size", 100, "--plan", SERIAL,
        "--set", "data.size=158", "--out", tmp_path / "run", "-q",
    )  # fmt: skip
    assert said.code == 1
    assert "KeyError: 'not today'; the traceback is in" in said.error
    assert "Traceback" in (tmp_path / "run" / "log.txt").read_text()
    assert run_folder.load(tmp_path / "run").status == "failed"


def test_the_users_own_model(manyhands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def build(classes, shape):\n"
        "    c, h, w = shape\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, classes))\n"
    )
    said = manyhands(
        "train", f"{tmp_path}/mine.py:build", "--data", "synthetic:1x6x6,3", "--plan", SERIAL, "--batch-size", 64,
        "--epochs", 1, "--set", "data.size=500", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert json.loads((tmp_path / "run" / "data.json").read_text())["classes"] == ["class 0", "class 1", "class 2"]
