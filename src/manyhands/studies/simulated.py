"""Study, simulated: rows of a study whose cells are predicted or searched on described machines; nothing is trained."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from manyhands.config import DataConfig, ModelConfig
from manyhands.errors import InputError
from manyhands.machine import cluster_toml
from manyhands.progress import bar
from manyhands.runs import run_folder
from manyhands.simulate.search.annealing import Found, default_proposals, search
from manyhands.simulate.search.space import Space
from manyhands.simulate.simulator import Prediction, Simulator
from manyhands.stats import mean_and_std
from manyhands.studies.grid import Case
from manyhands.studies.simulation_options import FEW, SIMULATORS, Virtual
from manyhands.tune.plan.described_machine import name_of, plan_on, presets_of

Row = dict[str, Any]

SEARCHES = "searches.jsonl"
SHORT = 8  # times fewer proposals, where only the time of a search is to be told


@dataclass
class Bench:
    """Simulators by what is traced and on which machine, each made once."""

    made: dict[tuple[ModelConfig, DataConfig, str, str], Simulator] = field(default_factory=dict)

    def simulator(self, case: Case) -> Simulator:
        config, machine = case.config, where(case).machine
        key = (config.model, config.data, config.optim.name, machine)
        if key not in self.made:
            self.made[key] = Simulator.of(config, machine)
        return self.made[key]

    def predict(self, case: Case) -> Prediction:
        """A case's plan; `auto` is searched for, on as many devices as the machine has unless the case says."""
        simulator, batch = self.simulator(case), case.config.train.batch_size
        if [axis.name for axis in case.plan.axes] != ["auto"]:
            return simulator.predict(case.plan, batch)
        seed, proposals = case.config.train.seed, self.proposals(case)
        return plan_on(simulator, case.plan, batch, devices_of(case), seed=seed, proposals=proposals).best

    def search(self, case: Case, proposals: int, seed: int) -> tuple[Found, float]:
        """What a search finds, and its seconds: for the costs of all splits, and for the walks from all presets."""
        simulator, batch, devices = self.simulator(case), case.config.train.batch_size, devices_of(case)
        presets, _ = presets_of(simulator, case.plan, batch, devices)
        starts = {each.plan.name: each.splits for each in presets}
        begun = time.perf_counter()
        problem = simulator.problem(case.plan, batch, devices)
        space = Space.of(simulator.graph, batch, devices)
        full = where(case).simulator == "full"
        found = search(problem, space, starts, proposals, seed, delta=not full, patient=full)
        return found, time.perf_counter() - begun

    def proposals(self, case: Case) -> int:
        return where(case).proposals or default_proposals(len(self.simulator(case).graph.layers), devices_of(case))


def where(case: Case) -> Virtual:
    assert case.virtual is not None
    return case.virtual


def devices_of(case: Case) -> int:
    return where(case).devices or cluster_toml.find(where(case).machine).devices


@dataclass(frozen=True)
class Played:
    """Rows, what could not be played and why, and what the rows do not tell."""

    rows: list[Row]
    left_out: list[Row]
    used: str | None = None


def predicted(cases: Sequence[Case]) -> Played:
    """Every case's plan, once: a simulation says the same each time."""
    bench, rows, left_out = Bench(), list[Row](), list[Row]()
    with bar(f"{len(cases)} simulations", len(cases), "simulations") as shown:
        for case in cases:
            try:
                rows.append(_predicted_row(case, bench.predict(case)))
            except InputError as why:
                left_out.append({"label": case.label, "reason": str(why)})
            shown.advance(note=case.label)
    return Played(rows, left_out)


def searched(cases: Sequence[Case], times: int, folder: Path) -> Played:
    """Every case's search so many times, interleaved; repeat r uses seed + r in every case. What has been searched is a
    line of a file in the folder, and is not searched again."""
    bench = Bench()
    compiled = warm_up(bench, cases)
    lines = (folder / SEARCHES).read_bytes().splitlines() if (folder / SEARCHES).exists() else []
    known = {(told["label"], told["repeat"]): told for told in run_folder.records(lines)}
    made: list[list[Row]] = [[] for _ in cases]
    left_out: dict[str, str] = {}
    with bar(f"{times * len(cases)} searches", times * len(cases), "searches") as shown:
        for repeat in range(times):
            for case, rows_made in zip(cases, made, strict=True):
                try:
                    if (case.label, repeat) not in known:
                        best, seconds = bench.search(case, bench.proposals(case), case.config.train.seed + repeat)
                        told = {"seconds": seconds, "step_ns": best.step_ns, "proposals": best.proposals}
                        known[case.label, repeat] = {"label": case.label, "repeat": repeat, **told}
                        with (folder / SEARCHES).open("a") as file:
                            file.write(json.dumps(known[case.label, repeat]) + "\n")
                    rows_made.append(known[case.label, repeat])
                except InputError as why:
                    left_out[case.label] = str(why)
                shown.advance(note=case.label)
    rows = [_searched_row(case, found) for case, found in zip(cases, made, strict=True) if found]
    missing = [{"label": label, "reason": reason} for label, reason in left_out.items()]
    return Played(
        rows, missing, f"{compiled:.1f} s to compile the search, or to read it as it was compiled before, not counted"
    )


def warm_up(bench: Bench, cases: Sequence[Case]) -> float:
    """The seconds until both simulators and the search are compiled, or read from where they are kept."""
    begun = time.perf_counter()
    for case in cases:
        with suppress(InputError):  # what does not fit is told later
            bench.simulator(case)
            begun = time.perf_counter()
            for simulator in SIMULATORS:
                bench.search(replace(case, virtual=replace(where(case), simulator=simulator)), FEW, 0)
            break
    return time.perf_counter() - begun


def _row(case: Case, plan: str) -> Row:
    """What a trained row has, as far as there is something to say."""
    nothing = ("samples_per_s", "train_seconds", "test_accuracy", "sent_bytes_per_step", "compression_ratio")
    known = {"label": case.label, "cell": dict(case.values), "bound": plan, "runs": list[str]()}
    return {**known, **dict.fromkeys((*nothing, "speedup", "backward", "failed"))}


def _predicted_row(case: Case, prediction: Prediction) -> Row:
    result = prediction.result
    return {
        **_row(case, str(prediction.plan)),
        "n": 1,
        "exact": True,
        "samples_per_s": {"mean": result.samples_per_s, "std": 0.0},
        "step_ms": result.step_ms,
        "idle_fraction": result.idle_fraction,
        "exposed_comm_ms": result.exposed_ns / 1e6,
        "found": name_of(prediction.plan) if case.plan.name == "auto" else None,
    }


def _searched_row(case: Case, made: Sequence[Row]) -> Row:
    return {
        **_row(case, case.plan.name),
        "n": len(made),
        "exact": False,
        "search_seconds": mean_and_std([each["seconds"] for each in made]),
        "step_ms": min(each["step_ns"] for each in made) / 1e6,
        "proposals": made[0]["proposals"],
    }


def seconds_of(cases: Sequence[Case], by: str) -> tuple[list[float], str]:
    """About how long each case takes, and what that was told from."""
    bench = Bench()
    warm_up(bench, cases)
    names = [case.label if by == "search" else case.plan.name for case in cases]
    known: dict[str, float] = {}
    for name, case in zip(names, cases, strict=True):
        if name in known:
            continue
        bench.simulator(case)
        begun = time.perf_counter()
        with suppress(InputError):
            if by == "search":
                bench.search(case, max(bench.proposals(case) // SHORT, 1), 0)
            else:
                bench.predict(case)
        known[name] = (time.perf_counter() - begun) * (SHORT if by == "search" else 1)
    return [known[name] for name in names], "a short search each" if by == "search" else "a simulation of each plan"
