"""What a checkpoint says of itself is held to, and the best is named by what is whole."""

import json
import shutil
from pathlib import Path

import pytest

from manyhands.engine.loop.checkpoint_folder import best_of, is_whole, listing, newest_whole
from manyhands.runs import run_folder

FIXTURE = Path(__file__).parents[2] / "fixtures" / "v1" / "finished"
TRAIN = ("train", "mlp", "--data", "synthetic:1x6x6,4", "--batch-size", 16, "--set", "data.size=100", "--epochs", 3)


@pytest.fixture
def run(manyhands, tmp_path: Path) -> run_folder.Run:
    said = manyhands(*TRAIN, "--plan", "serial,precision=fp32", "--set", "checkpoint.keep=9", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    return run_folder.load(tmp_path / "run")


def edit(path: Path, **changes: object) -> None:
    state = json.loads(path.read_text())
    state["position"] |= changes
    path.write_text(json.dumps(state))


def test_an_edited_position_is_not_whole(run: run_folder.Run) -> None:
    newest = listing(run.checkpoints)[-1]
    assert is_whole(newest)
    edit(newest / "state.json", epoch=1)
    assert not is_whole(newest)
    assert newest_whole(run.checkpoints) == listing(run.checkpoints)[-2]


def test_those_of_before_have_no_checksum_of_their_own() -> None:
    assert all(is_whole(each) for each in listing(FIXTURE / "checkpoints"))
    assert best_of(FIXTURE / "checkpoints") is not None


def test_the_best_is_what_its_own_state_says(run: run_folder.Run) -> None:
    """A kill between a checkpoint and the file `best` leaves the file behind."""
    best = best_of(run.checkpoints)
    assert best is not None
    (run.checkpoints / "best").write_text("step-00000001")
    assert best_of(run.checkpoints) == best
    assert (run.result or {})["weights_step"] == int(best.name.removeprefix("step-"))


@pytest.mark.parametrize("name", ["../../elsewhere", "/etc", "step-99999999", "", ".", "\x00"])
def test_the_best_of_before_is_one_of_the_checkpoints(tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(FIXTURE / "checkpoints", tmp_path / "checkpoints"))
    (tmp_path / "elsewhere").mkdir()
    (folder / "best").write_text(name)
    assert best_of(folder) is None


def test_a_metrics_line_without_a_step_does_not_end_a_resume(manyhands, run: run_folder.Run) -> None:
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"note": "mine"}\n{"step": "seven"}\n')
    run.update(status="interrupted", result=None)
    said = manyhands("train", "--resume", run.folder)
    assert said.code == 0, said.err


def test_without_a_checkpoint_none_is_said_to_be_kept(manyhands, tmp_path: Path) -> None:
    said = manyhands(*TRAIN, "--set", "optim.name=sgd", "--set", "optim.lr=1e6", "--out", tmp_path / "run")
    assert said.code == 1
    assert "there is no checkpoint" in said.err


def test_the_result_is_the_best_checkpoint(manyhands, tmp_path: Path) -> None:
    """Loss and accuracy of the result are those of the weights that predict and export take."""
    import torch
    from torch.nn import functional

    from manyhands.data.load import load
    from manyhands.data.normalize import Normalize
    from manyhands.inference.load import load_run
    from manyhands.runs.run_folder import order_of

    said = manyhands(
        "train", "mlp", "--data", "digits", "--epochs", 6, "--set", "optim.lr=0.02", "--set", "model.width=0.125",
        "--plan", "serial,precision=fp32", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    model, schema = load_run(tmp_path / "run")
    config = order_of(run_folder.load(tmp_path / "run"))
    test = load(config.data.name, config.data).test
    inputs = Normalize(schema, contiguous=True).eval()(torch.from_numpy(test.inputs[test.index]))
    with torch.inference_mode():
        scores, labels = model(inputs), torch.from_numpy(test.labels[test.index])
    assert said.json["test_loss"] == pytest.approx(float(functional.cross_entropy(scores.double(), labels)), rel=1e-5)
    assert said.json["test_accuracy"] == float((scores.argmax(1) == labels).double().mean())
