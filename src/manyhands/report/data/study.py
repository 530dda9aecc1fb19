"""Study: what a study.json tells: our rows, the published figures, and whether what the source found holds here."""

from manyhands.stats import Mean, brief, spread
from manyhands.studies.record import MEASURES, Value


def called(measure: str) -> str:
    return MEASURES.get(measure, measure)


def is_share(measure: str) -> bool:
    """Whether it is a fraction of one, told in percent."""
    return "accuracy" in measure


def said(measure: str, value: Value) -> str:
    """A measure with its deviation, in its own unit."""
    if isinstance(value, str):
        return value
    if value is not None and is_share(measure):
        return f"{spread(value, 2, scale=100)} %" if isinstance(value, Mean) else f"{brief(100 * value)} %"
    if isinstance(value, Mean):
        size = abs(value.mean)
        return spread(value, 0 if measure == "samples_per_s" or size >= 1000 else 2 if size >= 1 else 4)
    return brief(value)
