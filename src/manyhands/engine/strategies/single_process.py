"""Single process: the strategy of a training without other ranks, and the base of those with some."""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.data.sampler import Batch
from manyhands.engine.parameters.gradient_noise import Noise
from manyhands.engine.strategies.base import LocalBatch
from manyhands.optim.factory import load_state


class SingleProcess:
    """One process, and the base of those where each rank has the whole model."""

    scale = voice = 1.0
    met = True
    noise: Noise | None = None

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, clip: float | None) -> None:
        self.model, self.optimizer, self.clip = model, optimizer, clip
        self.size = sum(each.numel() for each in model.parameters())

    def given(self, batch: Batch) -> LocalBatch:
        return LocalBatch(batch, batch, 1.0, len(batch[0]))

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.model(inputs)
        return result

    def predict(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.model(inputs)
        return result

    def alone(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def hear(self, loss: Tensor) -> None: ...

    def watch(self, noise: Noise) -> None:
        self.noise = noise

    def update(self) -> None:
        if self.noise is not None:
            whole = [each.grad for each in self.model.parameters() if each.grad is not None]
            self.noise.whole(whole, copies=self.noise.team.world)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip, foreach=True)
        self.optimizer.step()

    def losses(self) -> list[float] | None:
        return None

    def settle(self) -> None: ...

    def reading(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def staleness(self) -> dict[int, int] | None:
        return None

    def sync_buffers(self) -> None: ...

    def weights(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def load_weights(self, tensors: dict[str, Tensor]) -> None:
        self.model.load_state_dict(tensors)

    def state(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state(self, state: dict[str, Any]) -> None:
        load_state(self.optimizer, state)

    def rank_state(self) -> dict[str, Tensor]:
        return {}

    def load_rank_state(self, tensors: dict[str, Tensor]) -> None: ...

    def bytes_sent(self) -> tuple[int, int] | None:
        return None
