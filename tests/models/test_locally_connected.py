"""The unshared convolution against a loop over positions."""

import pytest
import torch

from manyhands.models.locally_connected import LocallyConnected2d


@pytest.mark.parametrize(("size", "kernel", "stride"), [((5, 4), 3, 1), ((7, 6), 2, 2), ((6, 9), 3, 2), ((3, 3), 3, 1)])
def test_each_position_has_weights_of_its_own(size: tuple[int, int], kernel: int, stride: int) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = LocallyConnected2d(2, 3, size, kernel, stride).double()
    image = torch.randn(4, 2, *size, generator=generator, dtype=torch.float64)
    height, width = layer.left
    expected = torch.empty(4, 3, height, width, dtype=torch.float64)
    for row in range(height):
        for column in range(width):
            top, left, position = row * stride, column * stride, row * width + column
            window = image[:, :, top : top + kernel, left : left + kernel].reshape(4, -1)
            expected[:, :, row, column] = window @ layer.weight[position].T + layer.bias[:, position]
    assert torch.allclose(layer(image), expected, atol=1e-12)


def test_shared_weights_make_it_a_convolution() -> None:
    layer = LocallyConnected2d(2, 3, (6, 5), 3)
    conv = torch.nn.Conv2d(2, 3, 3)
    with torch.no_grad():
        layer.weight.copy_(conv.weight.reshape(1, 3, -1).expand_as(layer.weight))
        layer.bias.copy_(conv.bias.unsqueeze(-1).expand_as(layer.bias))
    image = torch.randn(2, 2, 6, 5, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(layer(image), conv(image), atol=1e-6)


def test_gradients() -> None:
    layer = LocallyConnected2d(1, 2, (4, 3), 2).double()
    image = torch.randn(2, 1, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(layer, image.requires_grad_())
