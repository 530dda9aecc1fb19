"""Layer profiler worker: what one process sees of the layers, while others beside it do the same.

For a plan that cuts layers the process goes through them as its ranks will, though it has all of each: what it takes to
know where parts lie is as much as the work of a small layer.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from manyhands.compat import BatchNorm
from manyhands.config import Config, with_values
from manyhands.config import from_table as config_from_table
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.engine.loop.layer_profiler import Notes, Passes, timed_passes
from manyhands.errors import RunError
from manyhands.files import write_json
from manyhands.machine.process_setup import settle
from manyhands.measure.layer_profiler import FAILED
from manyhands.plan.plan import Plan, alone, from_table, waits_in_norms
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.train.job import assemble
from manyhands.train.step_timing import full_batches

LEAST, MOST = 4, 30  # steps that are timed
ENOUGH = 0.7  # seconds of them
WARM = 2

Stretches = list[int]  # of a step, at whose ends ranks wait for each other
Steps = tuple[Passes, int, int, int, list[Stretches]]  # layers, the rest, the update, copying gradients; each step


def take(
    config: Config, plans: Sequence[Plan], sizes: Sequence[int], meet: Callable[[str], None]
) -> list[tuple[Profile, list[list[Stretches]]]]:
    """Every plan at every number of samples, with the times of all its steps; `meet` waits for the other processes."""
    dataset = load(config.data.name, config.data)
    if any(plan.is_model_parallel for plan in plans) and not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    taken = []
    for number, plan in enumerate(plans):
        found = []
        for samples in sizes:
            meet(f"{number}-{samples}")
            found.append(timed(config, plan, dataset, samples))
        layers = {name: tuple(each[0][name] for each in found) for name in found[0][0]}
        rest, update, copy = tuple(each[1] for each in found), found[-1][2], found[-1][3]
        taken.append((Profile(1, tuple(sizes), layers, rest, update, copy), [each[4] for each in found]))
    return taken


def timed(config: Config, plan: Plan, dataset: Dataset, samples: int) -> Steps:
    """Passes of each layer, the rest of a step, and the update: medians over some steps; and each step itself."""
    waits, plan = waits_in_norms(plan), alone(plan)
    config = with_values(config, {"train.batch_size": samples, "train.grow": None})
    context, steps, begun = assemble(config, plan, dataset, cuts=True).context, [], time.perf_counter()
    norms = {name for name, each in context.model.named_modules() if isinstance(each, BatchNorm)} if waits else set()
    batches = full_batches(context.feed, samples)
    with Notes(context.model, context.device) as notes:
        for number in range(WARM + MOST):
            if number == WARM:
                begun = time.perf_counter()
            if number >= WARM + LEAST and time.perf_counter() - begun > ENOUGH:
                break
            start = time.perf_counter_ns()
            batch = next(batches)
            context.optimizer.zero_grad(set_to_none=True)
            context.strategy.given(batch)
            layers = timed_passes(context, batch, notes, context.strategy.forward)
            turned = time.perf_counter_ns()
            context.strategy.update()
            updated = time.perf_counter_ns()
            spent = sum(one + two for one, two in layers.values())
            stretches = in_stretches(layers, norms, updated - start - spent)
            steps.append((layers, turned - start - spent, updated - turned, copied(context.model), stretches))
    steps = steps[WARM:]
    middle = {
        name: (median([each[0][name][0] for each in steps]), median([each[0][name][1] for each in steps]))
        for name in steps[0][0]
    }
    rest, update, copy, stretched = list(zip(*steps, strict=True))[1:]
    return middle, median(rest), median(update), median(copy), list(stretched)


def in_stretches(layers: Passes, norms: Collection[str], rest: int) -> Stretches:
    """A step, cut where ranks wait for each other: in batch norms, which they do together, and at its end."""
    found = [0]
    forward = [(name, one) for name, (one, _) in layers.items()]
    backward = [(name, two) for name, (_, two) in reversed(layers.items())]
    for name, taken in forward + backward:
        found[-1] += taken
        if name.partition("@")[0] in norms:
            found.append(0)
    found[-1] += rest
    return found


def copied(model: nn.Module) -> int:
    """Nanoseconds in which the gradients go to another place in memory."""
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    places = [torch.empty_like(each) for each in gradients]
    start = time.perf_counter_ns()
    for place, gradient in zip(places, gradients, strict=True):
        place.copy_(gradient)
    return time.perf_counter_ns() - start


def median(values: Sequence[int]) -> int:
    return round(statistics.median(values))


WAIT = 120.0  # seconds for the other processes to come as far


def main(folder: Path, rank: int) -> None:
    """Settle, and only then import torch; time every plan beside the other processes."""
    order = json.loads((folder / "order.json").read_text())
    plans = [from_table(each, "order.json") for each in order["plans"]]
    settle(threads=plans[0].threads, cores=order["cores"][rank], allocator=plans[0].allocator or "default")
    from manyhands.measure.layer_profiler_worker import take

    config = config_from_table(order["config"], "order.json")
    taken = take(config, plans, order["samples"], lambda what: _meet(folder, what, rank, len(order["cores"])))
    write_json(folder / f"{rank}.json", [(profile.to_json(), steps) for profile, steps in taken])


def _meet(folder: Path, what: str, rank: int, world: int) -> None:
    """Begin together: a process that times alone has the caches for itself."""
    (folder / f"{what}.{rank}").touch()
    deadline = time.monotonic() + WAIT
    while not all((folder / f"{what}.{other}").exists() for other in range(world)):
        if (folder / FAILED).exists() or time.monotonic() > deadline:
            raise RunError("the other processes did not come")
        time.sleep(0.002)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
