"""How far a run is, and whether it is still there."""

import os
import platform
import time
from pathlib import Path
from typing import Any

import pytest

from manyhands.report.live.index import Index

MakeRun = Any


def row(index: Index) -> dict[str, Any]:
    """The only one, as it is now."""
    index.looked = float("-inf")
    (found,) = index.refresh().to_json()["rows"]
    return dict(found)


def steps(first: int, last: int, loss: float = 1.0) -> str:
    return "".join(f'{{"step": {at}, "loss": {loss}, "lr": 0.1, "ms": 100.0}}\n' for at in range(first, last + 1))


def test_a_run_that_trains_shows_how_far_it_is(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("one").update(status="running", result=None, total_steps=1000, ranks=_ranks(os.getpid()))
    validation = '{"step": 200, "epoch": 1, "val_loss": 0.5, "val_accuracy": 0.9}\n'
    (run.folder / "metrics.jsonl").write_text(steps(1, 200) + validation + steps(201, 600, 0.25) + '{"step": 601, "lo')
    shown = row(Index(tmp_path))
    assert shown["status"] == "running"
    assert (shown["step"], shown["steps"], shown["loss"]) == (600, 1000, 0.25)
    assert shown["accuracy"] == 0.9
    assert not shown["tested"]
    assert shown["samples_per_s"] == pytest.approx(2560.0)  # batches of 256 in 100 ms
    assert shown["left"] == pytest.approx(40.0)


def _ranks(pid: Any, host: str | None = None) -> list[dict[str, Any]]:
    return [{"rank": 0, "pid": pid, "host": host or platform.node(), "cores": [0]}]


NOBODY = 2**22 + 1  # more than Linux gives
INIT = 1  # runs since the machine does


@pytest.mark.parametrize(
    ("ranks", "silent", "status"),
    [
        (_ranks(NOBODY), 5, "running"),  # it may be about to write
        (_ranks(NOBODY), 120, "stalled"),
        (_ranks(INIT), 120, "running"),  # a long step
        (_ranks(INIT), 1e9, "stalled"),  # began after the run last wrote: the number was given again
        (_ranks(NOBODY, host="elsewhere"), 7200, "running"),  # cannot be seen from here
        (_ranks(-1), 120, "stalled"),
        (_ranks("a text"), 120, "running"),
        (_ranks("a text"), 1200, "stalled"),
        (None, 120, "running"),  # importing torch on a slow disk
        (None, 1200, "stalled"),
    ],
)
def test_a_run_whose_process_is_gone_has_stalled(
    make_run: MakeRun, tmp_path: Path, ranks: Any, silent: float, status: str
) -> None:
    run = make_run("one").update(status="running", result=None, ranks=ranks)
    then = time.time() - silent
    for name in ("run.json", "metrics.jsonl"):
        os.utime(run.folder / name, (then, then))
    assert row(Index(tmp_path))["status"] == status


def test_a_run_stalls_while_nothing_changes(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run("one").update(status="running", result=None, ranks=_ranks(NOBODY))
    index = Index(tmp_path)
    assert row(index)["status"] == "running"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 120)
    assert row(index)["status"] == "stalled"
