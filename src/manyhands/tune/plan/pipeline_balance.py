"""Pipeline balance: a plan that cuts layers, checked against the model and completed before any process starts."""

from dataclasses import replace

from manyhands.comm.ranks.stopped import MEASURING, ended_when_stopped
from manyhands.config import Config
from manyhands.data.load import load
from manyhands.graph.graph import Graph
from manyhands.plan.layer_rules import NamedSplit
from manyhands.plan.plan import Plan
from manyhands.plan.resolve import splits_of
from manyhands.progress import say
from manyhands.simulate.simulator import micro_batches
from manyhands.train.checks.sample_mixing import has_batch_norm, mixes_samples
from manyhands.tune.plan.local_predictor import LocalPredictor


def settle_cut(plan: Plan, config: Config, *, one_host: bool) -> Plan:
    """The plan, if the model can be cut so; with stages of a pipeline that take equally long, as was measured.

    Over several hosts, which this one cannot time, and on GPUs stages are balanced by their floating-point operations.
    """
    here, batch = LocalPredictor.of(config), config.train.batch_size
    if any(axis.name == "pipeline" for axis in plan.axes):
        plan = _with_whole_batches(plan, config, here.graph)
    numbers = micro_batches(plan, here.graph, splits_of(plan, here.graph, batch, plan.world), batch)
    stages = next((axis.degree for axis in plan.axes if axis.name == "pipeline"), 1)
    balances = plan.balance != "equal" and not plan.layers
    if stages == 1 or not (balances or plan.microbatches is None):
        return plan
    if not one_host or plan.device == "cuda":
        return plan.with_defaults(microbatches=numbers[-1])
    with ended_when_stopped(MEASURING):
        found = here.predict(plan, batch)
    plan = plan.with_defaults(microbatches=found.plan.microbatches)
    if not balances:
        return plan
    names = [layer.name for layer in here.graph.layers]
    return replace(plan, layers=tuple(NamedSplit(*each) for each in zip(names, found.splits, strict=True)))


def _with_whole_batches(plan: Plan, config: Config, graph: Graph) -> Plan:
    """No micro-batches, unless they are asked for, where they would make a batch's statistics others."""
    if plan.microbatches == 1:
        return plan
    kind = "a batch norm" if has_batch_norm(graph) else "statistics over a batch"
    if not has_batch_norm(graph) and not mixes_samples(config, load(config.data.name, config.data)):
        return plan
    if plan.microbatches is None:
        return plan.with_defaults(microbatches=1)
    say(
        f"model {config.model.name} has {kind}: with microbatches={plan.microbatches} it sees a micro-batch, not "
        f"the batch, as one device does with train.accumulate={plan.microbatches}"
    )
    return plan
