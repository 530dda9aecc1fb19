"""The drop-ins compute what torch's own layers compute."""

import pytest
import torch
from torch import Tensor, nn

from manyhands.engine.modules import cpu_kernels


@pytest.mark.parametrize(("rate", "within"), [(0.25, 0.0), (0.5, 0.0), (0.1, 1e-5), (0.3, 2e-5)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_dropout_scales_and_keeps_the_right_share(rate: float, within: float, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    x = torch.ones(64, 16, 25, 25).to(memory_format=layout).requires_grad_()
    y = cpu_kernels.Dropout(rate)(x)
    y.sum().backward()
    kept = y != 0
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / (1 - rate)), rtol=within, atol=0)
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())  # the same mask, the same scale
    assert kept.float().mean().item() == pytest.approx(1 - rate, abs=0.005)
    # No sample, channel or place is favoured.
    for dim in (0, 1, 2, 3):
        others = [each for each in range(4) if each != dim]
        assert kept.float().mean(others).sub(1 - rate).abs().max() < 0.03


@pytest.mark.parametrize("rate", [0.25, 0.1])
def test_dropout_changes_no_mean(rate: float) -> None:
    torch.manual_seed(0)
    y = cpu_kernels.Dropout(rate)(torch.ones(4_000_000))
    deviation = (rate / (1 - rate) / y.numel()) ** 0.5
    assert abs(y.double().mean().item() - 1) < 4 * deviation


def test_dropout_differs_between_calls_and_repeats_by_seed() -> None:
    layer, x = cpu_kernels.Dropout(0.5), torch.ones(1001)
    torch.manual_seed(1)
    first, second = layer(x), layer(x)
    torch.manual_seed(1)
    assert not torch.equal(first, second)
    assert torch.equal(layer(x), first)
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pool_gives_the_same_gradient(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 6, 12, 12, dtype=dtype).to(memory_format=torch.channels_last)

    def gradient(pool: nn.Module) -> Tensor:
        leaf = x.clone().requires_grad_()
        pool(leaf).flatten(1).square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    assert torch.equal(gradient(cpu_kernels.MaxPool2d(2)), gradient(nn.MaxPool2d(2)))


def test_use_own_takes_only_what_fits() -> None:
    model = nn.Sequential(
        nn.Dropout(0.1), nn.Dropout(1e-6), nn.Dropout2d(0.5), nn.MaxPool2d(2), nn.MaxPool2d(2, return_indices=True)
    )
    assert cpu_kernels.use_own(model) == 2
    assert [type(layer) for layer in model] == [
        cpu_kernels.Dropout,
        nn.Dropout,
        nn.Dropout2d,
        cpu_kernels.MaxPool2d,
        nn.MaxPool2d,
    ]
