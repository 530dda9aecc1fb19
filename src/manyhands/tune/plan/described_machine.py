"""Described machine: the fastest split of every layer on a described machine, by simulation alone."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from manyhands.errors import PlanError
from manyhands.graph.graph import Graph
from manyhands.plan.axis import Axis
from manyhands.plan.layer_rules import NamedSplit
from manyhands.plan.plan import Plan
from manyhands.plan.sharding import Split
from manyhands.simulate.search.annealing import Found, default_proposals, search
from manyhands.simulate.search.dynamic_programming import exact
from manyhands.simulate.search.space import Space
from manyhands.simulate.simulator import Prediction, Simulator

MOST_EXACT = 16  # devices for which it takes less than a second
WORTH = 0.999  # a searched plan replaces a preset when its step takes at most this share


@dataclass(frozen=True)
class Planned:
    """The plan that was found, the presets that it was compared with, and what the search took."""

    best: Prediction
    presets: tuple[Prediction, ...]
    refused: dict[str, str]  # presets that cannot be, and why
    found: Found

    def to_json(self) -> dict[str, Any]:
        rows = [self.best, *(each for each in self.presets if each.plan != self.best.plan)]
        return {
            "plan": str(self.best.plan),
            "predicted_step_ms": self.best.result.step_ms,
            "measured_step_ms": None,
            "candidates": [
                {
                    "name": name_of(each.plan),
                    "predicted_step_ms": each.result.step_ms,
                    "measured_step_ms": None,
                    "failed": None,
                }
                for each in rows
            ]
            + [
                {"name": name, "predicted_step_ms": None, "measured_step_ms": None, "failed": reason}
                for name, reason in self.refused.items()
            ],
            "search": {
                "proposals": self.found.proposals,
                "seconds": self.found.seconds,
                "simulator": "delta",
                "known": False,
                "repaid_after_steps": None,
            },
        }


def name_of(plan: Plan) -> str:
    if not plan.layers:
        return plan.name
    return f"searched, {len(plan.layers)} layer{'s' if len(plan.layers) > 1 else ''} apart from {plan.name}"


def words(devices: int, layers: int) -> list[str]:
    """The presets from which a search starts."""
    if devices == 1:
        return ["serial"]
    found = ["serial", f"data:{devices}", f"owt:{devices}", f"tensor:{devices}"]
    return [*found, f"pipeline:{devices}"] if devices <= layers else found


def presets_of(simulator: Simulator, base: Plan, batch: int, devices: int) -> tuple[list[Prediction], dict[str, str]]:
    """Every preset that fits, and why others do not; at least one must."""
    presets: list[Prediction] = []
    refused: dict[str, str] = {}
    for text in words(devices, len(simulator.graph.layers)):
        try:
            presets.append(simulator.predict(_with_axes(base, text), batch, devices))
        except PlanError as error:
            refused[text] = str(error)
    if not presets:
        raise PlanError(next(iter(refused.values())))
    return presets, refused


def plan_on(
    simulator: Simulator,
    base: Plan,
    batch: int,
    devices: int,
    budget: float | None = None,
    seed: int = 0,
    proposals: int | None = None,
) -> Planned:
    """Search from every preset that fits; `base` is `auto` with what the user said of precision and the rest."""
    presets, refused = presets_of(simulator, base, batch, devices)
    problem = simulator.problem(base, batch, devices)
    space = Space.of(simulator.graph, batch, devices)
    starts = {each.plan.name: each.splits for each in presets}
    if devices <= MOST_EXACT:
        with suppress(PlanError):  # where a step's time is no sum
            starts["exact"] = exact(problem, space).splits
    proposals = proposals or default_proposals(len(simulator.graph.layers), devices)
    found = search(problem, space, starts, proposals, seed)
    while budget is not None and found.seconds < budget / 2:  # twice as many as long as there is time for them
        more = search(problem, space, starts, 2 * found.proposals, seed)
        found = more if more.step_ns < found.step_ns else replace(found, proposals=more.proposals, seconds=more.seconds)
    fastest = min(presets, key=lambda each: each.result.step_ns)
    if found.step_ns > WORTH * fastest.result.step_ns:
        return Planned(fastest, tuple(presets), refused, found)
    plans = [named(each.plan, each.splits, simulator.graph, found.splits) for each in presets]
    plan = min(plans, key=lambda each: len(each.layers))
    return Planned(simulator.predict(plan, batch, devices), tuple(presets), refused, found)


def _with_axes(base: Plan, text: str) -> Plan:
    name, _, degree = text.partition(":")
    kept = {key: value for key, value in base.said().items() if key in ("precision", "device")}
    return Plan(axes=(Axis(name, int(degree or 1)),), **kept)


def named(plan: Plan, usual: Sequence[Split], graph: Graph, splits: Sequence[Split]) -> Plan:
    """The plan with those layers named that its axes would split otherwise."""
    layers = tuple(
        NamedSplit(layer.name, split)
        for layer, split, other in zip(graph.layers, splits, usual, strict=True)
        if split != other
    )
    return replace(plan, layers=layers)
