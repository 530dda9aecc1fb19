"""Two commands that want the same folder at the same time: one does its work, the other is told, or waits."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.test_moments import PLANS, TRAIN
from faults.witness import Command

V1 = Path(__file__).parents[1] / "fixtures" / "v1"


@pytest.fixture
def both(world: Callable[..., Command], tmp_path: Path) -> Callable[..., list[Command]]:
    """Starts a command twice at once; both have one home."""
    return lambda *words: [world(*words, MANYHANDS_HOME=str(tmp_path / "home")) for _ in range(2)]


@pytest.mark.parametrize("plan", ["serial", pytest.param("data:2", marks=pytest.mark.long)])
def test_two_trainings_in_one_folder(both: Callable[..., list[Command]], tmp_path: Path, plan: str) -> None:
    ended = [each.ended() for each in both(*TRAIN, "--plan", PLANS[plan], "--out", tmp_path / "run", "-q")]
    assert sorted(each.code for each in ended) == [0, 2], ended
    (refused,) = (each.error for each in ended if each.code)
    assert str(tmp_path / "run") in refused
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


@pytest.mark.parametrize("plan", ["serial", pytest.param("data-gloo", marks=pytest.mark.long)])
def test_two_resumes_of_one_run(both: Callable[..., list[Command]], tmp_path: Path, plan: str) -> None:
    run = Path(shutil.copytree(V1 / plan, tmp_path / "run"))
    ended = [each.ended() for each in both("train", "--resume", run, "-q")]
    assert sorted(each.code for each in ended) == [0, 2], ended
    (refused,) = (each.error for each in ended if each.code)
    assert "is still being trained" in refused or "has finished" in refused
    wanted = json.loads((V1 / "undisturbed.json").read_text())[plan]
    result = json.loads((run / "run.json").read_text())["result"]
    assert result["final_loss"] == pytest.approx(wanted["final_loss"], rel=1e-6)


def test_two_first_decodings(both: Callable[..., list[Command]], tmp_path: Path) -> None:
    """The second finds what the first has decoded, or decodes the same."""
    ended = [each.ended() for each in both("data", "info", "digits", "--json", "-q")]
    assert [each.code for each in ended] == [0, 0], ended
    assert ended[0].out == ended[1].out
    stored = [path for path in (tmp_path / "home" / "data").iterdir() if path.is_dir()]
    assert len(stored) == 1, stored
    assert not list((tmp_path / "home").rglob(".*tmp"))
