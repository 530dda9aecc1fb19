"""Pipeline schedule: what each device of a pipeline does with its micro-batches, and in which order.

Rows are devices, columns are time. Micro-batch 0 goes forward as 0 and comes back as a; a backward takes twice the time
of a forward. A dot is a bubble. Three devices, four micro-batches:

    gpipe    0123......aabbccdd      all forwards, then all backwards:
             .0123...aabbccdd..      a device keeps all micro-batches
             ..0123aabbccdd....

    1f1b     012....aa3bb.cc.dd      a backward as soon as there is one: device d keeps
             .01..aa2bb3cc.dd..      at most `devices - d` of them, in the same time
             ..0aa1bb2cc3dd....

    zerobubble      012..aA3bBcCdD   a is the input gradient alone, which others wait for; the weight
                    .01.a2bA3cBdCD   gradient A fills bubbles: d backwards later on device d, so that
                    ..0a1b2cA3dBCD   no device keeps more than `devices` micro-batches

Two devices with two stages each; micro-batch 0 on a device's second stage is 4, and comes back as e:

    interleaved     01452.ee3ff6aa7bb.gg.hhccdd
                    .014ee5ff2aa3bb6gg7hhccdd..

The schedules: GPipe (Huang et al. 2019), 1F1B (PipeDream, Narayanan et al. 2019), interleaved 1F1B (Megatron-LM,
Narayanan et al. 2021), ZB-H1 (Qi et al. 2024).
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from manyhands.errors import PlanError, choices

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zerobubble")
CHUNKS = {"interleaved": 2}  # stages per device, where it is not one


class Action(NamedTuple):
    """One thing that a device does: `forward` or `backward` of a micro-batch through a stage, or its `weights`."""

    kind: str
    microbatch: int
    stage: int


def stages_per_device(schedule: str) -> int:
    return CHUNKS.get(schedule, 1)


def orders(schedule: str, devices: int, microbatches: int) -> tuple[tuple[Action, ...], ...]:
    """What each device does, in order; device d has the stages d, d + devices, …

    A backward makes the weight gradients too, except in zerobubble, where each has an action of its own.
    """
    if schedule not in SCHEDULES:
        raise PlanError(f"unknown schedule '{schedule}': {choices(schedule, SCHEDULES)}")
    if schedule == "interleaved":
        return _interleaved(devices, microbatches)
    found = []
    for device in range(devices):
        forwards = [Action("forward", each, device) for each in range(microbatches)]
        backwards = [Action("backward", each, device) for each in range(microbatches)]
        order = _alternate(forwards, backwards, microbatches if schedule == "gpipe" else devices - 1 - device)
        found.append(tuple(_weights_later(order, device) if schedule == "zerobubble" else order))
    return tuple(found)


def _alternate(forwards: Sequence[Action], backwards: Sequence[Action], ahead: int) -> list[Action]:
    """`ahead` forwards, then one forward and one backward in turn, then the backwards that are left."""
    turns = zip(forwards[ahead:], backwards, strict=False)
    done = [*forwards[:ahead], *(action for turn in turns for action in turn)]
    return [*done, *backwards[len(forwards[ahead:]) :]]


def _weights_later(order: Sequence[Action], later: int) -> list[Action]:
    """Weight gradients, each `later` backwards after its own, the last ones at the end."""
    done: list[Action] = []
    waiting: list[Action] = []
    for action in order:
        done.append(action)
        if action.kind == "backward":
            waiting.append(action._replace(kind="weights"))
            if len(waiting) > later:
                done.append(waiting.pop(0))
    return [*done, *waiting]


def _interleaved(devices: int, microbatches: int) -> tuple[tuple[Action, ...], ...]:
    """Micro-batches go through the stages in groups: all of a group through a device's first stage, then its second.

    A group of fewer micro-batches than devices, as Megatron's last one would be, can deadlock: a device would wait for
    what comes around the ring. So there are as many groups of at least `devices` as can be, of nearly the same size.
    """
    chunks = CHUNKS["interleaved"]
    count = max(1, microbatches // devices)
    ends = [microbatches * number // count for number in range(count + 1)]
    groups = [range(begin, end) for begin, end in pairwise(ends)]
    largest = max(map(len, groups))
    found = []
    for device in range(devices):
        stages = range(device, chunks * devices, devices)
        forwards = [Action("forward", each, stage) for group in groups for stage in stages for each in group]
        backwards = [Action("backward", each, stage) for group in groups for stage in stages[::-1] for each in group]
        ahead = 2 * (devices - 1 - device) + (chunks - 1) * largest
        found.append(tuple(_alternate(forwards, backwards, ahead)))
    return tuple(found)


def begins(schedule: str, devices: int, microbatches: int) -> dict[Action, int]:
    """When each action begins: as soon as its device has done those before it, and others what it needs.

    A forward takes 1 and a backward 2, where weight gradients are apart each of the three takes 1.
    """
    takes = {"forward": 1, "backward": 1 if schedule == "zerobubble" else 2, "weights": 1}
    left = [list(reversed(order)) for order in orders(schedule, devices, microbatches)]
    last = devices * stages_per_device(schedule) - 1
    begun: dict[Action, int] = {}
    free = [0] * devices
    while any(left):
        count = len(begun)
        for device, order in enumerate(left):
            while order and begun.keys() >= (needed := _needs(order[-1], last)):
                action = order.pop()
                begun[action] = max([free[device], *(begun[each] + takes[each.kind] for each in needed)])
                free[device] = begun[action] + takes[action.kind]
        assert len(begun) > count, f"deadlock: {schedule}, {devices} devices, {microbatches} micro-batches"
    return begun


def _needs(action: Action, last: int) -> set[Action]:
    """What others do before; `last` is the last stage."""
    if action.kind == "forward":
        return {action._replace(stage=action.stage - 1)} if action.stage else set()
    if action.kind == "weights":
        return {action._replace(kind="backward")}
    back = {action._replace(stage=action.stage + 1)} if action.stage < last else set()
    return back | {action._replace(kind="forward")}


def activations_in_flight(schedule: str, devices: int, microbatches: int) -> tuple[int, ...]:
    """Of each stage, how many micro-batches its device keeps when it keeps most: from forward to their last use."""
    ends = "weights" if schedule == "zerobubble" else "backward"
    found: dict[int, int] = {}
    for order in orders(schedule, devices, microbatches):
        now = dict.fromkeys(sorted({action.stage for action in order}), 0)
        most = dict(now)
        for action in order:
            now[action.stage] += (action.kind == "forward") - (action.kind == ends)
            if sum(now.values()) > sum(most.values()):
                most = dict(now)
        found |= most
    return tuple(found[stage] for stage in sorted(found))


def bubble(schedule: str, devices: int, microbatches: int) -> Fraction:
    """The share of all devices' time in which they wait: of equal stages, from as many micro-batches as devices on.

    The first and the last device are D - 1 stages apart. With a forward of 1 and a backward of 2, a micro-batch takes
    3 on each device, and the pipeline fills and drains for D - 1 stages:

        gpipe, 1f1b     3 (D-1) / (3 M + 3 (D-1))  =  (D-1) / (M + D-1)
        interleaved     the same of stages that are half as long  =  (D-1) / (2 M + D-1)
        zerobubble      weights fill all but the first forwards  =  (D-1) / (3 M + D-1)
    """
    shorter = {"interleaved": CHUNKS["interleaved"], "zerobubble": 3}.get(schedule, 1)
    return Fraction(devices - 1, shorter * microbatches + devices - 1)
