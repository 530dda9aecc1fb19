"""Summary: what runs say together: a row a case, the winner, how sure that is, and the sentence that tells it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from manyhands.report.data.group import Group
from manyhands.runs.run_folder import Run
from manyhands.stats import Mean, errors_apart, mean, percent, spread, times, within_noise

MOST_LETTERS = 1000  # of an error


@dataclass(frozen=True)
class Row:
    """One case: its runs and their means; a measure that no run gave is None."""

    label: str
    runs: tuple[Run, ...]
    speed: Mean | None  # samples a second
    seconds: Mean | None  # of training
    accuracy: Mean | None  # on the test set
    memory: Mean | None  # megabytes at most
    sent: Mean | None  # bytes that a rank sends in a step
    fewer: Mean | None  # how many times fewer they are for compression
    step: Mean | None  # milliseconds, measured
    predicted: Mean | None  # milliseconds
    speedup: float | None  # over the first row of the same task

    @property
    def finished(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.result)

    @property
    def errors(self) -> tuple[str, ...]:
        """Why runs of this case did not finish, each reason once."""
        ended = [run for run in self.runs if run.status in ("failed", "interrupted")]
        reasons = (str(run.record.get("error") or run.status)[:MOST_LETTERS] for run in ended)
        return tuple(dict.fromkeys(reasons))

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        return "plain PyTorch" if self.label == "plain" else self.label

    @property
    def task(self) -> str:
        """What was trained on what: only the same task can be compared."""
        return task_of(self.runs[0])


def task_of(run: Run) -> str:
    return f"{setting(run, 'model', 'name')} on {setting(run, 'data', 'name')}"


def setting(run: Run, part: str, name: str) -> Any:
    """A value of the run's config; a dash where it has none."""
    value = (run.record.get("config", {}).get(part) or {}).get(name)
    return "–" if value is None else value


def rows(groups: Iterable[Group]) -> list[Row]:
    """A row a group; the speed-up is over the first of the same task."""
    bases: dict[str, Mean | None] = {}
    table = []
    for each in groups:
        results = [run.result for run in each.runs if run.result]
        speed = _mean(results, "samples_per_s")
        base = bases.setdefault(task_of(each.runs[0]), speed)
        table.append(
            Row(
                label=each.label,
                runs=each.runs,
                speed=speed,
                seconds=mean((result.get("seconds") or {}).get("train") for result in results),
                accuracy=_mean(results, "test_accuracy"),
                memory=_mean(results, "peak_memory_mb"),
                sent=_mean(results, "sent_bytes_per_step"),
                fewer=_mean(results, "compression_ratio"),
                step=_mean(results, "measured_step_ms"),
                predicted=_mean(results, "predicted_step_ms"),
                speedup=speed.mean / base.mean if speed and base and base.mean else None,
            )
        )
    return table


def _mean(results: Iterable[dict[str, Any]], name: str) -> Mean | None:
    return mean(result.get(name) for result in results)


def tasks(table: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by what was trained on what."""
    by_task: dict[str, list[Row]] = {}
    for row in table:
        by_task.setdefault(row.task, []).append(row)
    return by_task


def winner(table: Sequence[Row]) -> Row | None:
    """The fastest case; the first of those that are equal."""
    return max((row for row in table if row.speed), key=lambda row: row.speed.mean if row.speed else 0.0, default=None)


def conclusion(table: Sequence[Row]) -> str:
    """What was found, also when it is no gain: one plain sentence, or one for each task."""
    by_task = tasks(table)
    if len(by_task) > 1:
        return " ".join(f"{task}: {_finding(mine)}" for task, mine in by_task.items())
    return _finding(table)


def _finding(table: Sequence[Row]) -> str:
    best = winner(table)
    if best is None or best.speed is None:
        return "No run finished, so there is nothing to compare."
    if len(table) == 1:
        return f"{best.name} trained {best.speed.mean:,.0f} samples a second{_reached(best)}."
    base = table[0]
    if base.speed is None:
        return f"{base.name} did not finish; {best.name} was the fastest of the others{_reached(best)}."
    if best is not base:
        return f"{best.name} trained {_versus(best, base, f'as fast as {base.name}')}."
    second = winner(table[1:])
    if second is None:
        return f"Only {base.name} finished, with {best.speed.mean:,.0f} samples a second{_reached(base)}."
    runner_up = second.name if len(table) == 2 else f"the next, {second.name},"
    return f"{base.name} was the fastest: {runner_up} trained {_versus(second, base, 'as fast')}."


def _versus(row: Row, base: Row, words: str) -> str:
    """How fast and how well, beside the first row."""
    assert row.speed
    assert base.speed
    doubt = ", a difference within noise," if within_noise(row.speed, base.speed) else ""
    accuracies = f" at {percent(row.accuracy)} against {percent(base.accuracy)} test accuracy" if row.accuracy else ""
    return f"{times(row.speed.mean / base.speed.mean if base.speed.mean else None)} {words}{doubt}{accuracies}"


def _reached(row: Row) -> str:
    return f" and reached {percent(row.accuracy)} test accuracy" if row.accuracy else ""


def sureness(table: Sequence[Row]) -> Iterator[tuple[bool, str]]:
    """What a careful reader should know before quoting the numbers: whether it is a warning, and the sentence."""
    base, best = table[0], winner(table)
    other = best if best is not base else winner(table[1:])
    if best is None or other is None or not (other.speed and base.speed):
        return
    apart = errors_apart(other.speed, base.speed)
    if apart is None:
        yield True, "Single runs: how much the numbers scatter from run to run is not known. More --repeats would tell."
    elif apart < 2:
        yield True, "The difference in speed is within noise: below two standard errors."
    else:
        yield False, f"How sure: {_sure(other, base, apart)}"
    second = winner([row for row in table if row not in (best, base)])
    if second and second.speed and best is not base and best.speed and within_noise(second.speed, best.speed):
        yield True, f"The first two, {best.name} and {second.name}, are within noise of each other in speed."
    if other.accuracy and base.accuracy and within_noise(other.accuracy, base.accuracy):
        yield True, "The difference in accuracy is within noise: below two standard errors."


def _sure(other: Row, base: Row, apart: float) -> str:
    assert other.speed
    assert base.speed
    size = f"{apart:,.0f}" if apart < 100 else "over 100"
    return (
        f"{other.name} {spread(other.speed)} against {base.name} {spread(base.speed)} samples a second, "
        f"n = {other.speed.n} and {base.speed.n}: {size} standard errors apart, where two would be noise."
    )
