"""Row: what the list shows of one run."""

import json
import platform
import time
from dataclasses import dataclass
from typing import Any

import psutil

from manyhands.errors import InputError
from manyhands.files import read
from manyhands.report.live.glance import Glance
from manyhands.report.live.values import dig, number, text
from manyhands.runs.record_schema import MOST_BYTES, STATUSES

SILENT = 60.0  # seconds after which a run whose process is gone counts as stalled
SILENT_START = 600.0  # the same for one that has not said yet which process it is
HERE = platform.node()


@dataclass(frozen=True)
class Order:
    """The part of run.json that the list needs, kept between two looks."""

    facts: dict[str, Any]
    batch: float | None
    pid: int | None
    host: str | None


def load(path: str) -> dict[str, Any]:
    """A run.json of any origin. The list of a thousand runs has no time for all that the store checks in it; so here
    its parts are asked for one by one, and may be missing."""
    try:
        record = json.loads(read(path, MOST_BYTES))
    except ValueError as error:
        raise InputError(f"run.json is no JSON: {error}") from None
    except RecursionError:
        raise InputError("run.json is nested too deeply") from None
    if not isinstance(record, dict) or not isinstance(record.get("plan_words"), str):
        raise InputError("run.json is not a run's: it has no plan_words")
    if record.get("status") not in STATUSES:
        raise InputError(
            f"run.json has the status {str(record.get('status'))[:40]!r}, not one of {', '.join(STATUSES)}"
        )
    return record


def order_of(record: dict[str, Any]) -> Order:
    """What run.json says, each part checked on its own."""
    result, train = record.get("result"), dig(record, "config", "train")
    test, validation = number(dig(result, "test_accuracy")), number(dig(result, "val_accuracy"))
    ranks = record.get("ranks")
    leader = ranks[0] if isinstance(ranks, list) and ranks else None
    pid = number(dig(leader, "pid"))
    facts = {
        "case": text(record.get("case")),
        "repeat": number(record.get("repeat")),
        "model": text(dig(record, "config", "model", "name")),
        "data": text(dig(record, "config", "data", "name")),
        "plan": text(record["plan_words"]),
        "status": record["status"],
        "created": text(record.get("created")),
        "error": text(record.get("error")),
        "epochs": number(dig(train, "epochs")),
        "step": number(dig(result, "steps")),
        "steps": number(record.get("total_steps")),
        "loss": number(dig(result, "final_loss")),
        "accuracy": validation if test is None else test,
        "tested": test is not None,
        "samples_per_s": number(dig(result, "samples_per_s")),
        "seconds": number(dig(result, "seconds", "train")),
    }
    return Order(
        facts, number(dig(train, "batch_size")), pid if isinstance(pid, int) else None, text(dig(leader, "host"))
    )


def row(order: Order, seen: Glance, changed: float) -> dict[str, Any]:
    """The facts, and for a run without a result how far it is; `changed` is when its files last were."""
    shown = {**order.facts, "updated": number(changed), "spark": list(seen.spark)}
    if order.facts["status"] == "finished":
        return shown
    shown |= {"step": seen.step, "loss": seen.loss, "accuracy": seen.accuracy, "left": None}
    if order.facts["status"] == "running":
        if gone(order, changed):
            shown["status"] = "stalled"
        elif seen.step_ms and seen.step_ms > 0:
            shown["samples_per_s"] = order.batch and number(1000 * order.batch / seen.step_ms)
            steps_left = (order.facts["steps"] or seen.step or 0) - (seen.step or 0)
            shown["left"] = number(max(0, steps_left) * seen.step_ms / 1000)
    return shown


def gone(order: Order, changed: float) -> bool:
    """Whether a run that says it is running cannot be: killed, or the machine went down.

    Another machine's processes cannot be seen from here: its runs count as running.
    """
    silent = time.time() - changed
    if order.pid is None:
        return silent > SILENT_START
    if silent < SILENT or order.host != HERE:
        return False
    try:
        process = psutil.Process(order.pid)
        # Numbers are given again: a process that began after the run last wrote is another one.
        return process.create_time() > changed or process.status() == psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):
        return True
