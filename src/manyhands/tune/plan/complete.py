"""Complete: what a plan that shards layers leaves open, decided before the run's folder is made."""

from manyhands.comm.ranks.rank_info import place
from manyhands.config import Config
from manyhands.machine.detect import detect
from manyhands.machine.machine import Machine
from manyhands.plan.plan import Plan
from manyhands.train.plan_constraints import resolve


def completed(plan: Plan, config: Config, machine: Machine | None = None) -> Plan:
    """The plan with its micro-batches and stages, where it shards layers; every other plan as it is.

    `machine` as it was before this process was pinned.
    """
    if not plan.is_model_parallel or config.train.batch_auto:
        return plan
    from manyhands.tune.plan.pipeline_balance import settle_cut  # torch is for those plans alone here

    here = place()
    plan = resolve(plan, config, machine or detect(), here)
    return settle_cut(plan, config, one_host=here is None or here.local_world == here.world)
