"""Runner: many trainings in one folder, each in a fresh process; what has finished there is never done twice.

repeat 0    A B C …       interleaved, so that a machine that grows slower does so for all
repeat 1    A B C …       repeat r uses seed + r in every case, so that cases are paired
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from manyhands.comm.launch.fresh_process import in_fresh_process
from manyhands.errors import InputError, RunError
from manyhands.files import locked
from manyhands.progress import Bar, bar, say
from manyhands.runs import run_folder
from manyhands.studies.grid import Case
from manyhands.train import create, launch
from manyhands.tune.plan.complete import completed

LOCK = ".lock"
ORDER = "sweep.json"  # what a study is to do
MOST_LABEL = 40  # letters of a label in a folder's name


@dataclass
class Sweep:
    """A folder of trainings that goes on."""

    folder: Path
    total: int
    shown: Bar
    done: int = 0

    def train(self, number: int, case: Case, repeat: int) -> run_folder.Run:
        """The finished run of a case: as it lies there from before, or trained now; one that fails is kept too."""
        self.done += 1
        folder = self.folder / f"{number}-{_slug(case.label)}-r{repeat}"
        if (old := _finished(folder)) is not None:
            self.shown.advance()
            return old
        shutil.rmtree(folder, ignore_errors=True)
        say(f"{self.done} of {self.total}: {case.label}, repeat {repeat + 1}")
        config = replace(case.config, train=replace(case.config.train, seed=case.config.train.seed + repeat))
        run = create.begin(config, completed(case.plan, config), folder).update(case=case.label, repeat=repeat)
        try:
            with _part(self.shown, case.label) as part, launch.progress_shown(folder, part):
                code, errors = in_fresh_process("manyhands.train.worker", str(folder))
        except KeyboardInterrupt:
            if (run := run_folder.load(folder)).status == "running":  # whose process could not say so itself
                run.update(status="interrupted", error="interrupted", exit_code=130)
            raise
        run = run_folder.load(folder)
        if run.status == "running":  # it died without a word
            last = errors.strip().splitlines()[-1] if errors.strip() else "no message"
            run = run.update(status="failed", error=f"exit code {code}: {last}", exit_code=1)
        if run.status != "finished":
            say(f"  failed: {run.record['error']}")
        return run


@contextmanager
def sweep(folder: Path, total: int) -> Iterator[Sweep]:
    """Work in a folder, alone, under a bar that counts trainings."""
    with locked(folder / LOCK, wait=False), bar(f"{total} trainings", total, "trainings") as shown:
        yield Sweep(folder, total, shown)


def train_all(cases: Sequence[Case], repeats: int, folder: Path) -> list[list[run_folder.Run]]:
    """Every case `repeats` times, interleaved; the runs of each case. Where no case trains at all, its error."""
    made: list[list[run_folder.Run]] = [[] for _ in cases]
    with sweep(folder, len(cases) * repeats) as going:
        for repeat in range(repeats):
            for number, case in enumerate(cases):
                made[number].append(going.train(number, case, repeat))
            if all(run.status != "finished" for each in made for run in each):
                raise fail(made[0][0], folder)
    return made


def fail(run: run_folder.Run, folder: Path) -> InputError | RunError:
    """The error of a sweep in which nothing trains; bad input leaves nothing behind."""
    if run.record.get("exit_code") != InputError.exit_code:
        return RunError(str(run.record["error"]))
    for each in run_folder.find(folder):
        shutil.rmtree(each.folder)
    clear(folder)
    return InputError(str(run.record["error"]))


def clear(folder: Path) -> None:
    """Bad input leaves nothing behind."""
    for name in (ORDER, LOCK):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _finished(folder: Path) -> run_folder.Run | None:
    try:
        run = run_folder.load(folder)
    except InputError:
        return None
    return run if run.status == "finished" else None


def _slug(label: str) -> str:
    return re.sub(r"[^\w.]+", "-", label).strip("-")[:MOST_LABEL]


@dataclass
class _Part:
    """One training's share of the sweep's bar: 100 of it are one there."""

    whole: Bar
    note: str
    told: float = 0.0

    def advance(self, amount: float = 1, note: str = "") -> None:
        amount = min(amount / 100, 1 - self.told)
        self.told += amount
        self.whole.advance(amount, self.note)


@contextmanager
def _part(whole: Bar, note: str) -> Iterator[_Part]:
    part = _Part(whole, note)
    part.advance(0)
    yield part
    part.advance(100)
