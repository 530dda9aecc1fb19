"""Record schema: which kind of value each part of run.json has; damaged records are refused."""

import json
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manyhands.errors import InputError
from manyhands.files import read

STATUSES = ("running", "finished", "failed", "interrupted")
MOST_BYTES = 16_000_000  # of a run.json: real ones have some kilobytes

# What the parts of run.json are, by their dotted names; * is every key, ! may be neither absent nor null. A file in
# which one is something else counts as damaged, so that nobody who reads a run needs to ask.
KINDS: dict[type, str] = {
    dict: "batch config config.* plan machine versions samples result result.seconds result.staleness "
    "result.staleness.histogram ranks.*! trials.*! layers.*!",
    list: "ranks trials layers",
    str: "status! plan_words! created case command machine_words trials.*.plan! layers.*.name! layers.*.kind!",
    float: "total_steps parameters samples.* trials.*.step_ms trials.*.first_ms "
    "layers.*.parameters! layers.*.forward_ms! layers.*.backward_ms! result.seconds.* "
    "result.final_loss result.test_accuracy result.test_loss result.val_accuracy result.averaged_test_accuracy "
    "result.averaged_val_accuracy result.steps result.world "
    "result.samples_per_s result.measured_step_ms result.predicted_step_ms result.peak_memory_mb "
    "result.sent_bytes_per_step result.compression_ratio result.staleness.mean result.staleness.max "
    "result.staleness.histogram.* result.critical_batch",
}
WORDS = {str: "a text", dict: "a table", list: "a list", float: "a number"}


class Damaged(ValueError):
    """A run.json that is none; the message says why."""


def read_record(path: Path) -> dict[str, Any]:
    """The record of a run, each part of which is of its kind."""
    try:
        record = json.loads(read(path, MOST_BYTES).decode())
        # JSON can say half a character, which can be written nowhere.
        json.dumps(record, ensure_ascii=False).encode()
    except (ValueError, OSError, InputError) as error:
        raise Damaged(str(error)) from None
    except RecursionError:
        raise Damaged("nested too deeply") from None
    if not isinstance(record, dict):
        raise Damaged("not a table")
    for kind, names in KINDS.items():
        for name in names.split():
            for where, value in _parts(record, name.split(".")):
                if not _is(value, kind):
                    raise Damaged(f"{where[:80]} is {reprlib.repr(value)}, not {WORDS[kind]}")
    if record.get("config", {}) is None:
        del record["config"]  # as if it were not there: nobody who reads a run needs to ask
    if record["status"] not in STATUSES:
        raise Damaged(f"status is {reprlib.repr(record['status'])}, not one of {', '.join(STATUSES)}")
    return record


def _parts(record: Any, names: Sequence[str], at: str = "") -> Iterator[tuple[str, Any]]:
    """Each value under a dotted name, in which * is every key; what is absent or null counts only when it must be."""
    if not names:
        yield at, record
        return
    first, *rest = names
    name, must = first.rstrip("!"), first.endswith("!")
    table = {str(at): each for at, each in enumerate(record)} if isinstance(record, list) else record
    if not isinstance(table, dict):
        return  # another name tells of that
    for key, value in table.items() if name == "*" else [(name, table.get(name))]:
        if value is not None or must:
            yield from _parts(value, rest, f"{at}.{key}".lstrip("."))


def _is(value: Any, kind: type) -> bool:
    if kind is not float:
        return isinstance(value, kind)
    if isinstance(value, bool) or not isinstance(value, int):
        return isinstance(value, float)
    return abs(value) < 1e300  # a larger one is no float
