"""Rates: each kind of work is measured once, and a fresh process settles before it measures."""

import json
import os
import subprocess
import sys
from pathlib import Path

from manyhands.machine import probe
from manyhands.machine.throughput import Rate

SMALL = probe.Sizes(matmul=32, images=1, copied=2**12)
KINDS = [("matmul", "fp32"), ("convolution", "fp32"), ("matmul", "bf16"), ("convolution", "bf16"), ("copy", "fp32")]


def test_each_kind_has_a_rate() -> None:
    rates = probe.measure("cpu", SMALL, seconds=0.003)
    assert [(rate.operation, rate.precision) for rate in rates] == KINDS
    assert [rate.unit for rate in rates] == ["GFLOP/s"] * 4 + ["GB/s"]
    assert {rate.device for rate in rates} == {"cpu"}
    assert min(rate.rate for rate in rates) > 0


def test_operations_are_counted_right() -> None:
    """Against torch's own counter."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    for work in (
        probe._matmul("cpu", "fp32", torch.float32, 32),
        probe._convolution("cpu", "fp32", torch.float32, 2),
    ):
        with FlopCounterMode(display=False) as counter:
            work.call()
        assert work.amount == counter.get_total_flops()


def test_the_best_repeat_counts() -> None:
    calls = []
    assert probe.best(lambda: calls.append(1), lambda: None, seconds=0) >= 0
    assert len(calls) == 2  # one to warm up, one at least that counts


def test_a_fresh_process_settles_first(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "manyhands.machine.probe", "cpu", tmp_path / "rates.json", str(core), "0.001"]
    subprocess.run(command, check=True)
    rates = [Rate(**each) for each in json.loads((tmp_path / "rates.json").read_text())]
    assert [(rate.operation, rate.precision) for rate in rates] == KINDS
    assert {rate.threads for rate in rates} == {1}
