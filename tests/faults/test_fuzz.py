"""Every file that is read, damaged in many ways: what reads it gives a value, or one line of why it cannot."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.mutations import mutated
from manyhands.config import read as read_config
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.engine.loop import checkpoint_folder
from manyhands.errors import ManyhandsError
from manyhands.inference.load import load_run, schema_of
from manyhands.machine import cluster_toml
from manyhands.plan import spec
from manyhands.runs import export_metrics, metrics_reader, run_folder
from manyhands.studies import recipe, record
from manyhands.train.weights import best_checkpoint

V1 = Path(__file__).parents[1] / "fixtures" / "v1"
LAST = "checkpoints/step-00000036"


def of_run(name: str, read: Callable[[run_folder.Run], object]) -> tuple[Path, Callable[[Path], object]]:
    """A file of a run folder, and what reads it there."""
    source = V1 / "finished"

    def look(folder: Path) -> object:
        return read(run_folder.load(folder))

    return source / name, look


READERS: dict[str, tuple[Path, Callable[[Path], object]]] = {
    "run.json": of_run("run.json", lambda run: (run.plan, run.result, list(run.metrics()))),
    "metrics.jsonl": of_run("metrics.jsonl", lambda run: (list(run.metrics()), metrics_reader.cut_metrics(run, 3))),
    "timeline.json": of_run("timeline.json", lambda run: export_metrics.write_trace(run, run.folder / "out")),
    "data.json": of_run("data.json", schema_of),
    f"{LAST}/state.json": of_run(f"{LAST}/state.json", lambda run: (best_checkpoint(run), load_run(run.folder))),
    f"{LAST}/model.safetensors": of_run(f"{LAST}/model.safetensors", lambda run: load_run(run.folder)),
    f"{LAST}/optimizer.safetensors": of_run(
        f"{LAST}/optimizer.safetensors", lambda run: checkpoint_folder.newest_whole(run.checkpoints)
    ),
    "checkpoints/best": of_run("checkpoints/best", lambda run: load_run(run.folder)),
}


def alone(name: str, source: Path, read: Callable[[Path], object]) -> tuple[str, Path, Callable[[Path], object]]:
    return name, source, read


def study_of(path: Path) -> object:
    return record.find(path.parent)


FILES = [
    alone("plan.toml", V1 / "plan.toml", spec.read),
    alone("recipe.toml", V1.parent / "recipe.toml", lambda path: recipe.read(str(path))),
    alone("study.json", V1 / "study" / "study.json", study_of),
]
CONFIG = """
[model]
name = "convnet"
width = 0.5
dropout = 0.1
[data]
name = "mnist"
size = 1000
validation = 0.05
[optim]
name = "adam"
lr = 1e-3
[train]
epochs = 3
batch_size = 256
clip = 1.0
ema = 0.99
grow = "0.5:2,0.75:2"
[checkpoint]
every_steps = 100
[fault]
slow_rank = "1:3x"
"""


@pytest.fixture
def tally() -> Any:
    counts: Counter[str] = Counter()
    yield counts
    print(dict(counts))


def tried(read: Callable[[Path], object], path: Path) -> str:
    """What became of it."""
    begun, refused = time.monotonic(), None
    try:
        read(path)
    except ManyhandsError as error:
        refused = str(error)
    assert refused is None or "\n" not in refused.strip()
    assert time.monotonic() - begun < 30
    return "read" if refused is None else "refused in one line"


def fuzz(count: int, target: Path, source: Path, read: Callable[[Path], object], at: Path, tally: Counter[str]) -> None:
    content, rng = source.read_bytes(), random.Random(target.name)
    for number in range(count):
        target.write_bytes(changed := mutated(content, rng))
        try:
            tally[tried(read, at)] += 1
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise AssertionError(f"{target.name}, mutation {number} ({changed[:200]!r}…): {what}") from error


COUNTS = [20, pytest.param(300, marks=pytest.mark.long)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", READERS)
@pytest.mark.filterwarnings("ignore")
def test_files_of_a_run(tmp_path: Path, tally: Counter[str], name: str, count: int) -> None:
    source, read = READERS[name]
    folder = Path(shutil.copytree(V1 / "finished", tmp_path / "run"))
    fuzz(count, folder / name, source, read, folder, tally)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file[0])
def test_files_that_stand_alone(tmp_path: Path, tally: Counter[str], file: Any, count: int) -> None:
    name, source, read = file
    fuzz(count, tmp_path / name, source, read, tmp_path / name, tally)


@pytest.mark.parametrize("count", COUNTS)
def test_configs(tmp_path: Path, tally: Counter[str], count: int) -> None:
    (tmp_path / "source").write_text(CONFIG)
    fuzz(count, tmp_path / "c.toml", tmp_path / "source", read_config, tmp_path / "c.toml", tally)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["p100x4-ib", "edge4-1gbe"])
def test_machines(tmp_path: Path, tally: Counter[str], name: str, count: int) -> None:
    content = (cluster_toml.shipped() / f"{name}.toml").read_bytes()
    (tmp_path / "source").write_bytes(content)
    fuzz(count, tmp_path / "m.toml", tmp_path / "source", cluster_toml.read, tmp_path / "m.toml", tally)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["meta.json", "inputs.npy", "labels.npy"])
def test_decoded_data(home: Path, tmp_path: Path, tally: Counter[str], name: str, count: int) -> None:
    """What was decoded once is decoded again where it cannot be trusted."""
    options = DataOptions(size=50)
    wanted = load("digits", options)
    (folder,) = (each for each in (home / "data").iterdir() if each.is_dir())
    source = Path(shutil.copy(folder / name, tmp_path / name))

    def read(path: Path) -> object:
        found = load("digits", options)
        assert (found.train.inputs[found.train.index] == wanted.train.inputs[wanted.train.index]).all()
        assert found.schema == wanted.schema
        return found

    fuzz(count // 3, folder / name, source, read, folder, tally)
