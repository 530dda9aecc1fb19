"""Config: everything that says what to train, as documented dataclasses; one TOML file, and `--set key=value`."""

import math
import re
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from manyhands.data.catalog import KNOWN
from manyhands.data.schema import DataOptions
from manyhands.errors import ConfigError, choices
from manyhands.files import read_toml
from manyhands.optim import batch_schedule
from manyhands.optim.options import OptimOptions
from manyhands.plan import stragglers

MOST_SEED = 2**31 - 1
MOST_SECONDS = 1e6  # of a time-out: 11 days, and torch can count them


@dataclass(frozen=True)
class ModelConfig:
    """Which model, and how it is changed; None is the family's own default."""

    name: str = "convnet"
    width: float = 1.0  # multiplies channels and hidden units
    depth: int | None = None
    dropout: float | None = None
    activation: str | None = None  # sigmoid | tanh | relu | leaky_relu
    batch_norm: bool | None = None
    head: str | None = None  # alexnet: 6x6
    cell: str | None = None  # text: rnn | gru | lstm | bag
    init_from: str | None = None  # a run or a safetensors file
    freeze: tuple[str, ...] = ()  # patterns of parameter names


@dataclass(frozen=True)
class DataConfig(DataOptions):
    """Which data, and how it is read."""

    name: str = "digits"
    augment: str = "none"  # shift | flip | shift+flip


@dataclass(frozen=True)
class TrainConfig:
    """How long, and in which batches."""

    epochs: int = 3
    batch_size: int = 256  # of all ranks together; auto: the largest that pays is found before it begins
    batch_auto: bool = False  # whether it is yet to be found
    grow: str | None = None  # "0.5:2,0.75:2": after half and three quarters of all samples twice as large batches
    max_steps: int | None = None
    seed: int = 0
    patience: int | None = None  # epochs without a better validation accuracy before it stops
    clip: float | None = None  # the largest norm of all gradients together
    accumulate: int = 1  # parts of a batch, computed one after the other
    label_smoothing: float = 0.0
    ema: float | None = None  # the decay of an exponential moving average of the weights, kept beside them
    swa: float | None = None  # or their mean over this share of the steps, the last
    restarts: int = 0  # after a rank has died
    timeout: float = 300.0  # seconds that ranks wait for one that does not come


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept on disk."""

    every_steps: int | None = None  # beside the one after each epoch
    keep: int = 2  # the newest ones; the best is kept as well


@dataclass(frozen=True)
class LoaderConfig:
    """How the usual loader feeds; for plans with feed=loader."""

    workers: int | str | None = None  # loader processes; auto: measured; None: as the plan says


@dataclass(frozen=True)
class CpuConfig:
    """Which cores."""

    affinity: str | None = None  # "0,1,2,4" or "0-3": the cores to be pinned to; "0,1;2,3": of each rank; auto


@dataclass(frozen=True)
class FaultConfig:
    """Workers that are slowed on purpose; plan.stragglers reads them."""

    slow_rank: str | None = None  # "1:3x": rank 1 takes 3 times as long for each step
    slow_steps: str | None = None  # "0.1:10x": one step in ten, drawn by seed, takes 10 times as long

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> stragglers.Fault:
        return stragglers.read(self.slow_rank, self.slow_steps)


@dataclass(frozen=True)
class LogConfig:
    """What is written beside metrics.jsonl while it trains."""

    tensorboard: bool = False  # event files in RUN/tensorboard
    noise: bool = False  # the gradient noise scale, at every step
    noise_every: int | None = None  # the same, at every so many steps

    @property
    def noise_steps(self) -> int | None:
        """From one measured step to the next; None: none is measured."""
        return self.noise_every or (1 if self.noise else None)


@dataclass(frozen=True)
class Config:
    """One training, whatever the plan."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimOptions = field(default_factory=OptimOptions)
    train: TrainConfig = field(default_factory=TrainConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    cpu: CpuConfig = field(default_factory=CpuConfig)
    fault: FaultConfig = field(default_factory=FaultConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        for key, value, least in (
            ("train.epochs", self.train.epochs, 1),
            ("train.batch_size", self.train.batch_size, 1),
            ("train.max_steps", self.train.max_steps, 1),
            ("train.patience", self.train.patience, 1),
            ("train.accumulate", self.train.accumulate, 1),
            ("train.seed", self.train.seed, 0),
            ("train.restarts", self.train.restarts, 0),
            ("checkpoint.every_steps", self.checkpoint.every_steps, 1),
            ("checkpoint.keep", self.checkpoint.keep, 1),
            ("log.noise_every", self.log.noise_every, 1),
            ("data.size", self.data.size, 2),
            ("data.test_size", self.data.test_size, 1),
            ("data.image_size", self.data.image_size, 1),
            ("data.length", self.data.length, 1),
            ("data.vocabulary", self.data.vocabulary, 3),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{key}={value}: it must be at least {least}")
        for key, size, most in (
            ("model.depth", self.model.depth, MOST_DEPTH),
            ("model.width", self.model.width, MOST_WIDTH),
        ):
            if size is not None and size > most:
                raise ConfigError(f"{key}={size:g}: it must be at most {most:,}")
        workers = self.loader.workers
        if workers not in (None, "auto") and not (isinstance(workers, int) and workers >= 0):
            raise ConfigError(f"loader.workers={workers}: auto or a whole number, at least 0, is allowed")
        if self.train.seed > MOST_SEED:
            raise ConfigError(f"train.seed={self.train.seed}: it must be at most {MOST_SEED}")
        if self.train.clip is not None and not self.train.clip > 0:
            raise ConfigError(f"train.clip={self.train.clip}: it must be above 0")
        if not 0 < self.train.timeout <= MOST_SECONDS:
            raise ConfigError(f"train.timeout={self.train.timeout}: it must be above 0, at most {MOST_SECONDS:,.0f} s")
        if not 0 <= self.train.label_smoothing < 1:
            raise ConfigError(f"train.label_smoothing={self.train.label_smoothing}: it must be from 0 to below 1")
        if self.train.ema is not None and not 0 < self.train.ema < 1:
            raise ConfigError(f"train.ema={self.train.ema}: it must be between 0 and 1, such as 0.99")
        if self.train.swa is not None and not 0 < self.train.swa <= 1:
            raise ConfigError(f"train.swa={self.train.swa}: it must be above 0, at most 1, such as 0.25")
        if self.train.ema is not None and self.train.swa is not None:
            raise ConfigError(
                f"train.ema={self.train.ema} and train.swa={self.train.swa}: one mean of the weights is kept; "
                "leave one out"
            )
        if not 0 <= self.data.validation < 1:
            raise ConfigError(f"data.validation={self.data.validation}: it must be from 0 to below 1")
        batch_schedule.parse(self.train.grow)

    @property
    def batch_sizes(self) -> list[int]:
        """Of every epoch; one, where all have the same."""
        return batch_schedule.sizes(self.train.batch_size, batch_schedule.parse(self.train.grow), self.train.epochs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def from_table(table: Mapping[str, Any], source: str) -> Config:
    """A config from nested tables, as TOML and run.json hold them."""
    config = Config()
    for section, values in table.items():
        if not isinstance(values, Mapping):
            raise ConfigError(f"{source}: '{section}' is {values!r}, a section such as [train] is needed")
        config = with_values(config, {f"{section}.{key}": value for key, value in values.items()})
    return config


def read(path: Path) -> Config:
    """A config from a TOML file."""
    table = read_toml(path, "config", ConfigError, "give the path of an existing TOML file")
    return from_table(table, str(path))


def with_settings(config: Config, settings: Sequence[str]) -> Config:
    """Apply `key=value` words, as `--set` takes them."""
    return with_values(config, read_settings(settings))


def read_settings(settings: Sequence[str]) -> dict[str, str]:
    """The values of `key=value` words, by key."""
    values: dict[str, str] = {}
    for word in settings:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--set {word}: write key=value, for example --set optim.lr=0.01")
        values[key.strip()] = value.strip()
    return values


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Replace dotted keys; texts are read as the key's type."""
    for key, value in values.items():
        if key == "train.batch_size":
            config = replace(config, train=replace(config.train, batch_auto=value == "auto"))
            if value == "auto":
                continue
        section, _, name = key.partition(".")
        part = getattr(config, section, None)
        if not is_dataclass(part) or name not in {each.name for each in fields(part)}:
            raise ConfigError(f"unknown key '{key}': {choices(key, keys(config))}")
        wanted = get_type_hints(type(part))[name]
        changed: Any = replace(part, **{name: _read(key, value, wanted)})  # type: ignore[type-var]
        config = replace(config, **{section: changed})
    return config


def keys(config: Config) -> list[str]:
    """Every dotted key."""
    return [f"{part.name}.{each.name}" for part in fields(config) for each in fields(getattr(config, part.name))]


def _read(key: str, value: Any, wanted: Any) -> Any:
    """Turn a text or a TOML value into the wanted type."""
    if get_origin(wanted) in (Union, types.UnionType):
        if value is None or value == "none":
            return None
        wanted, *others = (each for each in get_args(wanted) if each is not types.NoneType)
        if others:  # the first that reads it
            with suppress(ConfigError):
                return _read(key, value, wanted)
            (wanted,) = others
    try:
        if get_origin(wanted) is tuple:
            return tuple(value.split(",") if isinstance(value, str) else map(str, value))
        if wanted is bool:
            return _BOOLEANS[str(value).lower()]
        if wanted is int and not isinstance(value, bool):
            number = float(value) if isinstance(value, float) else int(value)
            if number == int(number) and abs(number) <= LARGEST:
                return int(number)
        if wanted is float and not isinstance(value, bool) and math.isfinite(float(value)):
            return float(value)
        if wanted is str:
            return str(value)
    except (ValueError, KeyError, TypeError, OverflowError):
        pass
    shown = _written(value)
    most = f" up to {LARGEST:,}" if re.fullmatch(r"[-+]?\d{16,}", shown) else ""
    names = {int: f"a whole number{most}", float: "a number", bool: "true or false", str: "a text"}
    raise ConfigError(f"{key}={shown[:100]}: {names.get(wanted, 'a list of names')} is needed")


def _written(value: Any) -> str:
    """Python refuses to write down a number of thousands of digits."""
    return "9" * 99 if isinstance(value, int) and abs(value) >= 10**99 else str(value)


# Layers, and times as wide: far more than any memory holds, which is told of as such below that.
MOST_DEPTH, MOST_WIDTH = 10_000, 10_000_000_000
LARGEST = 2**53  # of a whole number: beyond it not every one is a float
_BOOLEANS = {
    "true": True,
    "on": True,
    "yes": True,
    "1": True,
    "false": False,
    "off": False,
    "no": False,
    "0": False,
}


def located(config: Config) -> Config:
    """Paths made absolute: `predict` and `--resume` may be called from another folder."""
    model, colon, factory = config.model.name.rpartition(":")
    places: dict[str, Any] = {}
    if model.endswith(".py"):
        places["model.name"] = f"{Path(model).expanduser().resolve()}{colon}{factory}"
    if config.data.name not in KNOWN and Path(config.data.name).expanduser().exists():
        places["data.name"] = str(Path(config.data.name).expanduser().resolve())
    if config.model.init_from and Path(config.model.init_from).expanduser().exists():
        places["model.init_from"] = str(Path(config.model.init_from).expanduser().resolve())
    return with_values(config, places)
