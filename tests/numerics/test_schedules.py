"""Every schedule of a pipeline, with and without recomputed stages, trains what one device trains."""

from typing import Any

import pytest

from manyhands.plan.pipeline_schedule import SCHEDULES

CASE = "numerics.split_cases:same_as_one_device"
MODELS = ("convnet", "transformer")  # whose samples do not depend on each other
MORE = [pytest.param(model, marks=pytest.mark.long) for model in ("mlp", "text", "lstm")]
AXES = ("pipeline:3", pytest.param("pipeline:4", marks=pytest.mark.long), "data:2,pipeline:2")


@pytest.mark.parametrize("recompute", ["off", "on"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("model", [*MODELS, *MORE])
def test_two_stages(pools: Any, model: str, schedule: str, recompute: str) -> None:
    plan = f"pipeline:2,microbatches=5,schedule={schedule},recompute={recompute}"
    deep = {"model__depth": 4} if model == "mlp" else {}  # two stages on each rank need four layers
    pools("gloo").run(CASE, "gloo", 2, model, "fp64", plan, deep)


@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("axes", [*AXES, pytest.param("tensor:2,pipeline:2", marks=pytest.mark.long)])
def test_more_ranks(pools: Any, axes: str, schedule: str) -> None:
    world = 3 if axes == "pipeline:3" else 4
    pools("gloo").run(CASE, "gloo", world, "transformer", "fp64", f"{axes},microbatches=4,schedule={schedule}", {})


def test_passes_that_stop_while_training_do_not_while_scoring(pools: Any) -> None:
    plan = "pipeline:2,microbatches=4,schedule=interleaved"
    pools("gloo").run("numerics.split_cases:scores_are_told", "gloo", 2, "transformer", plan)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["shm", "mpi"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_other_backends(pools: Any, schedule: str, backend: str) -> None:
    plan = f"pipeline:2,microbatches=4,schedule={schedule}"
    pools(backend).run(CASE, backend, 2, "convnet", "fp64", plan, {})


@pytest.mark.parametrize("recompute", [pytest.param("off", marks=pytest.mark.long), "on"])
@pytest.mark.parametrize(
    "schedule", [pytest.param(each, marks=[pytest.mark.long] * (each in ("gpipe", "zerobubble"))) for each in SCHEDULES]
)
@pytest.mark.parametrize("model", ["resnet18", pytest.param("alexnet", marks=pytest.mark.long)])
def test_batch_norms_and_shortcuts(pools: Any, model: str, schedule: str, recompute: str) -> None:
    """A batch norm sees micro-batches as one device that accumulates sees them, and averages them once."""
    plan = f"data:2,pipeline:2,schedule={schedule},recompute={recompute}"
    pools("gloo").run(CASE, "gloo", 4, model, "fp64", plan, {"train__accumulate": 3})


@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_single_precision(pools: Any, schedule: str) -> None:
    pools("gloo").run(CASE, "gloo", 2, "convnet", "fp32", f"pipeline:2,microbatches=4,schedule={schedule}", {})
