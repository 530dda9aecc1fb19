"""Batches that grow: which size each epoch has, and what cannot be meant."""

import pytest

from manyhands.errors import ConfigError
from manyhands.optim.batch_schedule import parse, sizes


@pytest.mark.parametrize(
    ("text", "epochs", "wanted"),
    [
        (None, 3, [64]),
        ("0.5:2,0.75:4", 8, [64, 64, 64, 64, 128, 128, 512, 512]),
        ("0.5:2", 3, [64, 64, 128]),  # due in the middle of the second epoch: it comes with the third
        ("0.9:2", 3, [64, 64, 64]),
        ("0.1:2,0.2:2", 2, [64, 256]),
        ("0.3333333333333333:3", 3, [64, 192, 192]),
    ],
)
def test_sizes(text: str | None, epochs: int, wanted: list[int]) -> None:
    assert sizes(64, parse(text), epochs) == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2", "'2' is not SHARE:TIMES"),
        ("0.5:2,", "'' is not SHARE:TIMES"),
        ("0.5:1.5", "'0.5:1.5' is not SHARE:TIMES"),
        ("half:2", "'half:2' is not"),
        ("0:2", "shares must rise and lie between 0 and 1"),
        ("1:2", "shares must rise"),
        ("nan:2", "shares must rise"),
        ("0.5:2,0.5:2", "shares must rise"),
        ("0.75:2,0.5:2", "shares must rise"),
        ("0.5:1", "at least 2 times larger"),
    ],
)
def test_what_cannot_be_meant(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    said = str(caught.value)
    assert f"train.grow={text}: " in said
    assert told in said
    assert "write for example 0.5:2" in said
