"""Test set: the test part of a run's data, on which trained models are asked one after the other."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.normalize import Normalize
from manyhands.errors import DataError
from manyhands.inference.load import schema_of
from manyhands.inference.predict import BATCH, chances
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of


def device() -> torch.device:
    """Where models are asked."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Exam:
    """The samples and their right answers."""

    dataset: Dataset

    def __len__(self) -> int:
        return len(self.dataset.test)

    @property
    def labels(self) -> Tensor:
        test = self.dataset.test
        return torch.from_numpy(test.labels[test.index])

    def answers(self, model: nn.Module, told: Callable[[int], None] = lambda samples: None) -> Tensor:
        """The probability of each class for each sample, in fp32."""
        test, model = self.dataset.test, model.to(device()).eval()
        normalize = Normalize(self.dataset.schema, contiguous=True).to(device()).eval()
        found = []
        for begin in range(0, len(test), BATCH):
            rows = torch.from_numpy(test.inputs[test.index[begin : begin + BATCH]]).to(device())
            found.append(chances(model, normalize(rows)).cpu())
            told(len(rows))
        return torch.cat(found)

    def accuracy(self, scores: Tensor) -> float:
        """The share of samples whose class has the highest score."""
        return float((scores.argmax(1) == self.labels).double().mean())


def exam_of(run: run_folder.Run) -> Exam:
    """The exam of a run, on data that are still those that it was trained on."""
    order = order_of(run).data
    dataset = load(order.name, order)
    if dataset.schema != schema_of(run):
        raise DataError(
            f"the data {order.name} are others than run {run.folder} was trained on: "
            "put the old ones back, or train it again"
        )
    return Exam(dataset)
