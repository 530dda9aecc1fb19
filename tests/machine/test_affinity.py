"""Cores are dealt out whole, equally and by neighbourhood; words for them are read or refused in one line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands.errors import PlanError
from manyhands.machine.affinity import Cores, deal, make_room, missing, parse, read_sets, unused
from manyhands.machine.machine import Core, Machine


def make(*nodes: int, smt: int = 1) -> Machine:
    """Nodes with so many physical cores each, numbered as Linux does: all first threads, then all second ones."""
    places = [(node, number) for node, count in enumerate(nodes) for number in range(count)]
    cores = [
        Core(id=turn * len(places) + at, physical=number, socket=node, node=node)
        for turn in range(smt)
        for at, (node, number) in enumerate(places)
    ]
    return Machine("host", "cpu", tuple(cores), 2**34)


def nodes_of(rank: tuple[int, ...], machine: Machine) -> set[int]:
    return {core.node for core in machine.cores if core.id in rank}


@pytest.mark.parametrize(
    ("machine", "ranks", "dealt"),
    [
        (make(1), 1, ((0,),)),
        (make(4), 1, ((0, 1, 2, 3),)),
        (make(4), 2, ((0, 1), (2, 3))),
        (make(4), 3, ((0,), (1,), (2,))),
        (make(7), 3, ((0, 1), (2, 3), (4, 5))),
        # Siblings (4 … 7, 8 … 15) stay free while there is a physical core for every rank.
        (make(4, smt=2), 2, ((0, 1), (2, 3))),
        (make(4, smt=2), 4, ((0,), (1,), (2,), (3,))),
        (make(4, smt=2), 5, ((0,), (1,), (2,), (3,), (4,))),
        (make(4, smt=2), 8, ((0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,))),
        (make(4, 4), 1, ((0, 1, 2, 3, 4, 5, 6, 7),)),
        (make(4, 4), 2, ((0, 1, 2, 3), (4, 5, 6, 7))),
        (make(4, 4, smt=2), 4, ((0, 1), (2, 3), (4, 5), (6, 7))),
        (make(3, 3), 4, ((0,), (1,), (3,), (4,))),
        (make(4, 4), 3, ((0, 1), (2, 3), (4, 5))),
        (make(2, 2, 2, 2), 2, ((0, 1, 2, 3), (4, 5, 6, 7))),
        (make(2, 2, smt=2), 6, ((0,), (1,), (4,), (2,), (3,), (6,))),
        # What a container leaves may be lopsided: a rank over two nodes loses less than one with a core instead of 4.
        (make(7, 1), 2, ((0, 1, 2, 3), (4, 5, 6, 7))),
        (make(4, 3), 2, ((0, 1, 2), (4, 5, 6))),
    ],
)
def test_deal(machine: Machine, ranks: int, dealt: Cores) -> None:
    assert deal(machine, ranks) == dealt


@pytest.mark.parametrize(("machine", "ranks"), [(make(4), 5), (make(4, smt=2), 9), (make(2, 2, smt=2), 9)])
def test_more_ranks_than_cores(machine: Machine, ranks: int) -> None:
    """They share all of them."""
    assert deal(machine, ranks) == (tuple(sorted(core.id for core in machine.cores)),) * ranks


def test_too_many_ranks() -> None:
    with pytest.raises(PlanError, match="33 ranks on 4 cores: at most 8 can share a core; use fewer ranks"):
        deal(make(4), 33)


def test_siblings_by_number_within_a_node() -> None:
    """Cores of the two nodes of one socket may bear the same number."""
    machine = Machine("host", "cpu", tuple(Core(n, n % 2, 0, n // 2) for n in range(4)), 1)
    assert deal(machine, 4) == ((0,), (1,), (2,), (3,))


machines = st.builds(
    lambda nodes, smt: make(*nodes, smt=smt),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4]),
)


@settings(deadline=None)
@given(machines, st.data())
def test_no_core_twice_equally_many_physical_first(machine: Machine, data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, len(machine.cores)))
    dealt = deal(machine, ranks)
    assert len(dealt) == ranks
    assert len({len(rank) for rank in dealt}) == 1
    used = [core for rank in dealt for core in rank]
    assert used
    assert len(set(used)) == len(used)
    if ranks <= machine.physical_cores:
        assert set(used) <= set(machine.separate_cores)
    for node in {core.node for core in machine.cores}:
        here = {core.id for core in machine.cores if core.node == node}
        first = here & set(machine.separate_cores)
        assert first <= set(used) or not (here - first) & set(used)  # a sibling only where no physical core is left


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.sampled_from([1, 2, 4]), st.data())
def test_within_a_node_where_ranks_divide_evenly(nodes: int, cores: int, smt: int, data: st.DataObject) -> None:
    machine = make(*[cores] * nodes, smt=smt)
    ranks = nodes * data.draw(st.integers(1, cores * smt))
    assert all(len(nodes_of(rank, machine)) == 1 for rank in deal(machine, ranks))


@pytest.mark.parametrize(
    ("machine", "cores", "loaders", "own", "beside"),
    [
        # Siblings are free: ranks keep what they have.
        (make(4, smt=2), ((0, 1), (2, 3)), 1, ((0, 1), (2, 3)), ((4, 5), (6, 7))),
        (make(4), ((0,),), 8, ((0,),), ((1, 2, 3),)),
        # Nothing is free: as many cores as there are processes, up to half.
        (make(4), ((0, 1, 2, 3),), 1, ((0, 1, 2),), ((3,),)),
        (make(4), ((0, 1, 2, 3),), 9, ((0, 1),), ((2, 3),)),
        (make(4), ((0, 1), (2, 3)), 1, ((0,), (2,)), ((1,), (3,))),
        (make(3), ((0, 1, 2),), 9, ((0, 1),), ((2,),)),
        # A single core is shared.
        (make(2), ((0,), (1,)), 4, ((0,), (1,)), ((0,), (1,))),
        # Too few are free for all.
        (make(3), ((0,), (1,)), 1, ((0,), (1,)), ((0,), (1,))),
        # The free cores 6, 7 are on the second node, the siblings 8 … 11 on the first.
        (
            make(4, 4, smt=2),
            ((0, 1), (2, 3), (4, 5)),
            2,
            ((0, 1), (2, 3), (4, 5)),
            ((8, 9, 10), (11, 6, 7), (12, 13, 14)),
        ),
    ],
)
def test_make_room(machine: Machine, cores: Cores, loaders: int, own: Cores, beside: Cores) -> None:
    assert make_room(cores, machine, loaders) == (own, beside)


@settings(deadline=None)
@given(machines, st.integers(1, 16), st.data())
def test_loaders_never_take_a_ranks_place(machine: Machine, loaders: int, data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, len(machine.cores)))
    dealt = deal(machine, ranks)
    own, beside = make_room(dealt, machine, loaders)
    assert len(own) == len(beside) == ranks
    assert all(rank and set(rank) <= set(whole) for rank, whole in zip(own, dealt, strict=True))
    assert all(beside)
    assert all(not set(mine) & set(other) or mine == other for mine in own for other in beside)
    assert unused(dealt, machine) in ((), beside)


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 6))
def test_loaders_on_siblings_share_their_ranks_node(nodes: int, cores: int) -> None:
    machine = make(*[cores] * nodes, smt=2)
    own, beside = make_room(deal(machine, nodes), machine, 1)
    assert [nodes_of(rank, machine) for rank in own] == [nodes_of(rank, machine) for rank in beside]


@pytest.mark.parametrize(
    ("text", "ranks", "cores"),
    [
        ("0", 1, ((0,),)),
        ("0,1", 1, ((0, 1),)),
        ("3,1", 1, ((3, 1),)),
        ("0-3", 1, ((0, 1, 2, 3),)),
        ("0,2-4, 7", 1, ((0, 2, 3, 4, 7),)),
        ("5-5", 1, ((5,),)),
        ("0-7", 2, ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("0-2", 2, ((0,), (1,))),
        ("0;1", 2, ((0,), (1,))),
        ("0,1 ; 4-6", 2, ((0, 1), (4, 5, 6))),
        ("0;0", 2, ((0,), (0,))),  # ranks may share a core where that is said
        ("auto", 2, ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("auto", 3, ((0, 1), (2, 3), (4, 5))),
    ],
)
def test_parse(text: str, ranks: int, cores: Cores) -> None:
    assert parse(text, make(8), ranks) == cores


@pytest.mark.parametrize(
    ("text", "ranks", "told"),
    [
        ("", 1, "write core numbers such as 0,1 or 0-3, or auto"),
        ("all", 1, "write core numbers"),
        ("0,,1", 1, "write core numbers"),
        ("0;", 2, "write core numbers"),
        ("-1", 1, "write core numbers"),
        ("1-", 1, "write core numbers"),
        ("0,3-1", 1, "write core numbers"),
        ("1.5", 1, "write core numbers"),
        ("0-99999999999", 1, "write core numbers"),
        ("0,0", 1, "name each core once"),
        ("0-3,2", 1, "name each core once"),
        ("0,9,8", 1, r"cores \[8, 9\] are not here; this machine has 0, 1, 2, 3, 4, 5, 6, 7"),
        ("0;12", 2, r"cores \[12\] are not here"),
        ("0;1;2", 2, "3 sets, the plan has 2 ranks; give a set for each"),
        ("0;1", 1, "2 sets, the plan has 1 ranks"),
        ("0,1", 3, "2 cores, the plan has 3 ranks; name one for each"),
    ],
)
def test_bad_words(text: str, ranks: int, told: str) -> None:
    with pytest.raises(PlanError, match=told) as caught:
        parse(text, make(8), ranks)
    assert f"cpu.affinity={text}:" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_machine_lacks() -> None:
    assert read_sets("0,2-4;5") == ((0, 2, 3, 4), (5,))
    assert missing(read_sets("0,1,2,4"), make(2)) == [2, 4]
    assert missing(read_sets("0;1"), make(2)) == []
