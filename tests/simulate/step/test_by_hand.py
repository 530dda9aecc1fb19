"""Steps that can be added up by hand: 1 byte a nanosecond, and costs of 1, 10, 100, 1,000 that explain themselves."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from manyhands.errors import MachineError
from manyhands.graph.graph import Graph, Layer
from manyhands.machine.cluster import Cluster, Level
from manyhands.plan.sharding import Split, on
from manyhands.simulate.step.result import Result, predict
from simulate.scenes import BATCH, Known, cluster, graph, layer

Passes = dict[str, tuple[int, int]]


def step(
    what: Graph, splits: Sequence[Split], passes: Passes, where: Cluster, micro: int = 1, **costs: dict[str, int]
) -> Result:
    return predict(what, splits, Known(passes, **costs), where, BATCH, micro)


def computed(result: Result) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Start and end by layer, pass and device; with micro-batches, of the last."""
    return {
        (each.name, each.category, int(each.lane.split()[1])): (each.start_ns, each.end_ns) for each in result.computing
    }


def moved(result: Result, *categories: str) -> set[tuple[str, int, int]]:
    wanted = categories or ("transfer", "collective")
    return {(each.name, each.start_ns, each.end_ns) for each in result.moving if each.category in wanted}


TWO = graph(layer("a", weights=1), layer("b", [0], weights=1))
TIMES = {"a": (10, 100), "b": (1000, 10000)}


def test_two_layers_on_one_device() -> None:
    result = step(TWO, [on(0), on(0)], TIMES, cluster(1))
    assert computed(result) == {
        ("a", "forward", 0): (0, 10),
        ("b", "forward", 0): (10, 1010),
        ("b", "backward", 0): (1010, 11010),
        ("a", "backward", 0): (11010, 11110),
        ("update", "update", 0): (11110, 11112),
    }
    assert moved(result) == set()
    assert result.step_ns == 11112
    assert result.samples_per_s == BATCH / 11112 * 1e9
    assert (result.idle_fraction, result.exposed_ns) == (0, 0)


def test_a_device_that_has_nothing_is_idle() -> None:
    result = step(TWO, [on(0), on(0)], TIMES, cluster(2))
    assert result.busy_ns == [11112, 0]
    assert result.idle_fraction == 0.5


def test_two_devices_move_results_and_gradients_from_one_to_the_other() -> None:
    result = step(TWO, [on(0), on(1)], TIMES, cluster(2))  # 4,000 bytes either way
    assert computed(result) == {
        ("a", "forward", 0): (0, 10),
        ("b", "forward", 1): (4010, 5010),
        ("b", "backward", 1): (5010, 15010),
        ("a", "backward", 0): (19010, 19110),
        ("update", "update", 0): (19110, 19111),
        ("update", "update", 1): (15010, 15011),
    }
    assert moved(result) == {("b", 10, 4010), ("a", 15010, 19010)}
    assert result.exposed_ns == 8000
    assert result.idle_fraction == pytest.approx(1 - 11112 / (2 * 19111))


def test_a_bandwidth_is_in_billions_of_bytes_and_a_latency_in_microseconds() -> None:
    result = step(TWO, [on(0), on(1)], TIMES, cluster(2, Level(1, 2.0, 3.0)))
    assert moved(result) == {("b", 10, 10 + 2000 + 3000), ("a", 16010, 16010 + 2000 + 3000)}


# Of two devices each gives half of its sums away and gets half back: 2 × 1/2 × 4 bytes × weights.
HEAVY = graph(layer("a", weights=500), layer("b", [0], weights=2000))


def test_data_parallel_hides_a_reduction_behind_the_backward_pass() -> None:
    """Backward of b ends at 5505; its 8,000 bytes go until 13505; a's 2,000 wait for them."""
    result = step(HEAVY, [on(0, sample=2)] * 2, TIMES, cluster(2))
    for device in (0, 1):
        assert computed(result)["b", "backward", device] == (505, 5505)
        assert computed(result)["a", "backward", device] == (5505, 5555)
        assert computed(result)["update", "update", device] == (15505, 18005)
    assert result.step_ns == 505 + 5050 + (8000 - 50) + 2000 + 2500
    assert result.exposed_ns == 8000 - 50 + 2000


def test_a_reduction_that_is_over_in_time_costs_nothing() -> None:
    fast = cluster(2, Level(1, 1000.0, 0.0))  # 8 ns and 2 ns
    result = step(HEAVY, [on(0, sample=2)] * 2, TIMES, fast)
    assert result.step_ns == 505 + 5050 + 2 + 2500
    assert result.exposed_ns == 2


def test_late_reductions_begin_when_all_is_computed() -> None:
    result = step(HEAVY, [on(0, sample=2)] * 2, TIMES, cluster(2, late=True))
    assert result.step_ns == 505 + 5050 + 8000 + 2000 + 2500


def test_without_overlap_transfers_hold_the_devices_up() -> None:
    result = step(HEAVY, [on(0, sample=2)] * 2, TIMES, cluster(2, overlap=False))
    assert computed(result)["a", "backward", 0] == (13505, 13555)
    assert result.step_ns == 505 + 5000 + 8000 + 50 + 2000 + 2500


def test_a_measured_reduction_takes_the_place_of_the_links() -> None:
    result = step(HEAVY, [on(0, sample=2)] * 2, TIMES, cluster(2), synced={"a": 70, "b": 30})
    assert result.step_ns == 505 + 5050 + 70 + 2500


def test_three_devices_give_and_take_two_thirds_each_way() -> None:
    one = graph(layer("a", weights=3000))
    result = step(one, [on(0, sample=3)], {"a": (30, 300)}, cluster(3, Level(1, 1.0, 1.0)))
    latency = 4 * 1000  # there and back, each told on twice until all three have it
    assert result.step_ns == 110 + round(2 * 12000 * 2 / 3) + latency + 3000


def test_a_layer_cut_by_parameter_has_less_to_update_and_nothing_to_reduce() -> None:
    result = step(graph(layer("a", weights=1000)), [on(0, parameter=4)], {"a": (40, 400)}, cluster(4))
    assert result.step_ns == 10 + 100 + 250
    assert moved(result) == set()


def test_a_reduction_split_adds_up_its_results() -> None:
    """Both halves of b's inputs are where they are needed; 4,000 bytes of sums go around, then all have them."""
    what = graph(layer("a", weights=1), layer("b", [0], weights=1), layer("c", [1], weights=1))
    passes = {"a": (20, 200), "b": (2000, 20000), "c": (40, 400)}
    result = step(what, [on(0, parameter=2), on(0, reduction=2), on(0, copies=2)], passes, cluster(2))
    for device in (0, 1):
        assert computed(result)["a", "forward", device] == (0, 10)
        assert computed(result)["b", "forward", device] == (10, 1010)
        assert computed(result)["c", "forward", device] == (5010, 5050)
        assert computed(result)["b", "backward", device] == (5450, 15450)
        assert computed(result)["a", "backward", device] == (15450, 15550)
    assert {name for name, _, _ in moved(result)} == {"b"}


def test_a_reduction_split_adds_up_before_pooling() -> None:
    """Of several as one the first makes 16,000 bytes, of which the last leaves 4,000: the former go around."""
    first, last = layer("b", numbers=4000), layer("pool", kind="pool")
    pooled = replace(layer("b", [0], weights=1), members=(first, last))
    passes = {"a": (20, 200), "b": (2000, 20000)}
    result = step(graph(layer("a", weights=1), pooled), [on(0, parameter=2), on(0, reduction=2)], passes, cluster(2))
    assert computed(result)["b", "forward", 0] == (10, 1010)
    assert computed(result)["b", "backward", 0] == (17010, 27010)


def test_the_gradient_of_what_all_had_is_added_up() -> None:
    """b's parts by parameter take all of a, which both devices have: nothing moves forward, sums go back."""
    passes = {"a": (10, 100), "b": (2000, 20000)}
    result = step(TWO, [on(0, copies=2), on(0, parameter=2)], passes, cluster(2))
    assert computed(result)["b", "forward", 1] == (10, 1010)
    assert computed(result)["b", "backward", 1] == (1010, 11010)
    assert computed(result)["a", "backward", 1] == (11010 + 4000, 15110)


def test_from_samples_to_parameters_everyone_gets_the_other_half() -> None:
    passes = {"a": (20, 200), "b": (2000, 20000)}
    result = step(TWO, [on(0, sample=2), on(0, parameter=2)], passes, cluster(2))
    assert computed(result)["b", "forward", 0] == (10 + 2000, 3010)
    assert computed(result)["a", "backward", 0] == (13010 + 2000, 15110)


@pytest.mark.parametrize(("stages", "micro"), [(2, 1), (2, 4), (4, 2), (4, 8)])
def test_a_pipeline_takes_as_many_slots_as_micro_batches_and_further_stages(stages: int, micro: int) -> None:
    """
    stage 0   F1 F2 F3 .  .  .  B1 B2 B3        3 micro-batches over 2 stages: 3 + 2 - 1 slots each way
    stage 1   .  F1 F2 F3 B1 B2 B3 .  .
    """
    names = "abcdefgh"[:stages]
    what = graph(*(layer(name, [number - 1] if number else [], weights=1) for number, name in enumerate(names)))
    passes = dict.fromkeys(names, (1000 * micro, 3000 * micro))
    free = cluster(stages, Level(1, 1e9, 0.0))  # but for the nanosecond that a transfer takes at least
    result = step(what, [on(number) for number in range(stages)], passes, free, micro)
    slots = micro + stages - 1
    assert result.step_ns == slots * (1000 + 3000) + 2 * (stages - 1) + 1
    assert result.busy_ns == [micro * 4000 + 1] * stages


def test_gradients_are_reduced_after_the_last_micro_batch() -> None:
    one = graph(layer("a", weights=1000))
    result = step(one, [on(0, sample=2)], {"a": (80, 800)}, cluster(2), micro=4)
    assert result.step_ns == 40 + 400 + 4000 + 1000
    assert len(moved(result)) == 1


def norm(name: str, after: int, channels: int, *, learns: bool = True) -> Layer:
    held = ((channels,), (channels,)) if learns else ()
    return Layer(name, "norm", "BatchNorm2d", ((BATCH, channels),), (BATCH, channels), held, 1, (after,))


@pytest.mark.parametrize("learns", [True, False])
def test_batch_norms_agree_on_mean_and_variance_in_either_pass(learns: bool) -> None:
    """8 bytes a channel are added up before the results are there, forward and backward."""
    what = graph(layer("a", weights=1), norm("n", 0, 50, learns=learns), layer("c", [1], weights=1))
    passes = {"a": (20, 200), "n": (60, 600), "c": (2000, 20000)}
    result = step(what, [on(0, sample=2)] * 3, passes, cluster(2))
    assert computed(result)["n", "forward", 0] == (10, 40)
    assert computed(result)["c", "forward", 0] == (40 + 400, 1440)
    assert computed(result)["n", "backward", 0] == (11440, 11740)
    assert computed(result)["a", "backward", 0] == (11740 + 400, 12240)
    alone = step(what, [on(0)] * 3, passes, cluster(2))
    assert moved(alone) == set()


def test_a_measured_reduction_is_not_what_batch_norms_tell_each_other() -> None:
    what = graph(layer("a", weights=1), norm("n", 0, 50))
    result = step(what, [on(0, sample=2)] * 2, {"a": (20, 200), "n": (60, 600)}, cluster(2), synced={"n": 7})
    assert computed(result)["n", "backward", 0][0] == 40 + 400


NODES = (Level(1, 1e9, 0.0), Level(2, 1.0, 0.0))  # two devices a node; nothing takes time but the way between nodes


def test_two_transfers_share_a_link_and_the_first_that_is_ready_goes_first() -> None:
    """Device 0 is late: its half, numbered first, waits until the half of device 1 is over."""
    what = graph(layer("busy", kind="other"), layer("a", weights=1), layer("b", [1], weights=1))
    passes = {"busy": (50, 1), "a": (20, 2), "b": (2, 2)}
    splits = [on(0), on(0, sample=2), on(2, sample=2)]
    result = step(what, splits, passes, cluster(4, *NODES))
    assert computed(result)["a", "forward", 0] == (50, 60)
    assert computed(result)["a", "forward", 1] == (0, 10)
    assert {each for each in moved(result, "transfer") if each[0] == "b"} == {("b", 10, 2010), ("b", 2010, 4010)}
    assert computed(result)["b", "forward", 3][0] == 2010
    assert computed(result)["b", "forward", 2][0] == 4010
    apart = step(what, splits, passes, cluster(4))  # ports alone: each goes when it is ready
    assert {each for each in moved(apart, "transfer") if each[0] == "b"} == {("b", 10, 2010), ("b", 60, 2060)}


@pytest.mark.parametrize(("duplex", "takes"), [(True, 2000), (False, 4000)])
def test_a_link_that_is_not_duplex_counts_both_directions(duplex: bool, takes: int) -> None:
    """Half of the results go from node to node each way at once, or one after the other."""
    passes = {"a": (20, 200), "b": (2000, 20000)}
    where = cluster(4, Level(1, 1e9, 0.0), Level(2, 1.0, 0.0, duplex))
    a, b = Split(sample=2, devices=(0, 2)), Split(parameter=2, devices=(0, 2))
    result = step(TWO, [a, b], passes, where)
    assert computed(result)["b", "forward", 0][0] == 10 + takes
    # A reduction over nodes: all of 2 × 1/2 × 8,000 bytes go out and in.
    data = step(HEAVY, [a, a], {"a": (20, 200), "b": (2000, 20000)}, where)
    assert ("b", 11010, 11010 + 4 * takes) in moved(data)


def test_a_port_goes_both_ways() -> None:
    passes = {"a": (20, 200), "b": (2000, 20000)}
    result = step(TWO, [on(0, sample=2), on(0, parameter=2)], passes, cluster(2))
    assert computed(result)["b", "forward", 0][0] == 10 + 2000
    with pytest.raises(MachineError, match="half of the gb_per_s"):
        cluster(2, Level(1, 1.0, 0.0, duplex=False))


def test_a_branch_waits_for_the_slower_of_its_sources() -> None:
    what = graph(
        layer("a", weights=1), layer("b", [0], weights=1), layer("c", [0], weights=1), layer("d", [1, 2], weights=1)
    )
    passes = {"a": (1, 1), "b": (10, 10), "c": (1000, 1000), "d": (100, 100)}
    free = cluster(2, Level(1, 1e9, 0.0))
    result = step(what, [on(0), on(0), on(1), on(0)], passes, free)
    assert computed(result)["c", "forward", 1] == (2, 1002)
    assert computed(result)["d", "forward", 0] == (1003, 1103)
    assert computed(result)["a", "backward", 0] == (1103 + 100 + 1 + 1000 + 1, 2206)


def test_what_does_not_learn_has_no_backward_pass() -> None:
    what = graph(layer("mask", kind="other"), layer("a", [0], weights=1))
    result = step(what, [on(0), on(1)], {"mask": (10, 100), "a": (1000, 10000)}, cluster(2))
    assert ("mask", "backward", 0) not in computed(result)
    assert moved(result) == {("a", 10, 4010)}
    assert result.step_ns == 4010 + 11000 + 1
