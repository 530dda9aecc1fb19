"""The virtual clock: ties in the order asked, one at a time in a line, cores shared fairly; times by hand."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from manyhands.simulate.worker_events import Condition, Cores, Events, Resource, Wait


def run(events: Events) -> None:
    while events.running:
        events.step()


def test_ties_happen_in_the_order_asked() -> None:
    events, seen = Events(), list[str]()
    for name in "abc":
        events.at(10, lambda name=name: seen.append(name))
    events.at(1, lambda: seen.append("first"))
    while events.heap:
        events.step()
    assert seen == ["first", "a", "b", "c"]
    assert events.now == 10


def test_a_line_serves_one_at_a_time_first_come_first_served() -> None:
    events, ends = Events(), dict[str, int]()
    line = Resource(events)

    def customer(name: str, comes: int, takes: int) -> Iterator[Wait]:
        yield events.after(comes)
        yield line.enter
        yield events.after(takes)
        line.leave()
        ends[name] = events.now

    for name, comes, takes in (("late", 10, 1), ("first", 0, 100), ("second", 1, 1000)):
        events.start(customer(name, comes, takes))
    run(events)
    assert ends == {"first": 100, "second": 1100, "late": 1101}


def test_a_gate_lets_through_whoever_has_what_it_waits_for() -> None:
    events, seen = Events(), list[tuple[int, int]]()
    gate, done = Condition(events), 0

    def waiter(wanted: int) -> Iterator[Wait]:
        yield gate.until(lambda: done >= wanted)
        seen.append((wanted, events.now))

    def worker() -> Iterator[Wait]:
        nonlocal done
        for _ in range(3):
            yield events.after(10)
            done += 1
            gate.open()

    for wanted in (3, 1, 0):
        events.start(waiter(wanted))
    events.start(worker())
    run(events)
    assert seen == [(0, 0), (1, 10), (3, 30)]


def ends_of(cores: int | None, jobs: list[tuple[int, int]]) -> list[int]:
    """When jobs (begin, work) end."""
    events = Events()
    shared, ends = Cores(events, cores), [0] * len(jobs)

    def job(number: int, begin: int, work: int) -> Iterator[Wait]:
        yield events.after(begin)
        yield shared.work(work)
        ends[number] = events.now

    for number, (begin, work) in enumerate(jobs):
        events.start(job(number, begin, work))
    run(events)
    return ends


def test_cores_are_shared_fairly() -> None:
    # One core. Both at half speed until 200, when 100 are done of each; then the long one has it alone.
    assert ends_of(1, [(0, 1000), (0, 100)]) == [1100, 200]
    # Alone until 100; at half speed until 120, when 10 are done of the short one; then alone: 1000 + 10.
    assert ends_of(1, [(0, 1000), (100, 10)]) == [1010, 120]
    # Two cores for three: each at two thirds, so 1000 take 1500.
    assert ends_of(2, [(0, 1000)] * 3) == [1500] * 3
    # Enough cores for all.
    assert ends_of(4, [(0, 1000), (0, 100), (0, 10), (0, 1)]) == [1000, 100, 10, 1]
    assert ends_of(None, [(0, 1000), (0, 100), (0, 10), (0, 1)]) == [1000, 100, 10, 1]


def test_several_that_work_together_each_take_a_core() -> None:
    events = Events()
    shared, ends = Cores(events, 2), list[int]()

    def job(work: int, by: int) -> Iterator[Wait]:
        yield shared.work(work, by)
        ends.append(events.now)

    events.start(job(1000, 2))
    events.start(job(1000, 1))
    run(events)
    assert ends == [1500, 1500]


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8))
def test_no_work_is_lost_and_no_core_is_faster_than_itself(cores: int, jobs: list[tuple[int, int]]) -> None:
    ends = ends_of(cores, jobs)
    assert all(end >= begin + work for end, (begin, work) in zip(ends, jobs, strict=True))
    assert max(ends) <= max(begin for begin, _ in jobs) + sum(work for _, work in jobs) + len(jobs)
    if all(begin == 0 for begin, _ in jobs):
        assert max(ends) * cores >= sum(work for _, work in jobs)
