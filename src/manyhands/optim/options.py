"""The `optim.*` keys of the configuration."""

import math
from dataclasses import dataclass

from manyhands.errors import ConfigError, choices

OPTIMIZERS = ("sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "adagrad", "lars", "lamb")
TRUSTING = ("lars", "lamb")  # whose steps go by the norms of whole tensors
WITH_MOMENTUM = ("momentum", "nesterov", "lars")
SCHEDULES = ("constant", "step", "cosine", "one-cycle")
SCALINGS = ("none", "linear", "sqrt")


@dataclass(frozen=True)
class OptimOptions:
    """Which optimizer, at which rate, along which schedule; checked when it is made."""

    name: str = "adam"
    lr: float | None = None  # None: what the model's entry in the zoo names; 1 for lars
    weight_decay: float | None = None  # None: torch's own default (0.01 for adamw, 0 for the others)
    momentum: float = 0.9  # of momentum, nesterov and lars
    scaling: str = "none"  # of the rate with the batch size: linear, or with its square root
    base_batch: int = 256  # the batch size that lr is for
    schedule: str = "constant"
    warmup: float = 0.0  # below 1: share of all steps; else a number of steps
    step_every: float = 1 / 3  # schedule "step": share of all steps between two drops
    gamma: float = 0.1  # schedule "step": the rate is multiplied by this at every drop

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise ConfigError(f"unknown optimizer '{self.name}': {choices(self.name, OPTIMIZERS)}")
        if self.schedule not in SCHEDULES:
            raise ConfigError(f"unknown schedule '{self.schedule}': {choices(self.schedule, SCHEDULES)}")
        if self.scaling not in SCALINGS:
            raise ConfigError(f"unknown scaling '{self.scaling}': {choices(self.scaling, SCALINGS)}")
        _check("base_batch", self.base_batch, self.base_batch >= 1, "at least 1")
        _check("lr", self.lr, self.lr is None or self.lr > 0, "above 0")
        _check(
            "weight_decay",
            self.weight_decay,
            self.weight_decay is None or self.weight_decay >= 0,
            "0 or more",
        )
        _check("momentum", self.momentum, 0 <= self.momentum < 1, "from 0 up to, not including, 1")
        if self.name in WITH_MOMENTUM:
            _check("momentum", self.momentum, self.momentum > 0, f"above 0 for {self.name}; sgd has none")
        _check("warmup", self.warmup, self.warmup >= 0, "a share of all steps below 1, or a number of steps")
        _check(
            "step_every",
            self.step_every,
            0 < self.step_every <= 1,
            "a share of all steps, above 0 and at most 1",
        )
        _check("gamma", self.gamma, 0 < self.gamma <= 1, "above 0 and at most 1")


def _check(key: str, value: float | None, fits: bool, allowed: str) -> None:
    if not fits or not math.isfinite(value or 0.0):
        raise ConfigError(f"optim.{key}={value} cannot be used: it must be {allowed}")
