"""Choose: the fastest plan for a training on this machine.

candidates   ways to lay processes and threads over the cores, precisions, layouts
profile      what each layer costs in each of them (measure.layer_profiler), and what the ranks' link costs
simulate     the step of every candidate, and of layers in parts over as many ranks (tune.plan.model_parallel)
benchmark      the best few, and always plain, serial and ddp, for some real steps in turn: the fastest wins
"""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyhands.comm.ranks.stopped import MEASURING, ended_when_stopped
from manyhands.config import Config
from manyhands.errors import UNREADABLE, RunError
from manyhands.files import home, write_json
from manyhands.graph.graph import Graph
from manyhands.machine.link import Link
from manyhands.machine.machine import Machine
from manyhands.measure.layer_profiler import profiles
from manyhands.measure.link_timing import known_links, known_messages
from manyhands.measure.plan_benchmark import BenchmarkResult, benchmark
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.progress import say
from manyhands.runs.environment import versions
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.simulate.cost.links import Links
from manyhands.simulate.from_profile import predicted, predicted_cut
from manyhands.simulate.layer_report import rows
from manyhands.simulate.simulator import Prediction
from manyhands.train.checks.source_hash import source_hash
from manyhands.train.plan_constraints import resolve
from manyhands.tune.plan.candidates import Candidate, layouts, processes, references, shortlist
from manyhands.tune.plan.model_parallel import fastest_cut

# Of the best prediction, what a plan with layers in parts may take to be tried: predictions are 2.5 % off in median.
WORTH = 0.97
FREE = 1e6  # GB/s of messages that cost nothing


@dataclass(frozen=True)
class SearchResult:
    """The plan that was found, what it was chosen from, and what finding it took."""

    best: Candidate
    candidates: tuple[Candidate, ...]
    seconds: float
    why: tuple[dict[str, Any], ...] = ()  # the layers of the best, as `explain` tells them
    known: bool = False  # from an earlier search

    @property
    def repaid_after(self) -> int | None:
        """Steps after which the search has saved against plain what it took; None where it saves nothing."""
        plain = next((each.measured_ms for each in self.candidates if each.plan.axes[0].name == "plain"), None)
        if plain is None or self.best.measured_ms is None or plain <= self.best.measured_ms:
            return None
        return round(1000 * self.seconds / (plain - self.best.measured_ms)) + 1

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": self.best.plan.label,
            "predicted_step_ms": self.best.predicted_ms,
            "measured_step_ms": self.best.measured_ms,
            "candidates": [each.to_json() for each in self.candidates],
            "search": {
                "proposals": sum(each.predicted_ms is not None for each in self.candidates),
                "seconds": self.seconds,
                "simulator": "full",
                "known": self.known,
                "repaid_after_steps": self.repaid_after,
            },
            "why": list(self.why),
        }


def search_plan(auto: Plan, config: Config, machine: Machine) -> SearchResult:
    """Search, or remember what was found for the same training on the same machine."""
    path = _place(auto, config, machine)
    begun = time.perf_counter()
    if (known := _remembered(path)) is not None:
        return known
    with ended_when_stopped(MEASURING):
        tried, predictions = _tried(auto, config, machine)
    usable = [each for each in tried if each.measured_ms is not None]
    if not usable:
        raise RunError(f"model {config.model.name} does not run: {tried[0].failed}")
    best = min(usable, key=lambda each: each.measured_ms or 0.0)
    why = tuple(row.to_json() for row in rows(predictions[best.plan])) if best.predicted_ms is not None else ()
    answer = SearchResult(best, tuple(tried), time.perf_counter() - begun, why)
    if best.predicted_ms is not None:
        predictions[best.plan].result.timeline.save(timeline_of(auto, config, machine))
    write_json(path, answer.to_json())
    return answer


def _place(auto: Plan, config: Config, machine: Machine) -> Path:
    """Where an answer is kept."""
    return home() / "found" / f"{_key(auto, config, machine)}.json"


def timeline_of(auto: Plan, config: Config, machine: Machine) -> Path:
    """Where the predicted step of the plan that was found is kept, if one was predicted."""
    return _place(auto, config, machine).with_suffix(".trace.json")


def _remembered(path: Path) -> SearchResult | None:
    try:
        told = json.loads(path.read_text())
        found = tuple(
            Candidate(
                from_table(each["table"], str(path)),
                each["predicted_step_ms"],
                each["measured_step_ms"],
                each["error_ms"],
                each["failed"],
            )
            for each in told["candidates"]
        )
        best = min((each for each in found if each.measured_ms is not None), key=lambda each: each.measured_ms or 0.0)
        return SearchResult(best, found, told["search"]["seconds"], tuple(told["why"]), known=True)
    except UNREADABLE:
        return None


def _key(auto: Plan, config: Config, machine: Machine) -> str:

    told = config.to_json()
    facts = {
        "plan": to_table(auto),
        "file": source_hash(config.model.name),
        **{name: told[name] for name in ("model", "data", "optim", "cpu", "loader")},
        "batch": [config.train.batch_size, config.train.accumulate, config.train.clip],
        "machine": machine.to_json(),
        "versions": versions(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _tried(auto: Plan, config: Config, machine: Machine) -> tuple[list[Candidate], dict[Plan, Prediction]]:
    """All candidates, those measured that were worth it, and what was predicted of each."""
    if (auto.device or ("cuda" if machine.gpus else "cpu")) == "cuda":
        return _tried_on_gpus(auto, config, machine), {}
    from manyhands.data.load import load
    from manyhands.graph.coarsen import coarsen
    from manyhands.simulate.model_graph import graph_of

    schema = load(config.data.name, config.data).schema
    graph = coarsen(graph_of(config))
    predictions: dict[Plan, Prediction] = {}
    fastest: list[tuple[Plan, Profile, Links]] = []  # of each number of ranks above one
    for ranks in layouts(machine.physical_cores, config.train.batch_size):
        plans = [resolve(each, config, machine) for each in processes(auto, ranks, schema.kind, machine)]
        say(f"timing the layers in {ranks} process{'es' if ranks > 1 else ''} of {plans[0].threads} threads")
        share = -(-config.train.batch_size // ranks)
        links = known_links(plans[0].backend or "shm", ranks, machine) if ranks > 1 else None
        taken = dict(zip(plans, profiles(config, plans, [share], machine), strict=True))
        predictions |= {plan: predicted(graph, plan, taken[plan], links, config, machine) for plan in plans}
        if links:
            best = min(plans, key=lambda plan: predictions[plan].result.step_ns)
            fastest.append((best, taken[best], links))
    found = [Candidate(plan, each.result.step_ms) for plan, each in predictions.items()]
    found.sort(key=lambda each: each.predicted_ms or 0.0)
    chosen = [*shortlist(found), *references(auto, config, machine)]
    if (cut := _cut(graph, fastest, found[0], config, machine)) is not None:
        predictions[cut.plan] = cut
        chosen.insert(0, Candidate(cut.plan, cut.result.step_ms))
    # A turn has its plan bound: plain gets the number of its threads.
    turns = dict(zip((each.plan for each in chosen), benchmark(config, [each.plan for each in chosen]), strict=True))
    every = [*found, *(each for each in chosen if each not in found)]
    return [_with(each, turns.get(each.plan)) for each in every], predictions


def _cut(
    graph: Graph,
    fastest: Sequence[tuple[Plan, Profile, Links]],
    best: Candidate,
    config: Config,
    machine: Machine,
) -> Prediction | None:
    """The fastest plan with layers in parts, if it is predicted to be clearly faster than the best with whole ones.

    It is searched for with the layers of the plan by sample, and predicted with its own: passed through in parts, of as
    many samples as these have.
    """
    found: list[Prediction] = []

    def faster(cut: Prediction | None) -> Prediction | None:
        return cut if cut is not None and cut.result.step_ms < WORTH * (best.predicted_ms or 0.0) else None

    for plan, profile, links in fastest:
        free = Link("none", "send", 2, 0.0, FREE)
        if not faster(fastest_cut(graph, plan, profile, (links.small, free), config, machine)):
            continue  # however fast messages are: they take seconds to be measured
        both = links.small, known_messages(plan.backend or "shm", machine)
        cut = faster(fastest_cut(graph, plan, profile, both, config, machine))
        if cut is None:
            continue
        sizes = sorted({-(-config.train.batch_size // split.sample) for split in cut.splits})
        (own,) = profiles(config, [cut.plan], sizes, machine)
        found.append(predicted_cut(graph, cut.plan, own, both, config, machine))
    return faster(min(found, key=lambda each: each.result.step_ns, default=None))


def _tried_on_gpus(auto: Plan, config: Config, machine: Machine) -> list[Candidate]:
    """On GPUs the few ways there are all tried; what their options leave open each binds by trials of its own."""
    several = len(machine.gpus)
    axes = [Axis("serial"), Axis("plain")]
    axes += [Axis("data", several), Axis("ddp", several)] if 1 < several <= config.train.batch_size else []
    plans = [Plan(axes=(axis,), **(auto.said() if axis.name in ("serial", "data") else {})) for axis in axes]
    turns = benchmark(config, [resolve(plan.with_defaults(device="cuda"), config, machine) for plan in plans])
    return [_with(Candidate(turn.plan), turn) for turn in turns]


def _with(candidate: Candidate, turn: BenchmarkResult | None) -> Candidate:
    if turn is None:
        return candidate
    measured = turn.step_ms if turn.rounds else None
    return replace(candidate, measured_ms=measured, error_ms=turn.error_ms, failed=turn.error)
