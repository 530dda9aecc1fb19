"""Loader workers: the number of loader processes that makes an epoch shortest."""

from typing import Any

from manyhands.config import Config, with_values
from manyhands.errors import PlanError
from manyhands.plan.plan import Plan
from manyhands.progress import say
from manyhands.tune.child_process import ask, settled


def tune(config: Config, plan: Plan) -> dict[str, Any]:
    """Measured for a plan that the usual loader feeds."""
    if not plan.is_baseline and plan.feed != "loader":
        raise PlanError(f"plan {plan} has no loader processes: use plain, ddp:N or say feed=loader")
    if plan.workers is not None:
        raise PlanError(f"plan option workers={plan.workers} is what is to be found: leave it out")
    ready = settled(with_values(config, {"loader.workers": "auto"}), plan)
    say("measuring steps with the loading in them")
    found = ask("loaders", config, ready).known()
    batch = config.train.batch_size
    return {"model": config.model.name, "data": config.data.name, "batch_size": batch, **found}
