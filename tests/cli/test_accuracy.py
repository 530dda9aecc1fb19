"""`manyhands simulate --accuracy`: keys, a table, the same again by seed, and one line for what cannot be."""

from pathlib import Path

import pytest

FEW = ("--set", "data.size=1000", "--set", "data.test_size=300")
ON = ("mlp", "--data", "digits", "--batch-size", "128", "--epochs", "2", "--accuracy", *FEW)
EDGE = (*ON, "--machine", "edge4-1gbe")


@pytest.fixture(autouse=True)
def _kept(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set is made once."""
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))


def test_keys(simulate) -> None:
    found = simulate(*EDGE, "--plan", "server:4+1,consistency=async", "--target", 0.3)
    assert (found["plan"], found["machine"], found["workers"]) == (
        "server:4+1,precision=fp32,consistency=async",
        "edge4-1gbe",
        4,
    )
    assert [set(row) for row in found["epochs"]] == 2 * [
        {"epoch", "virtual_seconds", "epoch_seconds", "val_accuracy", "val_loss", "train_loss"}
    ]
    assert (
        found["virtual_seconds"] == found["epochs"][-1]["virtual_seconds"] > found["epochs"][0]["virtual_seconds"] > 0
    )
    assert 0.3 < found["accuracy"] <= 1
    reached = [row["virtual_seconds"] for row in found["epochs"] if row["val_accuracy"] >= 0.3]
    assert found["time_to_target"] == reached[0]
    late = found["staleness"]
    assert sum(late["histogram"].values()) == 4 * found["steps"]
    assert late["max"] == max(map(int, late["histogram"]))
    assert 0 < late["mean"] <= late["max"]


def test_deterministic_by_seed(simulate) -> None:
    order = (*EDGE, "--plan", "gossip:4,topology=pairs", "--set", "fault.slow_steps=0.1:10x")
    one = simulate(*order, "--seed", 3)
    assert one == simulate(*order, "--seed", 3)
    assert one["accuracy"] != simulate(*order, "--seed", 4)["accuracy"] or one["epochs"] != simulate(*order)["epochs"]


@pytest.mark.long
def test_a_step_in_step_is_the_predicted_one(simulate) -> None:
    """Without faults a synchronous step takes what `simulate` says of it; the last batch of an epoch is smaller."""
    found = simulate(*EDGE, "--plan", "data:4", "--set", "train.max_steps=5")
    told = simulate("mlp", "--data", "digits", "--machine", "edge4-1gbe", "--plan", "data:4", "--batch-size", 128, *FEW)
    assert found["step_ms"] == pytest.approx(told["step_ms"], rel=1e-6)
    assert found["staleness"] == {"mean": 0, "max": 0, "histogram": {"0": 20}}


def test_a_slow_rank_costs_who_waits_for_it(simulate) -> None:
    def seconds(plan: str, *words: str) -> float:
        return simulate(*EDGE, "--plan", plan, *words)["virtual_seconds"]

    slow = ("--set", "fault.slow_rank=1:100x")  # beside a link of 1 Gb/s three times as much computing is nothing
    sync, free = "server:4+1", "server:4+1,consistency=async"
    assert seconds(sync, *slow) / seconds(sync) > 2 * seconds(free, *slow) / seconds(free)


def test_uneven_devices_of_a_machine_file(simulate, tmp_path: Path) -> None:
    machine = tmp_path / "uneven.toml"
    chip = '[accelerator]\nname = "chip"\nmemory_gb = 16\ngb_per_s = 732\ntflop_per_s = { fp32 = 0.001 }\n'
    links = "[[levels]]\ndevices = 1\ngb_per_s = 18\nlatency_us = 0\n"
    times = []
    for speeds in ("[1, 1]", "[1, 0.5]"):
        machine.write_text(f"speeds = {speeds}\n{chip}{links}")
        times.append(simulate(*ON, "--machine", machine, "--plan", "data:2")["virtual_seconds"])
    assert 1.8 < times[1] / times[0] < 2


def test_table(manyhands) -> None:
    said = manyhands("simulate", *EDGE, "--plan", "local:2", "--target", 1.0)
    assert said.code == 0, said.err
    for shown in (
        "local:2,precision=fp32,every=8",
        "virtual s",
        "validation accuracy",
        "seconds to 100 %",
        "not reached",
    ):
        assert shown in said.out


@pytest.mark.parametrize(
    "plan",
    [
        "data:3,consistency=stale",
        "server:2+1,consistency=async",
        "gossip:2",
        pytest.param("local:2", marks=pytest.mark.long),  # links of all sizes are measured
    ],
)
def test_on_this_machine(simulate, plan: str) -> None:
    """From parts and messages that are measured; workers may outnumber the cores."""
    found = simulate(*ON, "--plan", f"{plan},precision=fp32,layout=contiguous", "--set", "train.max_steps=8")
    assert "kernels=own" in found["plan"]
    assert ("staleness=4" in found["plan"]) == plan.endswith("stale")
    assert found["virtual_seconds"] > 0
    assert (0 < found["staleness"]["max"] <= 4) == ("consistency" in plan)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--plan", "tensor:2"], "plan tensor:2 cannot be simulated with --accuracy"),
        (["--plan", "data:2,tensor:2"], "plan data:2,tensor:2 cannot be simulated with --accuracy"),
        (["--plan", "auto"], "plan auto cannot be simulated with --accuracy"),
        (["--plan", "data:2,shard=full"], "shard=full cannot be simulated with --accuracy"),
        (["--plan", "data:2,precision=fp64"], "precision=fp64 cannot be simulated with --accuracy"),
        (["--plan", "data:2,consistency=async"], "say server:2+1,consistency=async"),
        (["--plan", "data:2,staleness=2"], "staleness=2 is for consistency=stale"),
        (["--plan", "data:200"], "more workers than the batch of 128"),
        (["--plan", "data:2", "--machine", "edge5"], "unknown machine 'edge5'"),
        (["--plan", "data:2,device=cuda", "--machine", "here"], "leave device=cuda out"),
        (["--plan", "data:2", "--target", "2"], "--target 2.0: an accuracy above 0, at most 1, is needed"),
        (["--plan", "data:2", "--set", "fault.slow_rank=2:3x"], "the plan has workers 0 to 1"),
        (["--plan", "data:2", "--set", "train.patience=2"], "train.patience=2 does not go with --accuracy"),
        (["--plan", "data:2", "--set", "train.ema=0.9"], "train.ema=0.9 does not go with --accuracy"),
        (["--plan", "data:2", "--batch-size", "100000"], "is larger than the training set"),
        (["--plan", "data:2", "--devices", "2"], "--devices does not go with --accuracy"),
        (["--plan", "data:2", "--sweep", "devices=1,2"], "--sweep does not go with --accuracy"),
        (["--plan", "data:2", "--trace", "t.json"], "--trace does not go with --accuracy"),
        (["--plan", "data:2", "--batch-per-device"], "--batch-per-device does not go with --accuracy"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_one_line(manyhands, arguments: list[str], told: str) -> None:
    on = () if "--machine" in arguments else ("--machine", "edge4-1gbe")
    said = manyhands("simulate", *ON, *on, *arguments, "--quiet")
    assert said.code == 2
    assert told in said.error
    assert said.out == ""


@pytest.mark.parametrize(("option", "value"), [("--epochs", 2), ("--seed", 1), ("--target", 0.9)])
def test_a_training_is_asked_for(manyhands, option: str, value: object) -> None:
    said = manyhands("simulate", "mlp", "--plan", "data:2", "--machine", "edge4-1gbe", option, value, "--quiet")
    assert said.code == 2
    assert f"{option} is for --accuracy" in said.error
