"""Narrative: a predicted step in sentences: what takes the time, what waits for what, what would help."""

from collections import Counter
from collections.abc import Sequence

from manyhands.plan.sharding import Split
from manyhands.plan.stages import stages_of
from manyhands.simulate.layer_report import Row, numbers, shares
from manyhands.simulate.simulator import GB, Prediction
from manyhands.simulate.step.result import Result

MOST_STAGES = 8  # that are told one by one
NOTABLE = 0.005  # of a step: what is saved or lost above this is told
BY = {"sample": "by sample", "parameter": "by parameter", "reduction": "by reduction"}


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
