"""TreeNets: what the ensemble says, what it teaches each branch, and the layers that a plan finds."""

import torch
from torch import Tensor, nn

from manyhands.data.dataset import Dataset
from manyhands.data.normalize import Normalize
from manyhands.graph.coarsen import coarsen
from manyhands.graph.trace import trace
from manyhands.models.treenet import Ensemble
from manyhands.models.zoo import Options, Shapes, build

SAMPLES = 1500


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_ensemble_is_the_mean_of_probabilities() -> None:
    scores = drawn(3, 5, 4)
    together = Ensemble()(*scores)
    assert torch.allclose(together.exp(), scores.softmax(-1).mean(0), atol=1e-12)
    assert torch.allclose(together.exp().sum(-1), torch.ones(5, dtype=torch.float64), atol=1e-12)
    assert Ensemble()(*(1000 * scores)).isfinite().all()


def test_each_branch_learns_from_its_own_error() -> None:
    scores, labels = drawn(3, 5, 4).requires_grad_(), torch.tensor([0, 1, 2, 3, 0])
    nn.functional.cross_entropy(Ensemble()(*scores), labels, reduction="sum").backward()
    likely = scores.detach().softmax(-1)
    right = likely[:, range(5), labels]  # by branch and sample
    share = (right / right.sum(0)).unsqueeze(-1)
    expected = share * (likely - nn.functional.one_hot(labels, 4))
    assert scores.grad is not None
    assert torch.allclose(scores.grad, expected, atol=1e-12)


def test_a_plan_finds_trunk_and_branches() -> None:
    graph = trace(build("treenet", Shapes(3, (1, 8, 8)), Options(width=0.25, depth=2)), torch.zeros(2, 1, 8, 8))
    assert graph.traced == "export"
    fused = coarsen(graph)
    branches = [[f"branch_{number}.{name}" for name in ("conv", "dense", "output")] for number in (0, 1)]
    assert [layer.name for layer in fused.layers] == ["trunk.conv", *branches[0], *branches[1], "ensemble", "loss"]
    assert fused.layers[7].after == (3, 6)
    assert fused.layers[4].after == (0,)


def test_together_they_know_more(digits: Dataset) -> None:
    """Trained by the ordinary cross entropy, the ensemble is right more often than its branches are on average."""
    model = build("treenet", Shapes(10, tuple(digits.schema.shape)), Options(width=0.25))
    normalize = Normalize(digits.schema, contiguous=True)
    inputs, unseen = (
        normalize(torch.from_numpy(each.inputs[each.index[:SAMPLES]])) for each in (digits.train, digits.test)
    )
    labels, answers = (torch.from_numpy(each.labels[each.index[:SAMPLES]]) for each in (digits.train, digits.test))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    order = torch.Generator().manual_seed(0)
    for _ in range(3):
        for rows in torch.randperm(len(labels), generator=order).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        shared = model.get_submodule("trunk")(unseen)
        alone = [model.get_submodule(f"branch_{number}")(shared) for number in range(3)]
        right = [float((each.argmax(1) == answers).double().mean()) for each in (*alone, model(unseen))]
    assert min(right) > 0.5  # of ten classes: after 72 steps every branch knows something by itself
    assert right[-1] >= sum(right[:-1]) / 3
