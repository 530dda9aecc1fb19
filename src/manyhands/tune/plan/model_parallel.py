"""Model parallel: the fastest way to have layers in parts on the ranks of this machine, by simulation.

    owt:N, tensor:N     the presets
    exact               the best split of each layer, where layers form a chain (simulate.search.dynamic_programming)

Pipelines are not among them: layers would have to be timed for every number of micro-batches.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from manyhands.config import Config
from manyhands.errors import PlanError
from manyhands.graph.graph import Graph
from manyhands.machine.link import Link
from manyhands.machine.machine import Machine
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan
from manyhands.plan.resolve import splits_of
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.simulate.from_profile import cut_costs, predicted_cut
from manyhands.simulate.search.dynamic_programming import exact
from manyhands.simulate.search.space import Space
from manyhands.simulate.simulator import Prediction
from manyhands.simulate.step.build import make
from manyhands.simulate.step.task_order import gpipe
from manyhands.train.plan_constraints import resolve
from manyhands.tune.plan.described_machine import MOST_EXACT, named

PRESETS = ("owt", "tensor")


def fastest_cut(
    graph: Graph, by_sample: Plan, profile: Profile, links: tuple[Link, Link], config: Config, machine: Machine
) -> Prediction | None:
    """Of as many ranks as a plan by sample has, with its options; links are those of sums and of messages."""
    made: list[Prediction] = []
    for plan in _plans(graph, by_sample, profile, links, config, machine):
        with suppress(PlanError):  # a preset that the model's layers do not allow
            settled = resolve(plan, config, machine)
            made.append(predicted_cut(graph, settled, profile, links, config, machine))
    return min(made, key=lambda each: each.result.step_ns, default=None)


def _plans(
    graph: Graph, by_sample: Plan, profile: Profile, links: tuple[Link, Link], config: Config, machine: Machine
) -> Iterator[Plan]:
    batch, ranks = config.train.batch_size, by_sample.world
    yield from (replace(by_sample, axes=(Axis(name, ranks),)) for name in PRESETS)
    if ranks > MOST_EXACT:
        return
    costs, cluster = cut_costs(graph, by_sample, profile, links, config, machine)
    try:
        best = exact(make(graph, costs, cluster, batch, gpipe(graph, 1)), Space.of(graph, batch, ranks)).splits
    except PlanError:  # layers that form no chain, or that do not fit
        return
    searched = named(by_sample, splits_of(by_sample, graph, batch, ranks), graph, best)
    if searched.layers:
        yield searched
