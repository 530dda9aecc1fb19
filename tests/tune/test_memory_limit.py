"""A batch that does not fit fails in its own process, by a real limit, and the command goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyhands.tune.memory_limit import free_bytes

LIMIT = 1000 * 2**20  # bytes of data that a process may have
UNDER_A_LIMIT = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT}, {LIMIT}))
from manyhands.plan.spec import parse
from manyhands.config import Config, with_values
from manyhands.tune.child_process import settled
from manyhands.tune.throughput import Speeds
values = {{"data.name": "synthetic:3x64x64,4", "data.size": 1000, "data.test_size": 10, "model.width": 0.5}}
config = with_values(Config(), values)
words = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off,threads=1"
speeds = Speeds(config, settled(config, parse(words)))
print(json.dumps([speeds.at(size).to_json() for size in (4, 900)]))
"""


@pytest.mark.long
def test_a_memory_limit() -> None:
    done = subprocess.run([sys.executable, "-c", UNDER_A_LIMIT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    small, large = json.loads(done.stdout)
    assert small["failed"] is None
    assert "memory" in large["failed"]
    assert large["samples_per_s"] is None
    assert 0 < small["memory_mb"] < LIMIT / 2**20


@pytest.mark.long
def test_tune_finds_the_limit(tmp_path: Path) -> None:
    """The whole command under the same limit: the largest batch that runs, and what a larger one said."""
    arguments = [
        "tune", "batch-size", "convnet", "--data", "synthetic:3x64x64,4", "--set", "data.size=1000", "--sizes", "64",
        "--budget", "1", "--epochs", "1", "--set", "train.max_steps=4", "--target", "0.01", "--json",
        "--set", "model.width=0.5", "--set", "data.test_size=10",
        "--plan", "serial,device=cpu,precision=fp32,layout=contiguous,compile=off,threads=1",
    ]  # fmt: skip
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT}, {LIMIT}))\n"
        f"from manyhands.cli.main import run; sys.exit(run({arguments!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    limit = found["memory_limit"]
    assert 64 <= limit["batch_size"] < limit["fails_at"] <= 950
    assert "memory" in limit["why"]
    assert found["best"]["batch_size"] == 64


def test_the_guard(tmp_path: Path) -> None:
    """A process may have what is free and no more; what asks for more fails, and goes on."""
    code = (
        "import resource; from manyhands.tune.memory_limit import free_bytes, guard; guard(4)\n"
        "limit = resource.getrlimit(resource.RLIMIT_DATA)[0]\n"
        "assert 0 < limit < free_bytes() / 3, limit\n"
        "try: bytearray(limit); raise SystemExit('it was given')\n"
        "except MemoryError: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert done.stdout == "refused\n", done.stderr


def test_a_container_has_less(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) == pytest.approx(free_bytes(tmp_path / "none"), rel=0.2)
    (tmp_path / "memory.max").write_text(f"{300 * 2**20}\n")
    (tmp_path / "memory.current").write_text(f"{200 * 2**20}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {50 * 2**20}\n")
    assert free_bytes(tmp_path) == 150 * 2**20
