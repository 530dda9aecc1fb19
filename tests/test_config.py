"""Config keys: read as their type, or refused in one line."""

from pathlib import Path

import pytest

from manyhands.config import Config, from_table, keys, read, with_settings
from manyhands.errors import ConfigError


def test_settings_are_read_as_their_type() -> None:
    words = ["model.width=0.5", "train.max_steps=10", "model.freeze=a.*,b", "model.batch_norm=on", "data.size=none"]
    config = with_settings(Config(), words)
    assert config.model.width == 0.5
    assert config.train.max_steps == 10
    assert config.model.freeze == ("a.*", "b")
    assert config.model.batch_norm is True
    assert config.data.size is None


@pytest.mark.parametrize("workers", ["4", "auto", "none"])
def test_json_round_trip(workers: str) -> None:
    words = ["optim.lr=0.5", "model.freeze=a,b", "data.augment=flip", f"loader.workers={workers}"]
    config = with_settings(Config(), words)
    assert config.loader.workers == {"4": 4, "auto": "auto", "none": None}[workers]
    assert from_table(config.to_json(), "run.json") == config


def test_toml_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[train]\nepochs = 7\n[optim]\nlr = 1\n")
    config = read(tmp_path / "c.toml")
    assert (config.train.epochs, config.optim.lr) == (7, 1.0)


def test_names_that_the_command_line_promises() -> None:
    promised = """
        model.width model.depth model.dropout model.activation optim.name optim.lr train.max_steps train.restarts
        data.size data.target checkpoint.every_steps loader.workers cpu.affinity
        fault.slow_rank fault.slow_steps
    """
    assert set(promised.split()) <= set(keys(Config()))


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("train.epoch=3", "did you mean 'train.epochs'"),
        ("train=3", "unknown key 'train'"),
        ("train.epochs", "write key=value"),
        ("train.epochs=many", "a whole number is needed"),
        ("train.epochs=2.5", "a whole number is needed"),
        ("train.epochs=0", "at least 1"),
        ("train.batch_size=0", "at least 1"),
        ("train.clip=-1", "above 0"),
        ("train.grow=2", "train.grow=2: '2' is not SHARE:TIMES; write for example 0.5:2,0.75:2"),
        ("optim.scaling=liner", "did you mean 'linear'"),
        ("optim.base_batch=0", "optim.base_batch=0 cannot be used: it must be at least 1"),
        ("train.label_smoothing=1", "below 1"),
        ("train.timeout=0", "above 0"),
        ("train.timeout=1e300", "at most 1,000,000 s"),
        ("data.validation=1", "below 1"),
        ("train.ema=1", "train.ema=1.0: it must be between 0 and 1"),
        ("train.ema=0", "between 0 and 1"),
        ("train.swa=0", "train.swa=0.0: it must be above 0, at most 1"),
        ("train.swa=1.1", "at most 1"),
        ("loader.workers=some", "loader.workers=some: auto or a whole number, at least 0, is allowed"),
        ("loader.workers=-1", "loader.workers=-1: auto or a whole number"),
        ("loader.workers=1.5", "auto or a whole number"),
        ("model.width=nan", "a number is needed"),
        ("model.batch_norm=maybe", "true or false is needed"),
        ("optim.name=adma", "did you mean 'adam'"),
        ("optim.lr=-1", "above 0"),
        ("optim.schedule=cosin", "did you mean 'cosine'"),
    ],
)
def test_bad_settings(word: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_settings(Config(), [word])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_mean_of_the_weights() -> None:
    with pytest.raises(ConfigError, match=r"train.ema=0.9 and train.swa=0.5: one mean of the weights is kept"):
        with_settings(Config(), ["train.ema=0.9", "train.swa=0.5"])
    assert with_settings(Config(), ["train.swa=1"]).train.swa == 1
