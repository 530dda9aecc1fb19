"""`manyhands simulate`: one object or a table, a trace, a sweep; what cannot be simulated is one line."""

import re
from pathlib import Path

import pytest

from manyhands.machine import cluster_toml
from manyhands.timeline import Timeline

MODEL = ("mlp", "--data", "synthetic:1x8x8,10")
ON = (*MODEL, "--machine", "p100x4-ib", "--batch-size", "64")
LEVEL = "[[levels]]\ndevices = 1\ngb_per_s = 18\nlatency_us = 0\n"


@pytest.fixture(autouse=True)
def _kept(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set is made once."""
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))


def machine(folder: Path, memory_gb: float = 16.0) -> Path:
    path = folder / "machine.toml"
    chip = f'[accelerator]\nname = "chip"\nmemory_gb = {memory_gb!r}\ngb_per_s = 732\ntflop_per_s = {{ fp32 = 10.6 }}\n'
    path.write_text(chip + LEVEL)
    return path


def test_keys(simulate) -> None:
    found = simulate(*ON, "--plan", "data:4")
    assert (found["plan"], found["machine"], found["devices"], found["batch_size"]) == ("data:4", "p100x4-ib", 4, 64)
    assert found["traced"] == "export"
    assert len(found["memory_mb"]) == 4
    assert found["samples_per_s"] == pytest.approx(64 / found["step_ms"] * 1000)
    assert found["exposed_comm_ms"] > 0
    assert 0 < found["idle_fraction"] < 1
    # One device with 16 samples, against 64 in the same number of milliseconds.
    expected = found["samples_per_s"] / (16 / found["one_device_step_ms"] * 1000)
    assert found["speedup_over_one_device"] == pytest.approx(expected)


def test_one_device(simulate) -> None:
    found = simulate(*ON, "--plan", "serial")
    assert found["speedup_over_one_device"] == pytest.approx(1)
    assert (found["devices"], found["idle_fraction"], found["exposed_comm_ms"]) == (1, pytest.approx(0), 0)


def test_devices_beside_those_of_the_plan_are_idle(simulate) -> None:
    found = simulate(*ON, "--plan", "serial", "--devices", 4)
    assert found["idle_fraction"] == pytest.approx(3 / 4)
    assert found["memory_mb"][1:] == [0, 0, 0]


def test_precision_and_optimizer_count(simulate) -> None:
    usual = simulate(*ON, "--plan", "serial")
    half = simulate(*ON, "--plan", "serial,precision=bf16")
    plain = simulate(*ON, "--plan", "serial", "--set", "optim.name=sgd")
    assert half["memory_mb"][0] < usual["memory_mb"][0]
    assert plain["memory_mb"][0] < usual["memory_mb"][0]
    assert plain["step_ms"] < usual["step_ms"]


def test_a_known_time_of_one_device_is_matched(simulate) -> None:
    found = simulate(*ON, "--plan", "data:4", "--one-device-ms", 50)
    assert found["one_device_step_ms"] == pytest.approx(50, rel=1e-4)
    assert found["speedup_over_one_device"] > 3.9  # next to such layers the links are fast


def test_batch_per_device(simulate) -> None:
    each, all_together = (
        simulate(*MODEL, "--machine", "p100x4-ib", "--plan", "data:4", *words)
        for words in (("--batch-size", 16, "--batch-per-device"), ("--batch-size", 64))
    )
    assert each == all_together


def test_micro_batches_are_bound(simulate) -> None:
    found = simulate(*ON, "--plan", "pipeline:2")
    bound = re.fullmatch(r"pipeline:2,microbatches=(\d+)", found["plan"])
    assert bound
    tried = {number: simulate(*ON, "--plan", f"pipeline:2,microbatches={number}")["step_ms"] for number in (1, 2, 4, 8)}
    assert found["step_ms"] == tried[int(bound[1])] == min(tried.values())


def test_trace(simulate, tmp_path: Path) -> None:
    found = simulate(*ON, "--plan", "data:2", "--trace", tmp_path / "new" / "trace.json")
    timeline = Timeline.load(tmp_path / "new" / "trace.json")
    assert max(event.end_ns for event in timeline.events) / 1e6 == pytest.approx(found["step_ms"])
    assert {"device 0", "device 1", "device 0 link"} <= {event.lane for event in timeline.events}
    assert {event.category for event in timeline.events} >= {"forward", "backward", "update", "collective"}


def test_plan_file_with_layers(simulate, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('axes = ["data:2"]\n')
    usual = simulate(*ON, "--plan", plan)
    assert usual["step_ms"] == simulate(*ON, "--plan", "data:2")["step_ms"]
    plan.write_text('axes = ["data:2"]\n[[layers]]\nname = "*"\nsample = 1\n')
    assert simulate(*ON, "--plan", plan)["step_ms"] == simulate(*ON, "--plan", "serial", "--devices", 2)["step_ms"]


def test_sweep(simulate) -> None:
    order = (*MODEL, "--machine", "p100x4-ib", "--plan", "data:1")
    rows = simulate(*order, "--batch-size", 64, "--sweep", "devices=4,1,2")["rows"]
    assert [(row["devices"], row["plan"], row["batch_size"]) for row in rows] == [
        (1, "data:1", 64),
        (2, "data:2", 64),
        (4, "data:4", 64),
    ]
    assert rows[2]["step_ms"] == simulate(*ON, "--plan", "data:4")["step_ms"]
    rows = simulate(*order, "--batch-size", 64, "--batch-per-device", "--sweep", "devices=1,2")["rows"]
    assert [row["batch_size"] for row in rows] == [64, 128]
    assert rows[0]["one_device_step_ms"] == rows[1]["one_device_step_ms"] == rows[0]["step_ms"]


def test_a_row_that_cannot_be_is_told(simulate, manyhands) -> None:
    order = (*MODEL, "--machine", "p100x4-ib", "--plan", "data:1", "--batch-size", 2, "--sweep", "devices=2,4")
    first, second = simulate(*order)["rows"]
    assert first["failed"] is None
    assert "step_ms" not in second
    assert "2 samples" in second["failed"]
    said = manyhands("simulate", *order)
    assert said.code == 0
    assert "data:4 is left out" in said.out


def test_table_and_curve(manyhands) -> None:
    said = manyhands("simulate", *ON, "--plan", "owt:4")
    assert said.code == 0, said.err
    for shown in ("owt:4", "p100x4-ib", "samples/s", "speed-up over one device", "torch.export"):
        assert shown in said.out
    said = manyhands("simulate", *ON, "--plan", "owt:4", "--sweep", "devices=1,2,4")
    assert said.code == 0, said.err
    for shown in ("owt:1", "owt:2", "owt:4", "● predicted", "4x ┤"):
        assert shown in said.out


def test_memory_is_told_to_the_byte(manyhands, tmp_path: Path) -> None:
    order = ("simulate", *MODEL, "--batch-size", 64, "--plan", "data:2", "--quiet", "--machine")
    said = manyhands(*order, machine(tmp_path, 0.0001))
    assert said.code == 2
    assert "plan data:2 needs 0.0 GB on a device of 0.0001 GB" in said.error
    missing = int(re.search(r"\(([\d,]+) bytes\) are missing", said.error)[1].replace(",", ""))  # type: ignore[index]
    has = cluster_toml.read(tmp_path / "machine.toml").accelerator.memory_bytes
    assert manyhands(*order, machine(tmp_path, (has + missing - 1) / 2**30)).code == 2
    assert manyhands(*order, machine(tmp_path, (has + missing) / 2**30)).code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--plan", "serial", "--machine", "p100"], "unknown machine 'p100'"),
        (["--plan", "serial", "--machine", "none.toml"], "there is no machine file none.toml"),
        (["--plan", "local:2", "--machine", "here"], "plan local:2 cannot be simulated"),
        (["--plan", "data:2", "--machine", "here", "--devices", "4"], "--devices 4: plan data:2 has 2"),
        (["--plan", "serial", "--machine", "here", "--one-device-ms", "3"], "this machine is measured"),
        (["--plan", "data:4", "--devices", "2"], "plan data:4 needs 4 devices, --devices 2"),
        (["--plan", "data:4", "--devices", "6"], "into 4 on 6 devices"),
        (["--plan", "data:4", "--devices", "0"], "--devices 0: at least 1 is needed"),
        (["--plan", "data:4", "--devices", "x"], "--devices"),
        (["--plan", "data:8000"], "8000 devices: at most 4,096 can be simulated"),
        (["--plan", "data:512"], "64 samples"),
        (["--plan", "server:3+1"], "plan server:3+1 cannot be simulated"),
        (["--plan", "local:2"], "plan local:2 cannot be simulated"),
        (["--plan", "auto"], "plan auto cannot be simulated"),
        (["--plan", "pipeline:9,schedule=interleaved"], "has 18 stages (2 on each device), the model"),
        (["--plan", "data:2,shard=full"], "shard=full cannot be simulated"),
        (["--plan", "data:2,staleness=1"], "staleness=1 cannot be simulated: leave it out"),
        (["--plan", "serial,precision=fp64"], "precision=fp64 cannot be simulated: only fp32 and bf16 can"),
        (["--plan", "pipeline:2,microbatches=65"], "microbatches=65: a batch of 64 can be cut into at most 64"),
        (["--plan", "pipeline:99"], "99 stages"),
        (["--plan", "plan.toml"], "layers 'conv*' match nothing; the model's layers are"),
        (["--plan", "data:2", "--sweep", "devices"], "--sweep devices: numbers of devices"),
        (["--plan", "data:2", "--sweep", "devices=0,1"], "--sweep devices=0,1: numbers of devices"),
        (["--plan", "data:2", "--sweep", "batch=1,2"], "--sweep batch=1,2: numbers of devices"),
        (["--plan", "serial", "--sweep", "devices=1,2"], "--sweep devices with plan serial"),
        (["--plan", "data:2,tensor:2", "--sweep", "devices=1,2"], "it needs one degree"),
        (["--plan", "plan.toml", "--sweep", "devices=1,2"], "it needs one degree"),
        (["--plan", "data:2", "--sweep", "devices=1", "--devices", "2"], "does not go with --devices"),
        (["--plan", "data:2", "--sweep", "devices=1", "--trace", "t.json"], "does not go with --trace"),
        (["--plan", "data:2", "--sweep", "devices=1,2", "--one-device-ms", "5"], "add --batch-per-device"),
        (["--plan", "data:128", "--sweep", "devices=128,256"], "64 samples"),
        (["--plan", "data:2", "--one-device-ms", "0"], "--one-device-ms 0.0: a number above zero is needed"),
        (["--plan", "data:2", "--one-device-ms", "0.000001"], "the update of the weights alone takes"),
        (["--plan", "data:2", "--trace", "."], " is a folder: choose the name of a file"),
        (["--plan", "data:2", "--trace", "/proc/trace.json"], "/proc/trace.json"),
    ],
    ids=lambda each: " ".join(each)[:60] if isinstance(each, list) else "",
)
def test_one_line(manyhands, monkeypatch, tmp_path: Path, arguments: list[str], told: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text('axes = ["data:2"]\n[[layers]]\nname = "conv*"\n')
    on = () if "--machine" in arguments else ("--machine", "p100x4-ib")
    said = manyhands("simulate", *MODEL, "--batch-size", 64, *on, *arguments, "--quiet")
    assert said.code == 2
    assert told in said.error
    assert said.out == ""
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["plan.toml"]


@pytest.mark.long
def test_a_plan_that_cuts_layers_is_simulated_here(manyhands, tmp_path: Path) -> None:
    """From layers and links that are measured; the pipeline's micro-batches are as many as is fastest."""
    told = manyhands("simulate", *MODEL, "--batch-size", 16, "--plan", "pipeline:2", "--machine", "here", "--json").json
    assert "microbatches=" in told["plan"]
    assert told["devices"] == 2
    assert told["step_ms"] > 0
