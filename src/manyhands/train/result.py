"""Result: the figures that a training leaves in run.json beside its losses."""

import statistics
from collections import Counter
from typing import Any

from manyhands.engine.loop.layer_profiler import LayerTime
from manyhands.engine.loop.timers import Clock
from manyhands.runs import run_folder
from manyhands.timeline import Event, Timeline
from manyhands.train.job import Job


def critical_batch(run: run_folder.Run) -> float | None:
    """The noise scale of the middle of the training: it grows all along, and by far at the end."""
    scales = [each["noise_scale"] for each in run.metrics() if "noise_scale" in each]
    return statistics.median(scales) if scales else None


def sent_bytes(job: Job, steps: int) -> dict[str, Any]:
    """Bytes of gradients that a rank sends in a step, and how many times fewer they are for compression."""
    sent = job.context.strategy.bytes_sent()
    if sent is None or not sent[0] or not steps:  # of a run that was resumed at its end
        return {"sent_bytes_per_step": None, "compression_ratio": None}
    return {"sent_bytes_per_step": round(sent[0] / steps), "compression_ratio": sent[1] / sent[0]}


def staleness(seen: list[dict[int, int]]) -> dict[str, Any] | None:
    """How many updates the weights lacked on which gradients were computed, over the steps of all ranks."""
    histogram = sum(map(Counter, seen), Counter[int]())
    if not (steps := histogram.total()):
        return None
    return {
        "mean": sum(late * number for late, number in histogram.items()) / steps,
        "max": max(histogram),
        "histogram": {str(late): histogram[late] for late in sorted(histogram)},
    }


def timeline(clock: Clock, layers: list[LayerTime]) -> Timeline:
    """The phases of the run, and under them one step layer by layer: forward in order, backward in reverse."""
    events, at = list(clock.events), 0
    passes = [(each, "forward", each.forward_ms) for each in layers]
    passes += [(each, "backward", each.backward_ms) for each in reversed(layers)]
    for layer, direction, milliseconds in passes:
        end = at + round(milliseconds * 1e6)
        events.append(Event(layer.name, direction, "layers of one step", at, end))
        at = end
    return Timeline.of(events)
