"""Plan: how a training is split and run, as data that a person can read and the engine obeys."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

from manyhands.errors import PlanError, choices
from manyhands.plan.axis import ALONE, Axis, check_axes, parse_axis
from manyhands.plan.layer_rules import NamedSplit, named_tables, read_named, read_places
from manyhands.plan.options import BY_RANK, OPTIONS, USES, check_option


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The axes of the split and the options of its execution; None means not said, to be bound before it runs."""

    axes: tuple[Axis, ...]
    device: str | None = None
    precision: str | None = None
    layout: str | None = None  # memory format of images
    allocator: str | None = None  # keep: freed memory stays with the process
    kernels: str | None = None  # own: our faster drop-ins for some of torch's CPU layers
    compile: str | None = None  # torch.compile
    capture: str | None = None  # the step as a CUDA graph
    backward: str | None = None  # apart: weight gradients after the input gradients; concurrent: beside them
    feed: str | None = None  # device: the whole set lives there; host: prefetched; loader: torch's DataLoader
    workers: int | None = None  # loader processes
    threads: int | None = None  # inside one operation, per rank
    cores: tuple[tuple[int, ...], ...] | None = None  # of each rank of this host
    loader_cores: tuple[tuple[int, ...], ...] | None = None  # of each rank's loader processes
    backend: str | None = None
    compress: str | None = None
    shard: str | None = None
    microbatches: int | None = None
    schedule: str | None = None
    balance: str | None = None
    recompute: str | None = None
    boundary: str | None = None  # of layers by sample and by parameter: all at once, in turns, learning in each turn
    consistency: str | None = None  # async: no worker waits; stale: none is more than `staleness` steps ahead
    staleness: int | None = None
    every: int | None = None  # steps from one averaging of weights to the next
    after: int | None = None  # steps that average at each, before `every` holds
    average: str | None = None  # elastic: workers and a centre draw each other
    topology: str | None = None  # who meets whom in gossip
    adapt: str | None = None  # a late gradient counts less
    layers: tuple[NamedSplit, ...] = ()  # splits of single layers, which only a file can say
    places: tuple[tuple[str, str], ...] = ()  # patterns of layers and their device, which only a file can say

    def __post_init__(self) -> None:
        check_axes(self.axes)
        if self.places and self.axes[0].name != "serial":
            raise PlanError(
                f"plan {self.name}: places are for serial, one process with several devices; leave them out"
            )
        for name in OPTIONS:
            value = getattr(self, name)
            if value is not None:
                check_option(name, value)
                self._check_use(name, value)

    def _check_use(self, name: str, value: Any) -> None:
        """An option that the axes have no use for would be obeyed by nobody."""
        names = {axis.name for axis in self.axes}
        if name in USES and not names & {*USES[name], "auto"}:
            raise PlanError(
                f"plan option {name}={value} has no use in plan {self.name}: it is for {', '.join(USES[name])}; "
                "leave it out"
            )

    @property
    def name(self) -> str:
        """The axes as words: `data:2,tensor:2`."""
        return ",".join(map(str, self.axes))

    @property
    def world(self) -> int:
        """How many ranks it takes."""
        return prod(axis.degree + axis.servers for axis in self.axes)

    @property
    def hands(self) -> int:
        """How many of them compute."""
        return prod(axis.degree for axis in self.axes)

    @property
    def has_ranks(self) -> bool:
        """Whether it runs in processes of its own, be it a single one."""
        return self.axes[0].name not in ALONE

    @property
    def is_async(self) -> bool:
        """Whether its processes keep no step with each other: one more hands out the work."""
        return self.axes[0].name in ("server", "gossip")

    def alone(self) -> "Plan":
        """What one of its workers does, by itself."""
        apart: dict[str, Any] = dict.fromkeys(("backend", "consistency", "staleness", "topology", "adapt", "cores"))
        return replace(self, axes=(Axis("serial"),), **apart)

    @property
    def is_model_parallel(self) -> bool:
        """Whether layers are split in ways of their own, and not all by sample."""
        return bool(self.layers) or any(axis.name in ("tensor", "owt", "pipeline") for axis in self.axes)

    @property
    def is_baseline(self) -> bool:
        """Whether it is a reference point that runs with PyTorch's defaults."""
        return self.axes[0].name in ("plain", "ddp")

    @property
    def keeps_step(self) -> bool:
        """Whether ranks compute every step on the same weights: batch norm may span them."""
        return self.axes[0].name != "local" and (self.consistency != "stale" or self.staleness == 0)

    def said(self) -> dict[str, Any]:
        """The options that have a value."""
        return {
            field.name: value
            for field in fields(self)
            if field.name not in ("axes", "layers", "places") and (value := getattr(self, field.name)) is not None
        }

    def with_defaults(self, **values: Any) -> "Plan":
        """Fill what is not said; what is said stays."""
        return replace(self, **{name: value for name, value in values.items() if getattr(self, name) is None})

    @property
    def label(self) -> str:
        """Its words, and how many single layers it names."""
        count = len(self.layers)
        return f"{self}, {count} layer{'s' if count > 1 else ''} apart" if count else str(self)

    def __str__(self) -> str:
        """The words that make this plan again (cores and single layers apart)."""
        return ",".join([self.name, *(f"{name}={value}" for name, value in self.said().items() if name not in BY_RANK)])


def from_table(table: Mapping[str, Any], source: str) -> Plan:
    """A plan from a TOML or JSON table, as `to_table` makes it."""
    known = {field.name for field in fields(Plan)}
    for key in table:
        if key not in known:
            raise PlanError(f"{source}: unknown key '{key}': {choices(key, sorted(known))}")
    axes = table.get("axes")
    if not isinstance(axes, list) or not all(isinstance(axis, str) for axis in axes):
        raise PlanError(f'{source}: axes is {axes!r}, a list of words such as ["data:2"] is needed')
    values = {key: value for key, value in table.items() if key != "axes"}
    for key in BY_RANK:
        if (cores := values.get(key)) is not None:
            values[key] = _cores(key, cores, source)
    if "layers" in values:
        values["layers"] = read_named(values["layers"], source)
    if "places" in values:
        values["places"] = read_places(values["places"], source)
    return Plan(axes=tuple(map(parse_axis, axes)), **values)


def _cores(key: str, value: Any, source: str) -> tuple[tuple[int, ...], ...]:
    """Lists, not texts, of whole numbers, none twice; TOML's true counts as a number elsewhere."""
    ranks = value if isinstance(value, list) else [None]
    if not all(
        isinstance(rank, list) and all(type(core) is int for core in rank) and len(set(rank)) == len(rank)
        for rank in ranks
    ):
        raise PlanError(
            f"{source}: {key} is {value!r}, a list per rank such as [[0, 1], [2, 3]] is needed, each core once"
        )
    return tuple(map(tuple, ranks))


def to_table(plan: Plan) -> dict[str, Any]:
    """The plan as a table of plain values, for TOML and JSON."""
    table: dict[str, Any] = {"axes": [str(axis) for axis in plan.axes], **plan.said()}
    for key in BY_RANK:
        if key in table:
            table[key] = [list(rank) for rank in table[key]]
    if plan.layers:
        table["layers"] = named_tables(plan.layers)
    if plan.places:
        table["places"] = [{"name": name, "device": device} for name, device in plan.places]
    return table


def alone(plan: Plan) -> Plan:
    """A rank's own work is that of one process; a reference stays one."""
    kept = {name: value for name, value in plan.said().items() if name not in (*USES, *BY_RANK)}
    axis = Axis("plain") if plan.is_baseline else Axis("tensor", 1) if plan.is_model_parallel else Axis("serial")
    return Plan(axes=(axis,), **kept)


def waits_in_norms(plan: Plan) -> bool:
    """Whether its ranks compute the statistics of batch norms together."""
    return plan.world > 1 and plan.keeps_step and not plan.is_baseline and not plan.is_model_parallel
