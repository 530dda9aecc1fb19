"""Ensemble: models that were trained independently, asked together: by vote, and by the mean of their probabilities."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from manyhands.errors import ConfigError, InputError, choices
from manyhands.inference.load import load_run, schema_of
from manyhands.inference.test_set import Exam, exam_of
from manyhands.progress import bar
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of
from manyhands.stats import mean_and_std

BY = ("mean", "vote")


def ensemble(folders: Sequence[Path], by: str) -> dict[str, Any]:
    """The accuracy of each model, and of all together; `by` names the one that counts."""
    if by not in BY:
        raise ConfigError(f"--by {by}: {choices(by, BY)}")
    runs = [run_folder.load(folder) for folder in folders]
    _check(runs)
    exams = _exams(runs)
    votes, total, rows = torch.zeros(()), torch.zeros(()), []
    with bar(f"asking {len(runs)} models", sum(map(len, exams))) as shown:
        for run, exam in zip(runs, exams, strict=True):
            answers = exam.answers(load_run(run.folder)[0], shown.advance)
            votes, total = votes + one_hot(answers.argmax(1), answers.shape[1]), total + answers.double()
            rows.append(_row(run, exam.accuracy(answers)))
    accuracy = {"mean": exams[0].accuracy(total), "vote": exams[0].accuracy(voted(votes, total / len(runs)))}
    return {
        "by": by,
        "test_accuracy": accuracy[by],
        "mean_accuracy": accuracy["mean"],
        "vote_accuracy": accuracy["vote"],
        "member_accuracy": mean_and_std([row["test_accuracy"] for row in rows]),
        "samples": len(exams[0]),
        "rows": rows,
    }


def voted(votes: Tensor, mean: Tensor) -> Tensor:
    """Votes as scores; of classes with equally many votes the one with the higher mean probability comes first.

    >>> voted(torch.tensor([[1, 1, 0]]), torch.tensor([[0.3, 0.4, 0.3]])).argmax(1).tolist()
    [1]
    """
    return votes + mean / 2  # a probability is at most 1: it decides between equals alone


def _row(run: run_folder.Run, accuracy: float) -> dict[str, Any]:
    order = order_of(run)
    about = {"run": str(run.folder), "model": order.model.name, "seed": order.train.seed, "plan": run.plan}
    return {**about, "test_accuracy": accuracy}


def _check(runs: Sequence[run_folder.Run]) -> None:
    """Refuse what cannot be asked together before anything is asked."""
    if len(runs) < 2:
        raise InputError(f"an ensemble of {len(runs)}: name two runs or more")
    for number, run in enumerate(runs):
        if run.folder.resolve() in (each.folder.resolve() for each in runs[:number]):
            raise InputError(f"run {run.folder} is named twice: a model adds nothing to itself, name each once")
    first = schema_of(runs[0]).classes
    for run in runs[1:]:
        if (classes := schema_of(run).classes) != first:
            raise InputError(
                f"run {run.folder} tells {_few(classes)}, run {runs[0].folder} {_few(first)}: "
                "an ensemble needs the same classes in the same order; leave one out"
            )


def _few(classes: Sequence[str]) -> str:
    named = ", ".join(classes[:3]) + (" …" if len(classes) > 3 else "")
    return f"{len(classes)} classes ({named})"


def _exams(runs: Sequence[run_folder.Run]) -> list[Exam]:
    """Each model's own, for it may take its samples in its own way; of the same samples, as far as labels tell."""
    exams = [exam_of(run) for run in runs]
    for run, exam in zip(runs, exams, strict=True):
        if not torch.equal(exam.labels, exams[0].labels):
            raise InputError(
                f"run {run.folder} has {len(exam)} test samples, run {runs[0].folder} has {len(exams[0])} others: "
                "an ensemble needs models of the same data"
            )
    return exams
