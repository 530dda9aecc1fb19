"""Timers: where the time of a training goes, phase by phase, and how fast its steady state is."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from manyhands.timeline import Event

PHASES = ("setup", "search", "compile", "train", "eval", "checkpoint", "layers")
MOST_EVENTS = 2000  # enough to look at; a long run's trace would not open


class Clock:
    """Adds up phases, keeps their events, and knows when a device has really finished."""

    def __init__(self, device: torch.device, lane: str = "rank 0") -> None:
        self.device, self.lane = device, lane
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.events: list[Event] = []
        self.steady_samples, self.steady_steps, self.steady_seconds = 0, 0, 0.0
        self.begun = time.perf_counter_ns()

    def finish(self) -> None:
        """Wait for the device: a GPU's work is asynchronous."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @contextmanager
    def phase(self, name: str, label: str | None = None) -> Iterator[None]:
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.finish()
            self.add(name, label or name, start, time.perf_counter_ns())

    def add(self, phase: str, label: str, start_ns: int, end_ns: int) -> None:
        self.seconds[phase] += (end_ns - start_ns) / 1e9
        if len(self.events) < MOST_EVENTS:
            self.events.append(Event(label, phase, self.lane, start_ns - self.begun, end_ns - self.begun))

    def add_steady(self, steps: int, samples: int, seconds: float) -> None:
        self.steady_steps += steps
        self.steady_samples += samples
        self.steady_seconds += seconds

    @property
    def samples_per_s(self) -> float | None:
        """Samples a second of training, its first steps left out; None when no step was left."""
        return self.steady_samples / self.steady_seconds if self.steady_seconds else None

    @property
    def step_ms(self) -> float | None:
        return 1000 * self.steady_seconds / self.steady_steps if self.steady_steps else None
