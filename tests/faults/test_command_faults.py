"""Commands that take a while, and signals at any moment: they end in one line, leave nothing, work again."""

import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faults.test_moments import MOMENTS, NOT_OURS, PLANS, SETTINGS, SIZE
from faults.witness import Command

FINISHED = Path(__file__).parents[1] / "fixtures" / "v1" / "finished"
SERIAL = f"{PLANS['serial']},threads=1"
TINY = ("mlp", *SIZE, *(word for each in SETTINGS for word in ("--set", each)))
MACHINE = ("--machine", "p100x4-ib")
RECIPE = """
plan = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off"
repeats = 2
[axes]
optim.lr = [0.1, 0.01]
[base]
model.name = "mlp"
data = { name = "synthetic:1x10x10,4", size = 2000 }
train = { batch_size = 50, epochs = 2 }
"""
# Seconds that each takes here, more or less, and the command; RUN is a name that is free.
COMMANDS: dict[str, tuple[float, tuple[str, ...]]] = {
    "compare": (12, ("compare", *TINY, "--plan", SERIAL, "--plan", "plain", "--repeats", "1", "--out", "RUN")),
    "study": (12, ("study", "RECIPE", "--out", "RUN")),
    "plan": (12, ("plan", *TINY[:5], "--set", "model.width=0.1", "--budget", "3", "-o", "RUN")),
    "plan of a machine": (
        6,
        ("plan", "alexnet", "--data", "synthetic:3x64x64,10", *MACHINE, "--budget", "3", "-o", "RUN"),
    ),
    "tune batch-size": (12, ("tune", "batch-size", *TINY[:3], "--plan", SERIAL, "--sizes", "32,64", "--target", "0.3")),
    "tune lr": (8, ("tune", "lr", *TINY[:3], "--plan", SERIAL)),
    "tune workers": (12, ("tune", "workers", *TINY[:3])),
    "probe": (12, ("probe", "--out", "RUN")),
    "simulate": (6, ("simulate", "alexnet", "--data", "synthetic:3x64x64,10", *MACHINE, "--plan", "owt:4")),
    "simulate --accuracy": (10, ("simulate", *TINY[:5], *MACHINE, "--plan", "data:4", "--accuracy")),
    "export --torch": (6, ("export", "FINISHED", "--torch", "RUN")),
    "export --onnx": (10, ("export", "FINISHED", "--onnx", "RUN")),
    "predict": (5, ("predict", "FINISHED", "PICTURE")),
    "report": (4, ("report", "FINISHED", "-o", "RUN")),
    "average": (5, ("average", "FINISHED", "TWIN", "-o", "RUN")),
    "data get": (5, ("data", "get", "tiny-imagenet", "--out", "RUN")),
    "decoding": (8, ("data", "info", "PICTURES")),
    "evaluation": (
        8,
        ("train", *TINY, "--plan", SERIAL, "--set", "train.max_steps=2", "--set", "data.test_size=90000"),
    ),
}
FAULTS = {"SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL, "SIGHUP": signal.SIGHUP}
SHORT = (("decoding", "SIGKILL"), ("study", "SIGTERM"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images enough that decoding them takes a second or two."""
    folder = tmp_path_factory.mktemp("pictures")
    chance = np.random.default_rng(0)
    for label in ("cats", "dogs"):
        (folder / label).mkdir()
        for number in range(150):
            noise = chance.integers(0, 255, (200, 200, 3), dtype=np.uint8)
            Image.fromarray(noise).save(folder / label / f"{number}.png")
    return folder


@pytest.fixture
def slow_server() -> Iterator[str]:
    """A proxy that sends a little at a time, and in the end something else than was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "400000")
            self.end_headers()
            for _ in range(40):
                try:
                    self.wfile.write(bytes(10_000))
                except OSError:
                    return
                time.sleep(0.1)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def cells() -> Iterator[object]:
    for name in COMMANDS:
        for fault in FAULTS:
            yield pytest.param(name, fault, marks=() if (name, fault) in SHORT else pytest.mark.long)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "fault"), list(cells()))
def test_at_any_moment(
    request: pytest.FixtureRequest,
    world: Callable[..., Command],
    tmp_path: Path,
    pictures: Path,
    slow_server: str,
    name: str,
    fault: str,
) -> None:
    seconds, words = COMMANDS[name]
    if "onnx" in name:
        pytest.importorskip("onnx")
    (tmp_path / "mine.toml").write_text(RECIPE)
    run, twin = (shutil.copytree(FINISHED, tmp_path / each) for each in ("finished", "twin"))
    given = {"RECIPE": tmp_path / "mine.toml", "FINISHED": run, "TWIN": twin, "PICTURES": pictures}
    given["PICTURE"] = next((pictures / "cats").iterdir())
    came = Counter[str]()
    for number in range(MOMENTS if request.config.getoption("markexpr") != "not long" else 1):
        chance = random.Random(f"{name} {fault} {number}")
        moment = chance.uniform(0, seconds)
        command = world(
            *(given.get(word, word) for word in words), "-q", http_proxy=slow_server, no_proxy="", NO_PROXY=""
        )
        time.sleep(moment)
        if (early := command.process.poll()) is None:
            command.process.send_signal(FAULTS[fault])
        ended = command.ended()
        about = f"after {moment:.2f} s: {ended}"
        usual = {0, 1, 2} if name == "data get" else {0, 2} if name == "predict" else {0}
        wanted = {-signal.SIGKILL} if fault == "SIGKILL" else {130, *(NOT_OURS if ended.err == "" or ended.out else ())}
        if ended.before_us:
            came["before a line of ours"] += 1
            continue
        assert ended.code in usual | wanted, about
        if ended.code > 0:
            assert ended.error, about
        if ended.code == -signal.SIGKILL and number == 0:
            free = "RUN" if name == "study" else "RUN-anew"  # a study goes on where it was
            words_again = (free if word == "RUN" else given.get(word, word) for word in words)
            again = command.then(*words_again, "-q", "--json", seconds=300)  # a probe takes its time
            assert again.code in usual, (about, again)
            assert command.left() == []
        came["had ended" if early is not None else f"exit code {ended.code}"] += 1
    print(f"{name} | {fault} | {dict(came)}")
