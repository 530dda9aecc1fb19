"""Base: how a rank's model and optimizer stay those of all ranks.

    SingleProcess      nothing to exchange
    Shared             shared memory holds the weights once and a row of gradients a rank; each updates its part
    Replicated         DistributedDataParallel: each rank has all weights, gradients are added up during backward
    Sharded            FSDP2: each rank has a part of the weights, which are gathered layer by layer
    Hybrid             every layer split in its own way
    LocalSGD           each rank learns weights of its own, which are averaged now and then
    StaleSynchronous   sums of gradients come a few steps later; nobody waits for those of the step before

Whatever the strategy, what a checkpoint holds is as one device would have it.
"""

import contextlib
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from manyhands.data.sampler import Batch
from manyhands.engine.parameters.gradient_noise import Noise


class LocalBatch(NamedTuple):
    """What a rank takes of the batch that its feed gave it."""

    inputs: Batch
    labels: Batch
    weight: float  # of its mean loss in that of the batch
    counts: int  # samples whose loss and answers it tells; another rank may have the same


class Strategy(Protocol):
    """One rank's side. All ranks call every method together."""

    optimizer: torch.optim.Optimizer
    scale: float  # what losses are multiplied by, where gradients are averaged and not added up
    voice: float  # 1, or 0 where another rank tells the same loss
    size: int  # parameters of the whole model
    met: bool  # whether all ranks have met in the last step, so that to meet again makes nobody wait
    noise: Noise | None  # looks at gradients before they are added up, where it is wanted

    def given(self, batch: Batch) -> LocalBatch:
        """Which samples of a batch go in here, and of which the answers come out."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The model's output."""

    def predict(self, inputs: Tensor) -> Tensor:
        """The same when nothing is learned."""

    def alone(self) -> contextlib.AbstractContextManager[object]:
        """For all backward passes of a step but the last, which exchanges."""

    def hear(self, loss: Tensor) -> None:
        """After backward: this rank's part of the loss."""

    def watch(self, noise: Noise) -> None:
        """Have the gradients of all steps looked at."""

    def update(self) -> None:
        """After that: clip, and take the step."""

    def losses(self) -> list[float] | None:
        """Those of all ranks together, of the steps that follow the last ones told; None: not added up here."""

    def settle(self) -> None:
        """Wait for all that is under way between ranks."""

    def reading(self) -> contextlib.AbstractContextManager[object]:
        """While the model is looked at: with the weights that all ranks together have."""

    def staleness(self) -> dict[int, int] | None:
        """How many updates this rank's weights lacked, and in how many steps; None: never any."""

    def sync_buffers(self) -> None:
        """Let all ranks have the same buffers: before the model is scored or saved."""

    def weights(self) -> dict[str, Tensor]:
        """The whole `state_dict` of the model; the leader's answer counts."""

    def load_weights(self, tensors: dict[str, Tensor]) -> None: ...

    def state(self) -> dict[str, Any]:
        """The whole `state_dict` of the optimizer; the leader's answer counts."""

    def load_state(self, state: dict[str, Any]) -> None: ...

    def rank_state(self) -> dict[str, Tensor]:
        """What this rank alone has beside: what compression owes the others, weights of its own."""

    def load_rank_state(self, tensors: dict[str, Tensor]) -> None: ...

    def bytes_sent(self) -> tuple[int, int] | None:
        """Bytes of gradients that this rank has sent, and what they were without compression; None: not counted."""


def local(tensor: Tensor) -> Tensor:
    """What this rank has of a weight that is spread over ranks."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part
