"""Explained: why a plan takes as long as it is predicted to, layer by layer and in words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from manyhands.graph.graph import Layer
from manyhands.plan.presets import stages_of
from manyhands.plan.split import Split
from manyhands.runs.simulated import GB, MB, Prediction
from manyhands.simulate import reductions
from manyhands.simulate.board import BACKWARD, FORWARD
from manyhands.simulate.result import Result
from manyhands.simulate.simulation import Simulation

MOST_STAGES = 8  # that are told one by one
NOTABLE = 0.005  # of a step: what is saved or lost above this is told
BY = {"sample": "by sample", "parameter": "by parameter", "reduction": "by reduction"}


@dataclass(frozen=True)
class Row:
    """One layer: its passes and transfers in a step, on the device that takes longest."""

    layer: str
    operation: str
    short: str  # the operation for which it is named, and how many go with it
    split: str
    devices: tuple[int, ...]
    forward_ms: float
    backward_ms: float
    transfer_ms: float
    saves_ms: float | None  # against this layer by sample over the same devices; None where it cannot be cut so
    memory_mb: float  # of one part

    @property
    def places(self) -> str:
        return numbers(self.devices)

    def to_json(self) -> dict[str, Any]:
        told = asdict(self)
        del told["short"]
        return {**told, "devices": list(self.devices)}


def rows(prediction: Prediction) -> list[Row]:
    """A row for each layer."""
    result, splits = prediction.result, prediction.splits
    problem, board = result.simulation.problem, result.simulation.board
    micro = problem.beat.shape[1]
    saved = _saved(prediction)
    found = []
    for number, (layer, split) in enumerate(zip(result.graph.layers, splits, strict=True)):
        k, p, r = problem.degree[[board.sample[number], board.parameter[number], board.reduction[number]]]
        backward = int(problem.backward[number, k, p, r]) if result.graph.learns[number] else 0
        found.append(
            Row(
                layer=layer.name,
                operation=layer.operation,
                short=_short(layer),
                split=str(split),
                devices=split.devices,
                forward_ms=micro * int(problem.forward[number, k, p, r]) / 1e6,
                backward_ms=micro * backward / 1e6,
                transfer_ms=transfer_ns(result, number) / 1e6,
                saves_ms=None if (gain := saved[number]) is None else gain / 1e6,
                memory_mb=int(problem.memory[number, k, p, r]) / MB,
            )
        )
    return found


def _short(layer: Layer) -> str:
    chief = next((each.operation for each in layer.members if each.name == layer.name), layer.operation)
    return f"{chief} +{len(layer.members) - 1}" if layer.members else chief


def _saved(prediction: Prediction) -> list[int | None]:
    """What the step would take longer if a layer were split by sample over its devices, in nanoseconds."""
    result, splits = prediction.result, prediction.splits
    problem = result.simulation.problem
    trial = Simulation(problem, splits)  # the result keeps its own
    found: list[int | None] = []
    for number, split in enumerate(splits):
        if split.sample == split.parts:
            found.append(0)
        elif split.parts > result.batch // problem.beat.shape[1] or problem.degree[split.parts] < 0:
            found.append(None)
        else:
            found.append(trial.change({number: Split(sample=split.parts, devices=split.devices)}) - result.step_ns)
            trial.change({number: split})
    return found


def transfer_ns(result: Result, number: int) -> int:
    """How long a layer's transfers take in a step, waiting apart: what it gets in either pass, and what its parts add
    up."""
    problem, board = result.simulation.problem, result.simulation.board
    micro = problem.beat.shape[1]
    whole = 0
    for direction, edges in ((FORWARD, problem.into[number]), (BACKWARD, problem.out[number])):
        for edge in edges:
            if edge >= 0 and (direction == FORWARD or problem.back[edge]):
                buffer = board.edge[edge]
                moves = board.move[buffer, edge, direction, : board.components[buffer, edge]]
                whole += micro * int(moves.max())  # components move at once
    passes = (FORWARD, BACKWARD) if result.graph.learns[number] else (FORWARD,)
    summed = [reductions.within(problem, board, number, direction) for direction in passes]
    summed = [*summed * micro, reductions.gradients(problem, board, number)]
    return whole + sum(max(each.values(), default=0) for each in summed)


def shares(result: Result) -> dict[str, float]:
    """What all devices' time goes to, as fractions that add up to one."""
    total = result.step_ns * len(result.busy_ns)
    spent = {"forward": 0, "backward": 0, "update": 0}
    for event in result.computing:
        spent[event.category] += event.end_ns - event.start_ns
    spent["transfers"] = sum(result.exposed_by_device)
    found = {name: each / total for name, each in spent.items()}
    return {**found, "idle": max(1 - sum(found.values()), 0.0)}


def narrative(prediction: Prediction, model: str, told: Sequence[Row]) -> str:
    """One paragraph."""
    sentences = [_what(prediction, model), _how(prediction), _where(prediction.result), _room(prediction)]
    return " ".join([*filter(None, sentences), *_worth(prediction, told)])


def _what(prediction: Prediction, model: str) -> str:
    result, devices = prediction.result, prediction.cluster.devices
    chip = prediction.cluster.accelerator.name
    many = f"{devices} devices ({chip} each)" if devices > 1 else f"one device ({chip})"
    against = (
        f", {prediction.speedup:.2f} times what one device reaches with {prediction.alone.batch:,} of them"
        if devices > 1
        else ""
    )
    own = ", with splits of their own for some layers," if prediction.plan.layers else ""
    return (
        f"Plan {prediction.plan.name}{own} trains {model} on {many}: a step of {result.batch:,} samples takes "
        f"{result.step_ms:,.2f} ms, {result.samples_per_s:,.0f} samples a second{against}."
    )


def _how(prediction: Prediction) -> str:
    """What is split how."""
    count = Counter(map(_words, prediction.splits))
    if len(count) == 1:
        text = f"Every layer is {next(iter(count))}"
    else:
        listed = [f"{number} {'is' if number == 1 else 'are'} {words}" for words, number in count.most_common()]
        text = f"Of {len(prediction.splits)} layers {', '.join(listed[:-1])} and {listed[-1]}"
    stages = stages_of(prediction.splits)
    if len({stage.devices for stage in stages}) == 1:
        return f"{text}."
    layers = prediction.result.graph.layers
    told = [
        f"{layers[stage.layers[0]].name} to {layers[stage.layers[-1]].name} on {numbers(stage.devices)}"
        if len(stage.layers) > 1
        else f"{layers[stage.layers[0]].name} on {numbers(stage.devices)}"
        for stage in stages[:MOST_STAGES]
    ]
    more = f" and {len(stages) - MOST_STAGES} more" if len(stages) > MOST_STAGES else ""
    micro = prediction.result.simulation.problem.beat.shape[1]
    parts = f", with {micro} micro-batches" if micro > 1 else ""
    return f"{text}; devices have {'; '.join(told)}{more}{parts}."


def _words(split: Split) -> str:
    cuts = [f"{BY[name]} into {degree}" for name, degree in split.degrees.items() if name in BY and degree > 1]
    text = "split " + " and ".join(cuts) if cuts else "kept whole"
    return f"{text}, by {split.copies} devices alike" if split.copies > 1 else text


def numbers(devices: Sequence[int]) -> str:
    """`0-3` for neighbours, else each.

    >>> numbers((0, 1, 2, 3)), numbers((2,)), numbers((0, 2))
    ('0-3', '2', '0,2')
    """
    first, last = devices[0], devices[-1]
    if len(devices) > 1 and list(devices) == list(range(first, last + 1)):
        return f"{first}-{last}"
    return ",".join(map(str, devices))


def _where(result: Result) -> str:
    """Where the time goes."""
    part = {name: f"{100 * share:.1f} %" for name, share in shares(result).items()}
    return (
        f"Of the devices' time {part['forward']} goes into the forward pass, {part['backward']} into the backward "
        f"pass, {part['update']} into the update of weights, {part['transfers']} into waiting for transfers; "
        f"for {part['idle']} they are idle otherwise."
    )


def _room(prediction: Prediction) -> str:
    most, has = max(prediction.result.memory_bytes), prediction.cluster.accelerator.memory_bytes
    return f"The fullest device needs {most / GB:.2f} of its {has / GB:.4g} GB."


def _worth(prediction: Prediction, told: Sequence[Row]) -> list[str]:
    """The layer whose split saves most, and the one whose split costs most, against data parallelism."""
    known = [(row.saves_ms, row) for row in told if row.saves_ms]
    sentences = []
    for verb, (saved, row) in (
        ("saves", max(known, default=(0.0, None), key=lambda each: each[0])),
        ("costs", min(known, default=(0.0, None), key=lambda each: each[0])),
    ):
        gain = saved if verb == "saves" else -saved
        if row is not None and gain > NOTABLE * prediction.result.step_ms:
            sentences.append(
                f"Against data parallelism over the same devices {row.layer} ({row.split}) {verb} {gain:,.2f} ms."
            )
    return sentences
