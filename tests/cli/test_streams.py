"""Standard output holds the one JSON object, whatever happens."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from manyhands.runs import run_folder

SERIAL = "serial,precision=fp32,layout=contiguous,compile=off"


def test_what_a_model_prints_is_not_the_result(manyhands, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(
        "from torch import nn\nclass Net(nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(4, 2)\n"
        "    def forward(self, x):\n        print('hello')\n        return super().forward(x)\n"
    )
    said = manyhands(
        "train", f"{tmp_path}/chatty.py:Net", "--data", "synthetic:4,2", "--plan", SERIAL, "--epochs", 1,
        "--out", tmp_path / "run", "--json", "-q",
    )  # fmt: skip
    assert said.json["steps"] == 38
    assert "hello" in said.err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_told_and_marked(tmp_path: Path, how: signal.Signals) -> None:
    folder = tmp_path / "run"
    command = ["train", "mlp", "--data", "synthetic:1x10x10,4", "--plan", SERIAL, "--epochs", "9999", "--json", "-q"]
    with subprocess.Popen(
        [sys.executable, "-m", "manyhands", *command, "--out", str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while not list(folder.glob("checkpoints/step-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(how)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(out)["exit_code"] == 130
    assert run_folder.load(folder).status == "interrupted"
