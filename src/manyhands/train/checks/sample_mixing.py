"""Sample mixing: whether a model makes something of several samples together, as statistics over a batch are.

Then it matters with which others a sample is: cut into micro-batches, or into the shares of ranks, a batch is another.
"""

import torch
from torch import Tensor

from manyhands.compat import BatchNorm
from manyhands.config import Config
from manyhands.data.dataset import Dataset
from manyhands.graph.graph import Graph
from manyhands.graph.trace import as_it_was
from manyhands.plan.plan import Plan
from manyhands.train.checks.no_randomness import Still, hold_still
from manyhands.train.job import sample_input
from manyhands.train.weights import build_model

LIMIT = 1e-4  # relative
SAMPLES = 4


def has_batch_norm(graph: Graph) -> bool:
    members = [member for layer in graph.layers for member in layer.members or (layer,)]
    return any(each.kind == "norm" and each.operation.lower().startswith("batch") for each in members)


def mixes_samples(config: Config, dataset: Dataset) -> bool:
    """Whether, batch norms apart, the scores of some samples depend on others of their batch; what does not run here
    is told of by the training."""
    model = build_model(config, dataset.schema)
    inputs = sample_input(dataset.schema, SAMPLES)
    if inputs.is_floating_point():
        inputs = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0))
    with as_it_was(model, inputs), torch.no_grad(), Still():
        hold_still(model)
        for module in model.train().modules():
            if isinstance(module, BatchNorm):
                module.eval()
        try:
            whole, part = model(inputs)[: SAMPLES // 2], model(inputs[: SAMPLES // 2])
        except Exception:
            return False
    if not isinstance(whole, Tensor) or whole.shape != part.shape:
        return False
    far, size = float((whole - part).abs().max()), float(whole.abs().max())
    return far > LIMIT * size


def warning_of(config: Config, plan: Plan, dataset: Dataset) -> str | None:
    """One line where ranks by sample would not compute what one device does."""
    by_sample = plan.world > 1 and not plan.is_model_parallel and not plan.is_baseline
    if not by_sample or not mixes_samples(config, dataset):
        return None
    return (
        f"model {config.model.name} makes something of several samples of a batch in its own code: under plan "
        f"{plan.name} each rank does so with its own samples, which is not what one device computes"
    )
