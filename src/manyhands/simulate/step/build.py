"""Build: a graph on a cluster as arrays, and the program that its devices carry out."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from manyhands.graph.graph import Graph, Layer
from manyhands.machine.cluster import Cluster
from manyhands.plan.sharding_rules import ways
from manyhands.plan.stages import Pipeline
from manyhands.simulate.cost.cost_model import Costs
from manyhands.simulate.step.arrays import BACKWARD, FORWARD, Ints, Problem, SimulationState
from manyhands.simulate.step.cost_tables import Tables

Beat = tuple[int, int, int]  # direction, micro-batch, layer


def degrees(devices: int) -> list[int]:
    """Degrees to which a layer can be cut on so many devices: those that leave none out in the end.

    >>> degrees(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [number for number in range(1, devices + 1) if devices % number == 0]


def make(
    graph: Graph,
    costs: Costs,
    cluster: Cluster,
    batch: int,
    program: Sequence[Beat],
    micro: int = 1,
    pipeline: Pipeline | None = None,
) -> Problem:
    """The arrays of a problem; `program` is the order in which beats are played."""
    cuts = degrees(cluster.devices)
    numbers = np.full(cluster.devices + 1, -1, dtype=np.int64)
    numbers[cuts] = np.arange(len(cuts))
    crossing = batch / micro / graph.batch * costs.activation_bytes()  # bytes of one of the graph's numbers
    back = np.array([graph.learns[source] for source, _ in graph.edges], dtype=np.bool_)
    tables = Tables(graph, costs, cuts, batch / micro, micro, pipeline)
    sizes = np.array([level.devices for level in cluster.levels], dtype=np.int64)
    groups = -(-cluster.devices // sizes)
    first = 3 * cluster.devices + np.concatenate([[0], np.cumsum(groups[1:])]).astype(np.int64)
    group = np.arange(cluster.devices, dtype=np.int64) // sizes[:, None]
    own = np.arange(3 * cluster.devices, dtype=np.int64).reshape(3, cluster.devices)
    return Problem(
        devices=cluster.devices,
        degree=numbers,
        forward=tables.forward,
        backward=tables.backward,
        apart=tables.apart,
        update=tables.update,
        sync=tables.sync,
        output=_ints(max(round(layer.results * crossing), 1) for layer in graph.layers),
        # Parts add up what the first of several layers as one makes; pooling, say, comes after that.
        summed=_ints(max(round((layer.members or (layer,))[0].results * crossing), 1) for layer in graph.layers),
        weights=_ints(4 * layer.parameters for layer in graph.layers),
        shared=_ints(map(_shared, graph.layers)),
        same=np.array([ways(layer, batch).same for layer in graph.layers], dtype=np.bool_),
        source=_ints(source for source, _ in graph.edges),
        target=_ints(target for _, target in graph.edges),
        back=back,
        into=_lists([[e for e, edge in enumerate(graph.edges) if edge[1] == n] for n in range(len(graph.layers))]),
        out=_lists([[e for e, edge in enumerate(graph.edges) if edge[0] == n] for n in range(len(graph.layers))]),
        **_program(graph, program, micro),
        size=sizes,
        slot=np.concatenate([own, first[:-1, None] + group[1:]]),
        group=group,
        rate=np.array([level.gb_per_s for level in cluster.levels]),  # 10^9 bytes a second are bytes a ns
        latency=_ints(round(1000 * level.latency_us) for level in cluster.levels),
        duplex=np.array([level.duplex for level in cluster.levels], dtype=np.bool_),
        ring=cluster.collectives == "ring",
        overlap=cluster.overlap,
        late=cluster.late,
        memory=tables.memory,
        capacity=cluster.accelerator.memory_bytes,
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _lists(rows: Sequence[Sequence[int]]) -> Ints:
    """Rows of different lengths, with -1 behind each."""
    table = np.full((len(rows), max(map(len, rows), default=0) + 1), -1, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def _shared(layer: Layer) -> int:
    """Bytes by which batch norms agree on a batch's mean and variance."""
    norms = [each for each in layer.members or (layer,) if each.operation.lower().startswith("batch")]
    return sum(8 * each.output[1] for each in norms)


def _program(graph: Graph, program: Sequence[Beat], micro: int) -> dict[str, Any]:
    """The beats, and what each leaves to those after it."""
    at = np.full((3, micro, len(graph.layers)), -1, dtype=np.int64)
    for number, beat in enumerate(program):
        at[beat] = number
    last = at[BACKWARD:].max(axis=(0, 1)).tolist()
    taken = [0] * len(program)  # the last beat that takes a beat's result
    fresh: list[tuple[int, int]] = []  # beats that take none, and their layers
    for number, (direction, part, layer) in enumerate(program):
        takes = (graph.layers[layer].after, graph.before[layer], ())[direction]
        sources = [at[direction, part, each] for each in takes]
        if direction != FORWARD and not sources:
            sources = [at[direction - 1, part, layer]]
        for source in sources:
            if source >= 0:
                taken[source] = max(taken[source], number)
        if not sources:
            fresh.append((number, layer))
    cuts = range(len(program))
    return {
        "direction": _ints(beat[0] for beat in program),
        "micro": _ints(beat[1] for beat in program),
        "layer": _ints(beat[2] for beat in program),
        "last": np.array([last[layer] == number for number, (_, _, layer) in enumerate(program)]),
        "beat": at,
        "synced": _ints(last),
        "live": _lists(list(_live(taken))),
        "fresh": _lists([sorted({layer for beat, layer in fresh if cut < beat}) for cut in cuts]),
    }


def _live(taken: Sequence[int]) -> Iterator[list[int]]:
    """After each beat, those whose results are still to be taken."""
    live: list[int] = []
    for beat in range(len(taken)):
        live = [each for each in (*live, beat) if taken[each] > beat]
        yield live


def board(problem: Problem) -> SimulationState:
    """An empty board: every layer is still to be placed."""
    layers, edges, beats = len(problem.weights), len(problem.source), len(problem.layer)
    devices, micro = problem.devices, problem.beat.shape[1]
    groups = sum(-(-devices // int(size)) for size in problem.size[1:])

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    def ones() -> Ints:
        return np.ones(layers, dtype=np.int64)

    return SimulationState(
        sample=ones(),
        parameter=ones(),
        reduction=ones(),
        copies=ones(),
        parts=zeros(layers),
        device=zeros(layers, devices),
        place=np.full((layers, devices), -1, dtype=np.int64),
        piece=zeros(layers, 3, devices),
        duration=zeros(3, layers),
        needs=zeros(layers),
        used=zeros(devices),
        sum=zeros(2, layers, 3, devices),
        sum_span=zeros(2, layers, 3, devices),
        sum_least=zeros(2, layers, 3),
        busy=zeros(2, layers, len(problem.rate)),
        built=zeros(layers),
        components=zeros(2, edges),
        comp=zeros(2, edges, 2, devices),
        member=zeros(2, edges, 2, devices),
        begin=zeros(2, edges, 2, devices + 1),
        moves=zeros(2, edges, 2),
        move=zeros(2, edges, 2, devices),
        move_least=zeros(2, edges, 2),
        span=zeros(2, edges, devices),
        edge=zeros(edges),
        computed=zeros(2, beats, devices),
        ends=zeros(2, beats, devices),
        arrived=zeros(2, 2 * micro, edges, devices),
        synced=zeros(2, layers, devices),
        state=zeros(2, beats, 3 * devices + groups),
        which=zeros(beats),
        later=zeros(beats),
        begun=zeros(devices),
        done=zeros(devices),
        was_which=zeros(beats),
        was_later=zeros(beats),
        was_edge=zeros(edges),
        was_built=zeros(layers),
        stale_edge=np.zeros(edges, dtype=np.bool_),
        stale_layer=np.zeros(layers, dtype=np.bool_),
        touched=np.zeros(beats, dtype=np.bool_),
        after=zeros(beats),
        least_pass=zeros(3, layers),
        rest=zeros(len(problem.rate)),
        least_sync=zeros(layers),
        least_move=zeros(2, edges),
        wanted=zeros(layers, 5),
        everything=np.ones(layers, dtype=np.bool_),
        numbers=np.arange(devices, dtype=np.int64),
        arrival=zeros(devices),
        ready=zeros(devices),
        fellows=zeros(devices),
        order=zeros(2, devices),
        tally=zeros(2, devices),
        table=zeros(4, devices),
        amount=np.zeros((3, devices)),
        final=zeros(3 * devices + groups),
    )
