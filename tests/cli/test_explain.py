"""`manyhands explain`: what each layer's split costs and saves, in words, as rows and as lanes."""

from collections.abc import Callable
from pathlib import Path

import pytest

MODEL = ("--model", "mlp", "--data", "synthetic:1x8x8,10", "--batch-size", "64")
MACHINE = ("--machine", "p100x4-25gbe")
GB_PER_S, LATENCY_US = 18.0, 8.0  # of that machine's own ports


@pytest.fixture(autouse=True)
def _kept(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))


@pytest.fixture
def explain(manyhands) -> Callable[..., dict]:
    def call(*arguments: object) -> dict:
        said = manyhands("explain", *arguments, *MODEL, *MACHINE, "--json", "--quiet")
        assert said.code == 0, said.err
        return said.json

    return call


def test_data_parallelism_saves_nothing_against_itself(explain) -> None:
    found = explain("data:4")
    assert [row["saves_ms"] for row in found["why"]] == [0] * len(found["why"])
    assert {row["split"] for row in found["why"]} == {"sample 4"}
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert found["shares"]["idle"] + found["shares"]["transfers"] == pytest.approx(found["idle_fraction"])


def test_transfers_of_gradients(explain) -> None:
    """A ring over two devices gives away half of the gradients, and gets the other half's sums back."""
    (row,) = [row for row in explain("data:2")["why"] if row["layer"] == "output"]
    (alone,) = [row for row in explain("serial")["why"] if row["layer"] == "output"]
    # Weights, gradients and adam's two moments beside what the backward pass needs, which alone is twice as much.
    weights = (2 * row["memory_mb"] - alone["memory_mb"]) * 2**20 / 4
    assert row["transfer_ms"] == pytest.approx(weights / GB_PER_S / 1e6 + 2 * LATENCY_US / 1e3, rel=1e-3)
    assert alone["transfer_ms"] == 0


@pytest.mark.parametrize("words", ["owt:4", "tensor:4", "data:2,tensor:2"])
def test_what_is_saved_is_what_another_plan_takes_longer(explain, manyhands, tmp_path: Path, words: str) -> None:
    found = explain(words)
    changed = [row for row in found["why"] if row["saves_ms"]]
    assert changed
    axes = ", ".join(f'"{each}"' for each in words.split(","))
    for row in changed:
        plan = tmp_path / "plan.toml"
        plan.write_text(f'axes = [{axes}]\n[[layers]]\nname = "{row["layer"]}"\nsample = {len(row["devices"])}\n')
        said = manyhands("simulate", "mlp", *MODEL[2:], *MACHINE, "--plan", plan, "--json", "--quiet")
        assert said.json["step_ms"] - found["step_ms"] == pytest.approx(row["saves_ms"])


def test_it_is_told_in_words(explain) -> None:
    told = explain("owt:4")["narrative"]
    assert told.startswith("Plan owt:4 trains mlp on 4 devices (Tesla P100 each): a step of 64 samples takes")
    assert "by parameter into 4" in told
    assert "of its 16 GB" in told
    told = explain("pipeline:2,microbatches=4")["narrative"]
    assert "Every layer is kept whole" in told
    assert "on 0;" in told
    assert "with 4 micro-batches" in told


def test_micro_batches_add_up(explain) -> None:
    one, four = (explain(f"pipeline:2,microbatches={number}") for number in (1, 4))
    for row, other in zip(one["why"], four["why"], strict=True):
        assert other["forward_ms"] >= row["forward_ms"]
    moved = [sum(row["transfer_ms"] for row in found["why"]) for found in (one, four)]
    assert moved[1] > moved[0] > 0


def test_lanes_and_rows_for_people(manyhands, tmp_path: Path) -> None:
    said = manyhands("explain", "data:4", *MODEL, *MACHINE, "--one-device-ms", 0.1, "--png", tmp_path / "step.png")
    assert said.code == 0, said.err
    for shown in ("Plan data:4 trains mlp", "sample 4", "backward", "device 0 │█", "device 3 │█", "░ transfer"):
        assert shown in said.out
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["data:2", "--machine", "p100"], "unknown machine 'p100'"),
        (["data:2,device=cuda"], "plan data:2 cannot be simulated on this machine yet"),
        (["data:4", "--devices", "2", *MACHINE], "plan data:4 needs 4 devices, --devices 2"),
        (["data:4", "--devices", "-1", *MACHINE], "--devices -1: at least 1 is needed"),
        (["gossip:4", *MACHINE], "plan gossip:4 cannot be simulated"),
        (["seril", *MACHINE], "unknown plan 'seril'"),
        (["plan.toml", *MACHINE], "layers 'conv*' match nothing"),
        (["data:2", "--machine", "small.toml"], "bytes) are missing"),
        (["data:2", "--png", ".", *MACHINE], " is a folder: choose the name of a file"),
    ],
    ids=lambda each: " ".join(each)[:60] if isinstance(each, list) else "",
)
def test_one_line(manyhands, monkeypatch, tmp_path: Path, arguments: list[str], told: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text('axes = ["data:2"]\n[[layers]]\nname = "conv*"\n')
    chip = '[accelerator]\nname = "chip"\nmemory_gb = 0.0001\ngb_per_s = 1\ntflop_per_s = { fp32 = 1 }\n'
    Path("small.toml").write_text(chip + "[[levels]]\ndevices = 1\ngb_per_s = 1\nlatency_us = 0\n")
    said = manyhands("explain", *arguments, *MODEL, "--quiet")
    assert said.code == 2
    assert told in said.error
    assert said.out == ""


def test_which_model(manyhands) -> None:
    said = manyhands("explain", "data:2", *MACHINE)
    assert said.code == 2
    assert "--model" in said.error
