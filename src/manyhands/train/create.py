"""Create: a new run folder, whose run.json is the whole order."""

from pathlib import Path

from manyhands.comm.ranks.rank_info import place
from manyhands.config import Config, located
from manyhands.errors import ConfigError
from manyhands.machine.detect import detect
from manyhands.machine.machine import Machine
from manyhands.plan.plan import Plan, to_table
from manyhands.runs import run_folder
from manyhands.runs.environment import versions
from manyhands.train.checks.source_hash import SOURCE, source_hash
from manyhands.train.plan_constraints import resolve


def begin(
    config: Config, plan: Plan, out: Path | None, command: str = "", machine: Machine | None = None
) -> run_folder.Run:
    """Check what can be checked before any work, and make the run's folder; `machine` as it was before pinning."""
    if config.train.batch_auto:
        raise ConfigError("train.batch_size=auto is for one training, by `manyhands train`: give a number")
    machine = machine or detect()
    plan = resolve(plan, config, machine, place())
    config = located(config)
    label = f"{Path(config.model.name.rpartition(':')[2]).name}-{plan.name.replace(':', '').replace(',', '-')}"
    folder = run_folder.new_folder(out, label)
    return run_folder.create(
        folder,
        {
            "config": config.to_json(),
            "plan": to_table(plan),
            "plan_words": str(plan),
            "machine": machine.to_json(),
            "machine_words": str(machine),
            "versions": versions(),
            "command": command,
            SOURCE: source_hash(config.model.name),
        },
    )
