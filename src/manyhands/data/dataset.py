"""Dataset: stored arrays with a train, a validation and a test part."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyhands.data.schema import Schema


@dataclass(frozen=True)
class Split:
    """The rows of the shared arrays that belong to one part, in order."""

    inputs: NDArray[Any]  # image: uint8 [N, H, W, C]; text: int32 [N, L]; table: float32 [N, F]
    labels: NDArray[np.int64]  # [N]
    index: NDArray[np.int64]  # rows of inputs and labels

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Dataset:
    """A data set that is ready to be fed: memory-mapped, its three parts disjoint."""

    schema: Schema
    train: Split
    validation: Split
    test: Split
    source: str  # where it was read from
    checksum: str = ""  # of the stored arrays, inputs and labels

    @property
    def bytes(self) -> int:
        """The size of the stored arrays."""
        return self.train.inputs.nbytes + self.train.labels.nbytes

    @property
    def fed_bytes(self) -> int:
        """The size of all three parts in memory; a made set's parts go round its stored rows many times."""
        samples = len(self.train) + len(self.validation) + len(self.test)
        return samples * (self.train.inputs[:1].nbytes + self.train.labels[:1].nbytes)


def info(dataset: Dataset) -> dict[str, Any]:
    """A data set in numbers."""
    schema = dataset.schema
    return {
        "name": schema.name,
        "kind": schema.kind,
        "train": len(dataset.train),
        "val": len(dataset.validation),
        "test": len(dataset.test),
        "classes": len(schema.classes),
        "shape": list(schema.shape),
        "bytes": dataset.bytes,
        "source": dataset.source,
    }
