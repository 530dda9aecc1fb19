"""Every file that a command reads, damaged: the command ends well, or in one line with exit code 2, and soon."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from faults.mutations import mutated
from faults.test_fuzz import CONFIG, LAST, V1
from manyhands.machine import cluster_toml

MUTATIONS = 10
SECONDS = 30
SERIAL = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off,threads=1"
# Whatever a damaged file asks for, what is trained is small: what is said on the command line holds.
SMALL = (
    "--set",
    "train.max_steps=2",
    "--set",
    "data.size=40",
    "--set",
    "data.test_size=10",
    "--set",
    "model.width=0.1",
)
TRAIN = ("train", "mlp", "--data", "synthetic:1x6x6,4", "--batch-size", "8", *SMALL)
ON = ("--data", "synthetic:1x6x6,4", "--batch-size", "8")
SHOWN = (("show", "RUN"), ("runs", "FOLDER", "--json"), ("report", "RUN", "-o", "OUT"))
LOADED = (("predict", "RUN", "PICTURE"), ("export", "RUN", "--torch", "OUT"), ("average", "RUN", "TWIN", "-o", "OUT"))
RESUMED = (("train", "--resume", "HALF"),)
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "run.json": (*SHOWN, *LOADED, *RESUMED, ("export", "RUN", "--csv", "OUT")),
    "metrics.jsonl": (*SHOWN, *RESUMED, ("export", "RUN", "--csv", "OUT")),
    "timeline.json": (*SHOWN, ("export", "RUN", "--trace", "OUT")),
    "data.json": (*LOADED, *RESUMED),
    "state.json": (*LOADED, *RESUMED),
    "model.safetensors": (*LOADED, *RESUMED),
    "optimizer.safetensors": (*LOADED, *RESUMED),
    "best": LOADED,
    "plan.toml": (
        ("simulate", "alexnet", "--data", "synthetic:3x64x64,10", "--machine", "p100x4-ib", "--plan", "FILE"),
        ("explain", "FILE", "--model", "alexnet", "--data", "synthetic:3x64x64,10", "--machine", "p100x4-ib"),
    ),
    "recipe.toml": (("study", "FILE", "--dry-run"),),
    "study.json": (("report", "STUDY", "-o", "OUT"), ("report", "STUDY", "-o", "OUT", "--md", "OTHER")),
    "machine.toml": (
        ("simulate", "mlp", *ON, "--machine", "FILE", "--plan", "data:2"),
        ("plan", "mlp", *ON, "--machine", "FILE", "--budget", "0.2", "-o", "OUT"),
    ),
    "config.toml": ((*TRAIN, "--plan", SERIAL, "--config", "FILE", "--out", "OUT"),),
    "table.csv": (("data", "info", "FILE", "--set", "data.target=class"),),
    "set.npz": (("data", "info", "FILE"),),
    "picture.png": (("predict", "RUN", "FILE"),),
}


@pytest.fixture
def scene(tmp_path: Path) -> Callable[[], dict[str, Path]]:
    """Makes new copies of all that is read, whole, and says where each is."""

    def make() -> dict[str, Path]:
        folder = tmp_path / "scene"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "runs").mkdir(parents=True)
        run = Path(shutil.copytree(V1 / "finished", folder / "runs" / "run"))
        twin = Path(shutil.copytree(V1 / "finished", folder / "twin"))
        half = Path(shutil.copytree(V1 / "serial", folder / "runs" / "half"))
        study = Path(shutil.copytree(V1 / "study", folder / "study"))
        shutil.copy(V1 / "plan.toml", folder / "plan.toml")
        shutil.copy(V1.parent / "recipe.toml", folder / "recipe.toml")
        shutil.copy(cluster_toml.shipped() / "p100x4-ib.toml", folder / "machine.toml")
        (folder / "config.toml").write_text(CONFIG.partition("[fault]")[0])
        rows = "\n".join(f"{number / 7},{number % 5},{'ab'[number % 2]}" for number in range(60))
        (folder / "table.csv").write_text(f"x,y,class\n{rows}\n")
        chance = np.random.default_rng(0)
        np.savez(folder / "set.npz", x=chance.random((40, 6), np.float32), y=np.arange(40) % 3)
        Image.fromarray(chance.integers(0, 255, (8, 8), np.uint8)).save(folder / "picture.png")
        return {
            "FOLDER": folder / "runs",
            "RUN": run,
            "TWIN": twin,
            "HALF": half,
            "STUDY": study,
            "PICTURE": folder / "picture.png",
            "OUT": folder / "out",
            "OTHER": folder / "other",
        }

    return make


def damaged(name: str, words: tuple[str, ...], places: dict[str, Path]) -> Path:
    """The file of that name that the command reads."""
    run = places["HALF"] if "HALF" in words else places["RUN"]
    folder = places["FOLDER"].parent
    within = {
        **dict.fromkeys(("run.json", "metrics.jsonl", "timeline.json", "data.json"), run),
        **dict.fromkeys(
            ("state.json", "model.safetensors", "optimizer.safetensors"), max(run.glob("checkpoints/step-*"))
        ),
        "best": run / "checkpoints",
        "study.json": places["STUDY"],
    }
    assert "RUN" not in words or LAST in str(max(run.glob("checkpoints/step-*")))
    return within.get(name, folder) / name


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(600)
def test_a_command(
    request: pytest.FixtureRequest, manyhands: Any, scene: Callable[[], dict[str, Path]], name: str
) -> None:
    chance, came = random.Random(name), Counter[str]()
    for words in COMMANDS[name]:
        places = scene()
        whole = {**places, "FILE": damaged(name, words, places)}
        said = manyhands(*(whole.get(word, word) for word in words), "-q")
        assert said.code == 0, f"undamaged: {words}: {said}"
    for number in range(MUTATIONS if request.config.getoption("markexpr") != "not long" else 2):
        for words in COMMANDS[name]:
            places = scene()
            path = damaged(name, words, places)
            path.write_bytes(changed := mutated(path.read_bytes() if path.exists() else b"", chance))
            begun = time.monotonic()
            said = manyhands(*({**places, "FILE": path}.get(word, word) for word in words), "-q")
            about = f"mutation {number} of {name}, {' '.join(words)}: {changed[:300]!r}: {said}"
            assert said.code in (0, 2), about
            assert "Traceback" not in said.err, about
            assert time.monotonic() - begun < SECONDS, about
            if said.code:
                assert said.err.count("error: ") == 1, about
                assert said.err.splitlines()[-1].startswith("error: "), about
            came[f"exit code {said.code}"] += 1
    print(f"{name} | {dict(came)}")
