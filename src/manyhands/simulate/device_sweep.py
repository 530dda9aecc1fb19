"""Device sweep: the predicted step of a plan over growing numbers of devices."""

from collections.abc import Sequence
from dataclasses import replace

from manyhands.errors import PlanError
from manyhands.plan.plan import Plan
from manyhands.simulate.simulator import Predicts, Row

FOLLOW = ("ddp", "data", "tensor", "pipeline", "owt")  # have a number that a number of devices can take the place of


def scaled(plan: Plan, devices: int) -> Plan:
    """The same plan with its one degree set to a number of devices."""
    (axis, *others) = plan.axes
    if others or plan.layers or axis.name not in FOLLOW:
        raise PlanError(
            f"--sweep devices with plan {plan.name}: it needs one degree that can follow the number of devices; "
            f"use {', '.join(f'{name}:1' for name in FOLLOW)}"
        )
    return replace(plan, axes=(replace(axis, degree=devices),))


def sweep(simulator: "Predicts", plan: Plan, devices: Sequence[int], batch: int, per_device: bool) -> list[Row]:
    """A row for each number of devices, of which the plan's degree follows; what cannot be is told in its row."""
    rows: list[Row] = []
    reasons: list[PlanError] = []
    for number, each in [(number, scaled(plan, number)) for number in devices]:
        try:
            rows.append({**simulator.predict(each, batch * number if per_device else batch).to_json(), "failed": None})
        except PlanError as error:
            reasons.append(error)
            rows.append({"plan": str(each), "devices": number, "failed": str(error)})
    if len(reasons) == len(rows):
        raise reasons[0]
    return rows
