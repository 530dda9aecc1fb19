"""Affinity: which cores each rank is pinned to.

physical cores      0 1 2 3 │ 4 5 6 7        two NUMA nodes, each core with an SMT sibling (8 … 15)
4 ranks             A A B B │ C C D D        siblings stay free: two threads of one core share its arithmetic
their loaders       8 9 …                    loader processes on what is free, of the rank's own node if it can be
without siblings    A a B b │ C c D d        else a rank gives up some of its own: beside it, not on top of it
"""

from collections.abc import Sequence
from itertools import groupby

from manyhands.errors import PlanError
from manyhands.machine.machine import Core, Machine

Cores = tuple[tuple[int, ...], ...]  # of each rank

MOST_CORES = 8192  # that Linux can be built for
# A rank within one NUMA node must not cost more than this share of the cores: a container may leave 30 of one node
# and 2 of the other.
NODE_SHARE = 0.75
CROWD = 8  # ranks that may share a core


def in_order(machine: Machine) -> list[Core]:
    """One logical core of every physical one, neighbours together; then their siblings, in the same order."""
    alike = _physical(machine)
    most = max(map(len, alike))
    return [group[turn] for turn in range(most) for group in alike if turn < len(group)]


def _physical(machine: Machine) -> list[list[Core]]:
    """The logical cores of each physical one."""
    cores = sorted(machine.cores, key=lambda core: (core.node, core.socket, core.physical, core.id))
    return [list(group) for _, group in groupby(cores, key=lambda core: (core.node, core.socket, core.physical))]


def deal(machine: Machine, ranks: int) -> Cores:
    """Equally many cores for every rank: physical cores before siblings, within one NUMA node where that goes up.

    More ranks than cores share them all, as the system sees fit: one that waits leaves its core to others.
    """
    order, physical = in_order(machine), len(_physical(machine))
    if ranks > CROWD * len(order):
        raise PlanError(f"{ranks} ranks on {len(order)} cores: at most {CROWD} can share a core; use fewer ranks")
    if ranks > len(order):
        return (tuple(sorted(ids(order))),) * ranks
    usable = order[:physical] if ranks <= physical else order
    size = len(usable) // ranks
    nodes = [[core for core in usable if core.node == node] for node in sorted({core.node for core in usable})]
    if ranks % len(nodes) == 0:
        each = ranks // len(nodes)
        within = min(map(len, nodes)) // each
        if within >= max(NODE_SHARE * size, 1):
            return tuple(ids(node[n * within : (n + 1) * within]) for node in nodes for n in range(each))
    return tuple(ids(usable[rank * size : (rank + 1) * size]) for rank in range(ranks))


def ids(cores: Sequence[Core]) -> tuple[int, ...]:
    return tuple(core.id for core in cores)


def make_room(cores: Cores, machine: Machine, loaders: int) -> tuple[Cores, Cores]:
    """Cores of the ranks and, beside them, of their loader processes: unused ones, else up to half of the own."""
    if beside := unused(cores, machine):
        return cores, beside
    size = min(map(len, cores))
    kept = max(size - loaders, -(-size // 2))
    return tuple(rank[:kept] for rank in cores), tuple(rank[kept:] or rank for rank in cores)


def unused(cores: Cores, machine: Machine) -> Cores:
    """Equally many cores beside each rank's that no rank uses, of its own NUMA node first; () if too few are left."""
    taken = {core for rank in cores for core in rank}
    free = [core for core in in_order(machine) if core.id not in taken]
    each = len(free) // len(cores)
    dealt = []
    for rank in cores if each else ():
        home = {core.node for core in machine.cores if core.id in rank}
        near = sorted(free, key=lambda core: core.node not in home)[:each]
        free = [core for core in free if core not in near]
        dealt.append(ids(near))
    return tuple(dealt)


def parse(text: str, machine: Machine, ranks: int) -> Cores:
    """Cores from words: `auto`; `0,1,2-5`, dealt out to the ranks; or `0,1;2,3`, a set for each.

    >>> parse("0-2;5", Machine(host="", cpu="", cores=tuple(Core(n, n, 0, 0) for n in range(8)), memory_bytes=1), 2)
    ((0, 1, 2), (5,))
    """
    if text == "auto":
        return deal(machine, ranks)
    sets = read_sets(text)
    if lacking := missing(sets, machine):
        here = ", ".join(map(str, sorted(core.id for core in machine.cores)))
        raise PlanError(f"cpu.affinity={text}: cores {lacking} are not here; this machine has {here}")
    if len(sets) == ranks:
        return sets
    if len(sets) > 1:
        raise PlanError(f"cpu.affinity={text}: {len(sets)} sets, the plan has {ranks} ranks; give a set for each")
    (only,) = sets
    if len(only) < ranks:
        raise PlanError(f"cpu.affinity={text}: {len(only)} cores, the plan has {ranks} ranks; name one for each")
    size = len(only) // ranks
    return tuple(only[rank * size : (rank + 1) * size] for rank in range(ranks))


def read_sets(text: str) -> Cores:
    """The sets that words name, whether this machine has the cores or not.

    >>> read_sets("0,2-4;5")
    ((0, 2, 3, 4), (5,))
    """
    return tuple(_numbers(part, text) for part in text.split(";"))


def missing(sets: Cores, machine: Machine) -> list[int]:
    """The cores of the sets that this machine does not have."""
    have = {core.id for core in machine.cores}
    return sorted({core for each in sets for core in each} - have)


def _numbers(part: str, text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for word in part.split(","):
        first, dash, last = (each.strip() for each in word.partition("-"))
        last = last if dash else first
        if not first.isdecimal() or not last.isdecimal() or not int(first) <= int(last) < MOST_CORES:
            raise PlanError(f"cpu.affinity={text}: write core numbers such as 0,1 or 0-3, or auto")
        numbers.extend(range(int(first), int(last) + 1))
    if len(set(numbers)) < len(numbers):
        raise PlanError(f"cpu.affinity={text}: name each core once, such as 0,1")
    return tuple(numbers)
