"""Who does what when, by hand: costs of 1, 10, 100 and 1000 make end times that explain themselves."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands.plan.stragglers import Fault
from manyhands.simulate.worker_processes import Act, Average, Gradient, Meet, Push, Step, Update, Workers
from manyhands.simulate.worker_timing import WorkerTiming

SIZE = 8  # samples of every part


def crew(workers: int, batches: int, compute: int = 1000, **times: Any) -> Workers:
    pace = WorkerTiming(workers, {0: 0, SIZE: compute}, **times)
    return Workers(pace, [[SIZE] * workers] * batches, [0] * workers)


def only(acts: list[Act], kind: type) -> list[Act]:
    return [act for act in acts if isinstance(act, kind)]


SERVER = {"servers": 1, "message": 100, "held": 100, "update": 10, "add": 1}


def test_synchronous_server() -> None:
    """
    worker 0   pull 100, compute 1000, push 100, add 1        |1201
    worker 1   waits 100, pull 100, compute 1000, push 100, add 1    |1301
    server                                                            update 10    |1311
    """
    made = crew(2, 2, **SERVER)
    acts = list(made.together(staleness=0))
    assert only(acts, Gradient) == [(0, 0, 0, 0, 0), (100, 1, 0, 1, 0), (1311, 0, 1, 0, 1), (1411, 1, 1, 1, 1)]
    assert only(acts, Update) == [(1311, 0), (2622, 1)]
    assert made.now == 2622
    assert made.busy == 4 * 1000


def test_the_other_end_of_a_link_is_not_held_for_the_latency() -> None:
    """20 of a message's 100 hold the server's end: worker 1 begins 20 later and not 100."""
    acts = list(crew(2, 1, **{**SERVER, "held": 20}).together(staleness=0))
    assert [act.time for act in only(acts, Gradient)] == [0, 20]
    assert only(acts, Update) == [(20 + 100 + 1000 + 100 + 1 + 10, 0)]


def test_a_server_of_a_cpu_does_one_thing_at_a_time() -> None:
    """With one process for all, whoever pulls waits for whoever pushes: cores for everybody, none overlaps."""
    made = crew(2, 1, compute=10, overlap=False, **SERVER)
    acts = list(made.together(staleness=0))
    # Worker 0 pulls to 100, computes to 110, waits for worker 1's pull, pushes from 200 to 300, adds to 301; meanwhile
    # worker 1 has come: its push begins at 300, worker 0's sum at 400, worker 1's at 401.
    assert only(acts, Update) == [(412, 0)]


def test_asynchronous_server() -> None:
    """Whoever has pushed pulls again; the other's push lies in between, so that each is late by one."""
    acts = list(crew(2, 2, **SERVER).free())
    assert only(acts, Push) == [(1210, 0, 0), (1310, 1, 1), (2420, 0, 1), (2520, 1, 1)]
    assert [(act.time, act.worker, act.version) for act in only(acts, Gradient)] == [
        (0, 0, 0),
        (100, 1, 0),
        (1210, 0, 1),
        (1310, 1, 2),
    ]


def test_servers_share_the_update() -> None:
    made = crew(1, 1, **{**SERVER, "servers": 2, "update": 1000, "add": 10, "held": 50})
    assert only(list(made.together(staleness=0)), Update) == [(100 + 1000 + 100 + 5 + 500, 0)]


def test_replicas_in_step() -> None:
    """Compute 1000, all add up 100, each applies 10."""
    made = crew(3, 2, reduce=100, apply=10)
    acts = list(made.together(staleness=0))
    assert only(acts, Update) == [(1100, 0), (2210, 1)]
    assert [act.time for act in only(acts, Gradient)] == [0, 0, 0, 1100, 1100, 1100]
    assert made.now == 2220


def test_a_slow_worker_and_three_kinds_of_waiting() -> None:
    """Rank 1 of 4 takes 3000, the others 1000, for 12 batches; nothing else takes time.

    sync     12 · 3000
    stale    as the slowest worker, who is never waited for long enough to stop: 12 · 3000
    async    48 parts, 10 in 3000: the last ones are handed out at 14000
    """
    slow = {"fault": Fault(rank=1, rank_factor=3.0)}
    for staleness in (0, 4):
        made = crew(4, 12, **slow)
        list(made.together(staleness))
        assert made.now == 36_000
    made = crew(4, 12, servers=1, **slow)
    assert len(only(list(made.free()), Push)) == 48
    assert made.now == 15_000


def test_stale_workers_go_ahead_and_no_further() -> None:
    """Worker 0 takes 1000, worker 1 takes 3000, two steps ahead are allowed."""
    acts = list(crew(2, 5, fault=Fault(rank=1, rank_factor=3.0)).together(staleness=2))
    first = [(act.time, act.batch, act.version) for act in only(acts, Gradient) if act.worker == 0]
    assert first == [(0, 0, 0), (1000, 1, 0), (2000, 2, 0), (3000, 3, 1), (6000, 4, 2)]


def test_the_last_of_stale_workers_finds_what_all_have_published() -> None:
    """Worker 1 takes 1000 more from the first step on: worker 0 computes with weights that lack its own newest."""
    acts = list(crew(2, 3, fault=Fault(rank=1, rank_factor=2.0)).together(staleness=2))
    lacks = {
        worker: [act.batch - act.version for act in only(acts, Gradient) if act.worker == worker] for worker in (0, 1)
    }
    assert lacks == {0: [0, 1, 1], 1: [0, 0, 0]}


def test_random_delays_are_absorbed_by_staleness() -> None:
    """Where another worker is slow each time, those who wait at each step wait more often."""
    delays = {"fault": Fault(share=0.1, step_factor=10.0), "seed": 3}
    times = []
    for staleness in (0, 4):
        made = crew(4, 200, **delays)
        list(made.together(staleness))
        times.append(made.now)
    free = crew(4, 200, servers=1, **delays)
    list(free.free())
    assert times[0] > 1.2 * times[1] > 1.2 * free.now


def test_who_is_slowed_leaves_the_core_to_others() -> None:
    """One core, two workers: both compute to 2000; then worker 1 sleeps twice as long as it has just taken."""
    made = crew(2, 1, cores=1, fault=Fault(rank=1, rank_factor=3.0))
    acts = list(made.together(staleness=0))
    assert only(acts, Update) == [(6000, 0)]
    assert made.busy == 4000


def test_workers_of_uneven_speed() -> None:
    made = crew(4, 1, servers=1, speeds=(1.0, 0.5))
    assert [(act.time, act.worker) for act in only(list(made.free()), Push)] == [
        (1000, 0),
        (1000, 2),
        (2000, 1),
        (2000, 3),
    ]


def test_local_steps() -> None:
    """Compute 1000 and update 10 each; averaged (100) after step 0, and then after each second step."""
    made = crew(2, 5, update=10, reduce=100)
    acts = list(made.local(every=2, after=1, first=0))
    assert [act.time for act in only(acts, Average)] == [1110, 3230, 5350]
    assert [act.time for act in only(acts, Step) if act.worker == 0] == [1010, 2120, 3130, 4240, 5250]


def test_averaging_goes_on_over_epochs() -> None:
    made = crew(2, 2)
    assert len(only(list(made.local(every=4, after=0, first=0)), Average)) == 0
    made = crew(2, 2)
    assert [act.time for act in only(list(made.local(every=4, after=0, first=2)), Average)] == [2000]


def test_gossip() -> None:
    """On a ring of three each meets the next one first, then the one before; parts go to whoever comes."""
    made = crew(3, 2, update=10, message=100, fault=Fault(rank=2, rank_factor=3.0))
    acts = list(made.gossip("ring", seed=0))
    assert only(acts, Meet) == [(1110, 0, 1), (1110, 1, 2), (2220, 0, 2), (2220, 1, 0), (3110, 2, 0), (3330, 0, 1)]
    assert [(act.batch, act.part) for act in only(acts, Step) if act.worker == 0] == [(0, 0), (1, 0), (1, 2)]


def test_a_part_without_samples_is_pushed_but_not_learned_from_alone() -> None:
    pace, parts = WorkerTiming(3, {0: 0, SIZE: 1000}, servers=1), [[SIZE] * 3, [SIZE, SIZE, 0]]
    assert len(only(list(Workers(pace, parts, [0] * 3).free()), Push)) == 6
    assert len(only(list(Workers(pace, parts, [0] * 3).together(0)), Update)) == 2
    assert len(only(list(Workers(pace, parts, [0] * 3).local(1, 0, 0)), Step)) == 6
    assert len(only(list(Workers(pace, parts, [0] * 3).gossip("ring", 0)), Step)) == 5


def test_steps_are_counted_on() -> None:
    steps = [0, 0]
    for _ in range(2):
        list(Workers(WorkerTiming(2, {SIZE: 1}), [[SIZE] * 2] * 3, steps).together(0))
    assert steps == [6, 6]


@settings(deadline=None, max_examples=60)
@given(
    workers=st.integers(1, 5),
    batches=st.integers(1, 12),
    staleness=st.integers(0, 4),
    servers=st.integers(0, 2),
    cores=st.sampled_from([None, 1, 2]),
    times=st.lists(st.sampled_from([0, 1, 10, 100, 1000]), min_size=6, max_size=6),
    overlap=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_bound_holds_whatever_things_take(
    workers, batches, staleness, servers, cores, times, overlap, seed
) -> None:
    names = ("update", "message", "add", "publish", "reduce", "apply")
    values: dict[str, Any] = dict(zip(names, times, strict=True))
    values |= {"held": values["message"] // 2, "servers": servers, "cores": cores, "overlap": overlap}
    values |= {"jitter": 0.5, "fault": Fault(share=0.3, step_factor=10.0), "seed": seed}
    acts = list(crew(workers, batches, **values).together(staleness))
    assert [act.batch for act in only(acts, Update)] == list(range(batches))
    taken = only(acts, Gradient)
    assert sorted((act.batch, act.part) for act in taken) == [(b, w) for b in range(batches) for w in range(workers)]
    assert all(act.worker == act.part and 0 <= act.batch - act.version <= staleness for act in taken)
    assert [act.time for act in acts] == sorted(act.time for act in acts)
    # What an update needs was computed before it.
    for number, act in enumerate(acts):
        if isinstance(act, Update):
            before = [each for each in acts[:number] if isinstance(each, Gradient) and each.batch == act.batch]
            assert len(before) == workers


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_stream(seed: int) -> None:
    values: dict[str, Any] = {"jitter": 0.3, "seed": seed, "fault": Fault(share=0.2, step_factor=5.0), **SERVER}
    one, two = (list(crew(4, 20, **values).free()) for _ in range(2))
    assert one == two
    assert one != list(crew(4, 20, **{**values, "seed": seed + 7}).free())
