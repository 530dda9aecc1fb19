"""Result: which parts of a layer add up together, and how long that takes them, waiting apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manyhands.graph.graph import Graph
from manyhands.machine.cluster import Cluster
from manyhands.plan.sharding import Split
from manyhands.plan.stages import Pipeline
from manyhands.simulate.cost.cost_model import Costs
from manyhands.simulate.step.arrays import (
    BACKWARD,
    FORWARD,
    GRADIENTS,
    REDUCTION,
    SHARED,
    WEIGHTS,
    Ints,
    Problem,
    SimulationState,
)
from manyhands.simulate.step.build import make
from manyhands.simulate.step.simulation import Simulation
from manyhands.simulate.step.task_order import program
from manyhands.timeline import Event, Timeline

Taken = dict[int, int]  # nanoseconds by device


def within(problem: Problem, board: SimulationState, layer: int, direction: int) -> Taken:
    """What comes between a layer's computation and its results: statistics of batch norms, sums of a reduction."""
    taken: Taken = {}
    if problem.shared[layer] and board.sample[layer] > 1 and direction != WEIGHTS:
        _add(taken, board, layer, SHARED)
    if direction == FORWARD and board.reduction[layer] > 1:
        _add(taken, board, layer, REDUCTION)
    return taken


def gradients(problem: Problem, board: SimulationState, layer: int) -> Taken:
    """Adding up the gradients of a layer's weights."""
    taken: Taken = {}
    if board.sample[layer] > 1 and problem.weights[layer] and problem.synced[layer] >= 0:
        _add(taken, board, layer, GRADIENTS)
    return taken


def _add(taken: Taken, board: SimulationState, layer: int, kind: int) -> None:
    """Parts that differ in their samples alone add up, or in what they reduce alone; see collectives.build_layer."""
    parts = int(board.parts[layer])
    members = int(board.reduction[layer] if kind == REDUCTION else board.sample[layer])
    stride = int(board.copies[layer]) if kind == REDUCTION else parts // members
    durations = board.sum[board.built[layer], layer, kind]
    for part, device in enumerate(board.device[layer, :parts].tolist()):
        group = part // (members * stride) * stride + part % stride
        taken[device] = taken.get(device, 0) + int(durations[group])


PASS = ("forward", "backward", "backward")  # weight gradients are of the backward pass too


@dataclass(frozen=True)
class Result:
    """The predicted step: its length, what keeps every device busy, what it needs in memory."""

    graph: Graph
    batch: int
    simulation: Simulation

    @property
    def step_ns(self) -> int:
        return self.simulation.step_ns

    @property
    def step_ms(self) -> float:
        return self.step_ns / 1e6

    @property
    def samples_per_s(self) -> float:
        return self.batch / self.step_ns * 1e9

    @cached_property
    def computing(self) -> list[Event]:
        """Forward, backward and update on each device."""
        return list(self._computing())

    @cached_property
    def moving(self) -> list[Event]:
        """Transfers and reductions, once on each device that takes part."""
        return list(self._moving())

    @property
    def timeline(self) -> Timeline:
        return Timeline.of([*self.computing, *self.moving])

    @cached_property
    def busy_ns(self) -> list[int]:
        """Time that each device computes."""
        busy = [0] * self.simulation.problem.devices
        for event in self.computing:
            busy[_device(event)] += event.end_ns - event.start_ns
        return busy

    @property
    def idle_fraction(self) -> float:
        """Of all devices' time, the share in which they do not compute."""
        return 1 - sum(self.busy_ns) / (self.step_ns * len(self.busy_ns))

    @cached_property
    def exposed_by_device(self) -> list[int]:
        """Time in which each device moves data and does not compute, in nanoseconds."""
        moving, busy = (_spans(events, len(self.busy_ns)) for events in (self.moving, self.computing))
        return [_length(one) - _overlap(one, two) for one, two in zip(moving, busy, strict=True)]

    @property
    def exposed_ns(self) -> int:
        """The most of any device."""
        return max(self.exposed_by_device)

    @cached_property
    def memory_bytes(self) -> list[int]:
        """Of each device: weights, gradients, optimizer state, and what the backward pass needs."""
        problem, board = self.simulation.problem, self.simulation.board
        used = [0] * problem.devices
        for layer in range(len(self.graph.layers)):
            k, p, r = problem.degree[[board.sample[layer], board.parameter[layer], board.reduction[layer]]]
            for device in board.device[layer][: board.parts[layer]]:
                used[device] += int(problem.memory[layer, k, p, r])
        return used

    @property
    def missing_bytes(self) -> int:
        """What the fullest device lacks; 0 where the plan fits."""
        return max(max(self.memory_bytes) - self.simulation.problem.capacity, 0)

    def _computing(self) -> Iterator[Event]:
        problem, board = self.simulation.problem, self.simulation.board
        for beat, layer in enumerate(problem.layer):
            direction = problem.direction[beat]
            duration = int(board.duration[direction, layer])
            ends = board.computed[board.which[beat], beat] + board.later[beat]
            for device in board.device[layer][: board.parts[layer]]:
                end = int(ends[device])
                yield _event(self.graph.layers[layer].name, PASS[direction], device, end - duration, end)
        for device in range(problem.devices):
            if board.done[device] > board.begun[device]:
                yield _event("update", "update", device, int(board.begun[device]), int(board.done[device]))

    def _moving(self) -> Iterator[Event]:
        problem, board = self.simulation.problem, self.simulation.board
        for beat, (direction, micro, layer) in enumerate(
            zip(problem.direction, problem.micro, problem.layer, strict=True)
        ):
            which, later, name = board.which[beat], int(board.later[beat]), self.graph.layers[layer].name
            for edge in (problem.into if direction == FORWARD else problem.out)[layer]:
                if edge >= 0 and (direction == FORWARD or (direction == BACKWARD and problem.back[edge])):
                    buffer = board.edge[edge]
                    durations = board.move[buffer, edge, direction]
                    for number in np.flatnonzero(durations[: board.components[buffer, edge]]):
                        end = int(board.arrived[which, 2 * micro + direction, edge, number]) + later
                        for device in _members(board.member[buffer, edge], board.begin[buffer, edge], int(number)):
                            yield _link_event(name, "transfer", device, end - int(durations[number]), end)
            ends, device_ns = board.ends[which, beat], within(problem, board, layer, direction)
            for device, taken in device_ns.items():
                yield _link_event(
                    name, "collective", device, int(ends[device]) + later - taken, int(ends[device]) + later
                )
            if problem.last[beat] and not problem.late:
                synced = board.synced[which, layer]
                for device, taken in gradients(problem, board, layer).items():
                    end = int(synced[device]) + later
                    yield _link_event(name, "collective", device, end - taken, end)
        if problem.late:
            yield from self._late()

    def _late(self) -> Iterator[Event]:
        """Reductions after the backward pass, one after the other up to the update."""
        problem, board = self.simulation.problem, self.simulation.board
        ends = [int(end) for end in board.begun]
        for layer in range(len(self.graph.layers)):  # the last ones first, as the deepest layer's come first
            for device, taken in gradients(problem, board, layer).items():
                yield _link_event(
                    self.graph.layers[layer].name, "collective", device, ends[device] - taken, ends[device]
                )
                ends[device] -= taken


def _members(member: Ints, begin: Ints, number: int) -> list[int]:
    """The devices of a component, on both sides."""
    return sorted(
        {int(each) for side in (0, 1) for each in member[side, begin[side, number] : begin[side, number + 1]]}
    )


def _event(name: str, category: str, device: int, start: int, end: int) -> Event:
    return Event(name, category, f"device {device}", start, end)


def _link_event(name: str, category: str, device: int, start: int, end: int) -> Event:
    return Event(name, category, f"device {device} link", start, end)


def _device(event: Event) -> int:
    return int(event.lane.split()[1])


Span = tuple[int, int]


def _spans(events: Sequence[Event], devices: int) -> list[list[Span]]:
    """When each device has any of the events."""
    found: list[list[Span]] = [[] for _ in range(devices)]
    for event in events:
        found[_device(event)].append((event.start_ns, event.end_ns))
    return list(map(_union, found))


def _union(spans: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _length(spans: Sequence[Span]) -> int:
    return sum(end - start for start, end in spans)


def _overlap(one: Sequence[Span], two: Sequence[Span]) -> int:
    shared = i = j = 0
    while i < len(one) and j < len(two):
        shared += max(min(one[i][1], two[j][1]) - max(one[i][0], two[j][0]), 0)
        if one[i][1] <= two[j][1]:
            i += 1
        else:
            j += 1
    return shared


def predict(
    graph: Graph,
    splits: Sequence[Split],
    costs: Costs,
    cluster: Cluster,
    batch: int,
    micro: int = 1,
    pipeline: Pipeline | None = None,
) -> Result:
    """Simulate one plan in full; micro-batches go as in GPipe unless its pipeline says otherwise."""
    problem = make(graph, costs, cluster, batch, program(graph, micro, pipeline), micro, pipeline)
    return Result(graph, batch, Simulation(problem, splits))
