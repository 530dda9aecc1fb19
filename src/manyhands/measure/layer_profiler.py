"""Layer profiler: how long each layer takes inside real steps on this machine.

Layers are timed where they stand (engine.loop.layer_profiler). The profile of a plan with several ranks is taken in as
many processes at once, pinned as the ranks will be, that do not exchange anything.

    python -m manyhands.measure.layer_profiler_worker FOLDER RANK      is one of these processes
"""

import hashlib
import json
import math
import statistics
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from manyhands.comm.launch.fresh_process import in_fresh_process
from manyhands.config import Config
from manyhands.errors import UNREADABLE, RunError
from manyhands.files import TemporaryFolder, home, write_json
from manyhands.machine import affinity
from manyhands.machine.machine import Machine
from manyhands.plan.plan import Plan, alone, to_table, waits_in_norms
from manyhands.runs.environment import versions
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.train.checks.source_hash import source_hash

FAILED = "failed"  # a file: one of them has


def profiles(config: Config, plans: Sequence[Plan], samples: Sequence[int], machine: Machine) -> list[Profile]:
    """A profile of each plan, all of the same number of ranks and threads; what is known is not taken again."""
    paths = [home() / "profiles" / f"{_key(config, plan, samples, machine)}.json" for plan in plans]
    known = {path: profile for path in paths if (profile := _known(path))}
    missing = {path: plan for path, plan in zip(paths, plans, strict=True) if path not in known}
    if missing:
        for path, profile in zip(missing, _take(config, [*missing.values()], samples, machine), strict=True):
            write_json(path, profile.to_json())
            known[path] = profile
    return [known[path] for path in paths]


def _known(path: Path) -> Profile | None:
    try:
        return Profile.from_json(json.loads(path.read_text()))
    except UNREADABLE:
        return None


def _key(config: Config, plan: Plan, samples: Sequence[int], machine: Machine) -> str:

    told = config.to_json()
    facts = {
        "plan": to_table(alone(plan)),  # layers are the same whatever the schedule, and are not timed again for it
        "ranks": plan.world,
        "pinned": plan.has_ranks,
        "waits": waits_in_norms(plan),
        "model": told["model"],
        "file": source_hash(config.model.name),
        "data": told["data"],
        "optim": told["optim"],
        "samples": list(samples),
        "machine": machine.to_json(),
        "versions": versions(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _take(config: Config, plans: Sequence[Plan], samples: Sequence[int], machine: Machine) -> list[Profile]:
    """Start the processes, and put together what they saw."""
    world = plans[0].world
    pinned = plans[0].has_ranks and not plans[0].is_baseline
    cores = affinity.deal(machine, world) if pinned else ((),) * world
    with TemporaryFolder() as folder:
        order = {
            "config": config.to_json(),
            "plans": [to_table(plan) for plan in plans],
            "samples": list(samples),
            "cores": [list(each) for each in cores],
        }
        write_json(Path(folder) / "order.json", order)
        ended: list[tuple[int, str]] = [(0, "")] * world

        def one(rank: int) -> None:
            ended[rank] = in_fresh_process("manyhands.measure.layer_profiler_worker", folder, str(rank))
            if ended[rank][0] != 0:
                with suppress(OSError):  # the folder has gone: this process itself was interrupted
                    (Path(folder) / FAILED).touch()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for code, errors in sorted(ended):  # those first that were killed, for want of which others fail
            if code != 0:
                said = [f"a process was killed (signal {-code})"] if code < 0 else errors.strip().splitlines()
                last = (said or [f"exit code {code}"])[-1]
                raise RunError(f"the layers of {config.model.name} cannot be timed: {last}")
        told = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(world)]
    return [
        _together([Profile.from_json(each[number][0]) for each in told], [each[number][1] for each in told])
        for number in range(len(plans))
    ]


def _together(ranks: Sequence[Profile], steps: Sequence[Sequence[Sequence[Sequence[int]]]]) -> Profile:
    """Of the processes that ran at once: their mean, and as much more as the slowest one takes, on whom all wait.

    `steps`: of each process, at each number of samples, how long every stretch of every step was.
    """
    first = ranks[0]
    slower = [_slower([each[number] for each in steps]) for number in range(len(first.samples))]
    layers = {
        name: tuple(
            (
                round(factor * statistics.mean(each.layers[name][number][0] for each in ranks)),
                round(factor * statistics.mean(each.layers[name][number][1] for each in ranks)),
            )
            for number, factor in enumerate(slower)
        )
        for name in first.layers
    }
    rests = zip(slower, *(each.rest for each in ranks), strict=True)
    rest = tuple(round(factor * statistics.mean(values)) for factor, *values in rests)
    update, copy = (
        round(slower[-1] * statistics.mean(getattr(each, name) for each in ranks)) for name in ("update", "copy")
    )
    jitter = statistics.median(_jitter([sum(step) for step in each[-1]]) for each in steps)
    return Profile(len(ranks), first.samples, layers, rest, update, copy, slower[-1], jitter)


def _slower(steps: Sequence[Sequence[Sequence[int]]]) -> float:
    """How much longer a step is, at each stretch of which all wait for the slowest, than it is for each by itself: 16
    on cores that other machines share took 1.4 times as long together."""
    if len(steps) == 1:
        return 1.0
    together = zip(*steps, strict=False)  # a faster one took more steps
    slowest = [sum(max(stretch) for stretch in zip(*step, strict=True)) for step in together]
    middle = statistics.mean(statistics.median(sum(step) for step in each) for each in steps)
    return float(statistics.median(slowest) / middle)


def _jitter(steps: Sequence[int]) -> float:
    """How much the steps of a process vary: of logarithms, so that one long step among few does not decide."""
    return statistics.pstdev([math.log(step) for step in steps])
