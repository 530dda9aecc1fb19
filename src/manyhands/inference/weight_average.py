"""Weight average: the mean of the weights of several checkpoints, as one file, scored beside those that it is of."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from manyhands.compat import BatchNorm
from manyhands.data.dataset import Dataset
from manyhands.data.normalize import Normalize
from manyhands.data.sampler import Batches
from manyhands.engine.loop import checkpoint, checkpoint_folder
from manyhands.engine.loop.weight_averaging import NORM_BATCHES
from manyhands.errors import InputError, ModelError
from manyhands.files import written_aside
from manyhands.inference.load import load_run, schema_of
from manyhands.inference.predict import BATCH
from manyhands.inference.test_set import device, exam_of
from manyhands.progress import bar, say
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of
from manyhands.train.weights import build_model

Tensors = dict[str, Tensor]


def average(folders: Sequence[Path], last: int | None, path: Path) -> dict[str, Any]:
    """Write the mean of the last checkpoints of a run (all that there are), or of several (one of each)."""
    runs = [run_folder.load(folder) for folder in folders]
    _check_start(runs)
    found = [_newest(run, last or (None if len(runs) == 1 else 1)) for run in runs]
    every = [each for mine in found for each in mine]
    if len(every) < 2:
        raise InputError(
            f"run {runs[0].folder} has one checkpoint, a mean needs two or more: train with --set checkpoint.keep=5, "
            "or name several runs"
        )
    exam = exam_of(runs[0])
    model, _ = load_run(runs[0].folder)
    mean = mean_of(checkpoint.load_model(each) for each in every)
    ends = [mine[-1] for mine in found]
    with written_aside(path) as aside, bar("scoring", (1 + len(ends)) * len(exam)) as shown:
        rows: list[dict[str, Any]] = []
        for end in ends:
            _load(model, checkpoint.load_model(end), end)
            rows.append({"weights": _called(end), "test_accuracy": exam.accuracy(exam.answers(model, shown.advance))})
        _load(model, mean, every[-1])
        renew_statistics(model, exam.dataset)
        averaged = exam.accuracy(exam.answers(model, shown.advance))
        checkpoint.write(model.state_dict(), aside)
    return {
        "path": str(path),
        "checkpoints": [str(each) for each in every],
        "test_accuracy": averaged,
        "last_test_accuracy": sum(row["test_accuracy"] for row in rows) / len(rows),
        "samples": len(exam),
        "rows": [*rows, {"weights": f"mean of {len(every)}", "test_accuracy": averaged}],
    }


def mean_of(every: Iterator[Tensors]) -> Tensors:
    """Of numbers the mean, added up in float64; of counts the last."""
    first = next(every)
    kinds = {name: each.dtype for name, each in first.items()}
    total = {name: each.double() if each.is_floating_point() else each for name, each in first.items()}
    count = 1
    for tensors in every:
        count += 1
        if {name: each.shape for name, each in tensors.items()} != {name: each.shape for name, each in total.items()}:
            raise ModelError("the checkpoints are of different models: name runs of one model, of one width and depth")
        for name, each in tensors.items():
            total[name] = total[name] + each if each.is_floating_point() else each
    return {name: (each / count if each.is_floating_point() else each).to(kinds[name]) for name, each in total.items()}


def renew_statistics(model: nn.Module, dataset: Dataset) -> None:
    """Batch norms' statistics of these weights, over training batches."""
    if not any(isinstance(each, BatchNorm) for each in model.modules()):
        return
    normalize = Normalize(dataset.schema, contiguous=True).to(device()).eval()
    batches = Batches(len(dataset.train), BATCH, seed=0).epoch(0)
    on_gpu = [device()] if device().type == "cuda" else []
    with torch.random.fork_rng(on_gpu):
        torch.manual_seed(0)  # of dropout
        rows = (dataset.train.inputs[dataset.train.index[each]] for each in islice(batches, NORM_BATCHES))
        update_bn((normalize(torch.from_numpy(each).to(device())) for each in rows), model.to(device()))


def _check_start(runs: Sequence[run_folder.Run]) -> None:
    """Weights of trainings that began apart are in different places, and nothing is between them."""
    first = order_of(runs[0])
    for run in runs[1:]:
        if run.folder.resolve() == runs[0].folder.resolve():
            raise InputError(f"run {run.folder} is named twice: name each once")
        other = order_of(run)
        if replace(other.model, freeze=()) != replace(first.model, freeze=()) or other.data != first.data:
            raise InputError(f"runs {runs[0].folder} and {run.folder} are not of one model on the same data: {APART}")
        if other.train.seed != first.train.seed and not _begin_alike(runs[0], run):
            raise InputError(
                f"runs {runs[0].folder} and {run.folder} began with other weights (train.seed={first.train.seed} and "
                f"{other.train.seed}): {APART}"
            )


APART = "a mean of their weights is no model; use `manyhands ensemble`, or begin both with the same --init-from"


def _begin_alike(one: run_folder.Run, other: run_folder.Run) -> bool:
    """Whether what two seeds drew was all replaced by the same weights from elsewhere."""
    if order_of(one).model.init_from is None:
        return False
    first, second = (build_model(order_of(run), schema_of(run)).state_dict() for run in (one, other))
    return all(torch.equal(each, second[name]) for name, each in first.items())


def _newest(run: run_folder.Run, count: int | None) -> list[Path]:
    """The last checkpoints that are intact, oldest first."""
    found = []
    for each in checkpoint_folder.listing(run.checkpoints):
        if checkpoint_folder.is_whole(each):
            found.append(each)
        else:
            say(f"checkpoint {each} is damaged: left out")
    if len(found) < (count or 1):
        raise InputError(
            f"run {run.folder} has {len(found)} intact checkpoints, {count or 1} are wanted: give a smaller --last, "
            f"or train with --set checkpoint.keep={count or 5}"
        )
    return found[-count:] if count else found


def _load(model: nn.Module, tensors: Tensors, where: Path) -> None:
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[-1].strip()
        raise ModelError(f"checkpoint {where} does not fit the run's model ({first}): train the run again") from None


def _called(path: Path) -> str:
    return f"{path.parent.parent.name}/{path.name}"
