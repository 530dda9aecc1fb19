"""How a run failed is in its run.json."""

from pathlib import Path

import pytest

from manyhands.config import Config
from manyhands.errors import DataError, RankError
from manyhands.plan.spec import parse
from manyhands.runs import run_folder
from manyhands.runs.status import bad_input
from manyhands.train.create import begin


def test_any_rank_tells_of_bad_input(tmp_path: Path) -> None:
    run = begin(Config(), parse("data:2"), tmp_path / "run")
    with pytest.raises(DataError), bad_input(run):
        raise DataError("the files of mnist are not here")
    told = run_folder.load(run.folder).record
    assert (told["exit_code"], told["error"]) == (2, "the files of mnist are not here")


def test_other_failures_are_for_the_launcher_to_tell(tmp_path: Path) -> None:
    run = begin(Config(), parse("data:2"), tmp_path / "run")
    with pytest.raises(RankError), bad_input(run):
        raise RankError("rank 1 was killed (signal 9)")
    assert run_folder.load(run.folder).record.get("exit_code") is None
