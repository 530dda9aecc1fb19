"""train.batch_size=auto: the largest batch that pays, from speeds that are told."""

from typing import Any

import pytest

from manyhands.config import Config, from_table, with_settings, with_values
from manyhands.errors import ConfigError, RunError
from manyhands.plan.plan import Plan, to_table
from manyhands.plan.spec import parse
from manyhands.tune import critical_batch, throughput
from manyhands.tune.auto_batch_size import pick
from manyhands.tune.child_process import Reply

AUTO = with_settings(Config(), ["train.batch_size=auto"])


class Children:
    """Stands in for the processes: samples a second by batch size; a size that is not there does not run."""

    def __init__(self, fast: dict[int, float], samples: int = 100_000) -> None:
        self.fast, self.samples = fast, samples
        self.asked: list[int] = []

    def __call__(self, work: str, config: Config, plan: Plan, *_: Any, **__: Any) -> Reply:
        size = config.train.batch_size
        self.asked.append(size)
        if size not in self.fast:
            return Reply(None, "can't allocate memory", 1)
        return Reply(
            {
                "step_ms": 1000 * size / self.fast[size], "samples_per_s": self.fast[size], "memory_mb": 1.0,
                "plan": to_table(plan), "lr": config.optim.lr or 0.001, "samples": self.samples, "validation": 10,
            }
        )  # fmt: skip


def picked(monkeypatch: pytest.MonkeyPatch, children: Children, config: Config = AUTO) -> tuple[Config, dict[str, Any]]:
    monkeypatch.setattr(throughput, "ask", children)
    return pick(config, parse("serial,device=cpu"))


def test_the_knee(monkeypatch: pytest.MonkeyPatch) -> None:
    children = Children({32: 1000, 64: 2000, 128: 3900, 256: 4000, 512: 4010, 1024: 9000})
    config, told = picked(monkeypatch, children)
    assert children.asked == [32, 64, 128, 256, 512]  # two that gain nothing are enough
    assert (config.train.batch_size, config.train.batch_auto) == (128, False)
    assert config.optim.lr == pytest.approx(0.001 * 0.5**0.5)
    assert "batch 128: 3,900 samples/s of at most 4,010; larger ones are hardly faster" in told["why"]
    assert "0.000707107 is 0.001, that for 256, grown with the square root" in told["why"]
    assert [row["batch_size"] for row in told["table"]] == children.asked


def test_memory_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config, told = picked(monkeypatch, Children({32: 1000, 64: 2000}))
    assert config.train.batch_size == 64
    assert "128 does not run: can't allocate memory" in told["why"]


def test_an_epoch_keeps_some_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    children = Children({32: 1000, 64: 2000, 128: 4000, 256: 8000}, samples=1100)
    config, told = picked(monkeypatch, children)
    assert config.train.batch_size == 128
    assert "with 256 an epoch would have fewer than 8 steps" in told["why"]


def test_not_above_the_critical_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    critical_batch.keep(AUTO, 100.0)
    config, told = picked(monkeypatch, Children({32: 1000, 64: 2000, 128: 4000}))
    assert config.train.batch_size == 64
    assert "the critical batch is 100" in told["why"]


def test_a_rate_that_is_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    given = with_values(AUTO, {"optim.lr": 0.5})
    config, told = picked(monkeypatch, Children({32: 1000}), given)
    assert config.optim.lr == 0.5
    assert "0.5 is as given" in told["why"]


def test_a_scaling_that_is_asked_for_is_left_to_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = with_values(AUTO, {"optim.scaling": "linear", "optim.lr": 0.001})
    config, told = picked(monkeypatch, Children({32: 1000, 64: 2000}), asked)
    assert (config.optim.scaling, config.optim.lr) == ("linear", 0.001)
    assert told["lr"] == pytest.approx(0.001 * 64 / 256)
    assert "0.00025 is 0.001, that for 256, grown linearly" in told["why"]


def test_a_model_that_does_not_run_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="allocate"):
        picked(monkeypatch, Children({}))


def test_a_step_that_would_take_too_long_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    children = Children({32: 2, 64: 4})
    config, told = picked(monkeypatch, children)
    assert children.asked == [32]
    assert config.train.batch_size == 32
    assert "64 does not run: a step would take 32 s: not tried" in told["why"]


def test_under_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigError, match="give a number under torchrun"):
        pick(AUTO, parse("serial"))


def test_the_word_in_a_config() -> None:
    assert AUTO.train.batch_auto
    assert from_table({"train": {"batch_size": "auto"}}, "c.toml") == AUTO
    assert from_table(AUTO.to_json(), "run.json") == AUTO
    assert not with_settings(AUTO, ["train.batch_size=64"]).train.batch_auto
