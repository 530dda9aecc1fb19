"""What the benchmark scripts share: trainings in processes of their own, and how results are written down."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manyhands.machine.detect import detect
from manyhands.runs.environment import versions

HERE = Path(__file__).parent
Result = dict[str, Any]


def mnist() -> Path:
    for folder in os.environ.get("MANYHANDS_DATA", "").split(":"):
        if (Path(folder) / "mnist").is_dir():
            return Path(folder) / "mnist"
    sys.exit("put MNIST's files into a folder mnist and name its parent in MANYHANDS_DATA")


def output_of(command: Sequence[object]) -> Result:
    """The JSON object that is the last line of what a command prints."""
    done = subprocess.run([str(each) for each in command], stdout=subprocess.PIPE, text=True, check=True)
    result: Result = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def train(model: str, data: str, plan: str, *arguments: object) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        out = ("--out", Path(folder) / "run", "--json", "--quiet")
        command = (sys.executable, "-m", "manyhands", "train", model, "--data", data, "--plan", plan)
        return output_of((*command, *arguments, *out))


def usual(batch: int, seed: int, epochs: int, *arguments: object) -> Result:
    script = (sys.executable, HERE / "usual_script.py", mnist(), "--batch-size", batch, "--seed", seed)
    return output_of((*script, "--epochs", epochs, *arguments))


def spread(values: Sequence[float], digits: int = 0, scale: float = 1) -> str:
    """Mean and deviation, which a single value has none of."""
    values = [scale * value for value in values]
    deviation = f" ± {statistics.stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):,.{digits}f}{deviation}"


def ratio(results: Sequence[Result], base: Sequence[Result]) -> str:
    """Of the same repeat: what disturbed one of the pair is likely to have disturbed the other."""
    pairs = zip(results, base, strict=True)
    return spread([each["samples_per_s"] / other["samples_per_s"] for each, other in pairs], 2)


def heading(title: str, repeats: int | str, *, interleaved: bool = True, machine: str | None = None) -> Iterator[str]:
    """The title, the machine (this one, unless another measured) and the command."""
    found = versions()
    yield f"## {title}\n"
    order = ", interleaved" if interleaved else ""
    machine = machine or f"{detect()}; torch {found['torch']}, Python {found['python']}"
    yield f"{machine}; n = {repeats}{order}."
    yield f"`python benchmarks/{' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}`\n"
