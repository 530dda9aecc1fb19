"""How soon the live page answers over a folder of many runs: the list, and a comparison of ten.

usage: live_page.py [--runs 1000] [--steps 1000] [--repeats 20] [--starts 5]

The runs are written into a folder that is removed afterwards; the server is the real command in a process of its own.
The first look is that of an index which knows nothing, with its list made into JSON; a server takes it before it says
that it listens, and the first list is asked for in that moment. Between two lists of the same server there is a pause,
so that each looks at the folder again. A comparison is cold when no page has asked for any of its ten runs before.
"""

import argparse
import json
import math
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from bench import heading

from manyhands.report.live.index import Index
from manyhands.report.live.values import encode

LIST, COMPARISON = 300, 1000  # milliseconds: what is promised
COMPARED = 10
PAUSE = 0.25  # seconds, longer than a look counts as the present


def write_runs(folder: Path, runs: int, steps: int) -> None:
    """As trainings leave them, with eleven layers and some trials each: about 7 kB of run.json, 80 kB of metrics."""
    chance = random.Random(0)
    for number in range(runs):
        run = folder / f"run-{number:05}"
        run.mkdir()
        (run / "run.json").write_text(json.dumps(_record(number, steps, chance), indent=2))
        (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in _metrics(steps, chance)))


def _record(number: int, steps: int, chance: random.Random) -> dict[str, Any]:
    words = f"data:{1 + number % 8},device=cpu,precision=bf16,layout=channels_last,allocator=keep,kernels=own,threads=1"
    layer = {"kind": "Conv2d", "parameters": 18496, "forward_ms": 12.818428996979492, "backward_ms": 29.008621000684798}
    seconds = {name: chance.random() for name in ("setup", "search", "compile", "train", "eval", "checkpoint", "total")}
    result = {
        "samples_per_s": 3000 + 1000 * chance.random(),
        "test_accuracy": 0.9 + 0.1 * chance.random(),
        "steps": steps,
    }
    options = {f"option_{at}": chance.random() for at in range(45)}
    return {
        "format": 1,
        "status": "finished",
        "created": f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000000+00:00",
        "result": {**result, "final_loss": chance.random(), "seconds": seconds, "plan": words},
        "config": {
            "model": {"name": "convnet"},
            "data": {"name": "mnist"},
            "train": {"epochs": 3, "batch_size": 256, **options},
        },
        "plan": {"axes": [f"data:{1 + number % 8}"], "precision": "bf16", "threads": 1},
        "plan_words": words,
        "machine_words": "a CPU, 2 cores, 24 GiB",
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "ranks": [{"rank": rank, "pid": 1000 + rank, "host": "here", "cores": [rank]} for rank in range(4)],
        "trials": [{"plan": words, "step_ms": 64.1, "first_ms": 223.3, "error": None} for _ in range(4)],
        "layers": [{"name": f"layer{at}", **layer} for at in range(11)],
        "total_steps": steps,
    }


def _metrics(steps: int, chance: random.Random) -> Iterator[dict[str, float]]:
    for step in range(1, steps + 1):
        loss = 2.3 * math.exp(-3 * step / steps) + 0.1 * chance.random()
        yield {"step": step, "loss": loss, "lr": 0.001, "ms": 60 + 10 * chance.random()}
        if step % max(1, steps // 3) == 0:
            yield {"step": step, "epoch": step * 3 // steps, "val_loss": loss, "val_accuracy": 1 - loss / 10}


@contextmanager
def served(folder: Path) -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "manyhands", "serve", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client
        process.send_signal(signal.SIGINT)


def timed(client: httpx.Client, address: str, **parameters: Any) -> tuple[float, Any]:
    """Milliseconds until the whole answer is here, and the answer."""
    begun = time.perf_counter()
    answer = client.get(address, params=parameters)
    took = 1000 * (time.perf_counter() - begun)
    return took, answer.raise_for_status().json()


def measure(folder: Path, repeats: int, starts: int) -> Iterator[tuple[str, list[float], int]]:
    """What was asked, how many milliseconds each answer took, and how many are promised."""
    looks = []
    for _ in range(starts):
        begun = time.perf_counter()
        encode(Index(folder).refresh().to_json())
        looks.append(1000 * (time.perf_counter() - begun))
    yield "the first look", looks, LIST
    first = []
    for _ in range(starts):
        with served(folder) as client:
            first.append(timed(client, "/api/runs")[0])
    yield "the first list of a server", first, LIST
    with served(folder) as client:
        again = []
        for _ in range(repeats):
            time.sleep(PAUSE)
            took, listed = timed(client, "/api/runs")
            again.append(took)
        yield "the list", again, LIST
        ids = [row["id"] for row in listed["rows"]]
        some = [ids[at : at + COMPARED] for at in range(0, min(len(ids), repeats * COMPARED), COMPARED)]
        cold = [timed(client, "/api/compare", run=each)[0] for each in some]
        yield f"a comparison of {COMPARED}, cold", cold, COMPARISON
        warm = [timed(client, "/api/compare", run=some[0])[0] for _ in range(repeats)]
        yield f"a comparison of {COMPARED}, again", warm, COMPARISON


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--starts", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_runs(Path(folder), chosen.runs, chosen.steps)
        rows = list(measure(Path(folder), chosen.repeats, chosen.starts))
    title = f"The live page over {chosen.runs:,} runs of {chosen.steps:,} steps"
    print("\n".join(heading(title, chosen.repeats, interleaved=False)))
    print("| answer | n | median ms | 95th percentile ms | worst ms | promised ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, values, limit in rows:
        figures = (statistics.median(values), _percentile(values, 0.95), max(values))
        print(f"| {name} | {len(values)} | {' | '.join(f'{value:,.0f}' for value in figures)} | {limit:,} |")


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


if __name__ == "__main__":
    main()
