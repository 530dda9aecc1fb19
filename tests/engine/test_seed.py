"""What layers in parts draw: the same at the same place, step and layer, and nowhere else."""

import torch

from manyhands.engine.seed import seed_of
from manyhands.engine.sharding.redistribute import Post
from manyhands.plan.tensor_layout import Layout, Place

LAYOUT = Layout(1, (0, 500, 1000), {0: Place(0, 0), 1: Place(0, 1), 2: Place(0, 1)})


def mask(rank: int, step: int = 1, number: int = 0, layer: int = 1, seed: int = 0) -> torch.Tensor:
    post = Post(rank, seed)
    post.step = step
    post.begin_pass(number)
    for _ in range(layer):
        with post.drawing(LAYOUT):
            drawn = torch.nn.functional.dropout(torch.ones(64, 500), 0.3)
    return drawn == 0


def test_copies_draw_the_same_and_others_do_not() -> None:
    assert torch.equal(mask(1), mask(2))
    others = [mask(0), mask(1, step=2), mask(1, number=1), mask(1, layer=2), mask(1, seed=1)]
    assert not any(torch.equal(mask(1), other) for other in others)


def test_as_many_are_dropped_as_on_one_device() -> None:
    whole = torch.cat([mask(0), mask(1)], 1).double()
    assert abs(float(whole.mean()) - 0.3) < 0.01
    assert abs(float((mask(0) & mask(1)).double().mean()) - 0.09) < 0.01, "parts draw apart"


def test_what_is_drawn_elsewhere_is_left_as_it_was() -> None:
    torch.manual_seed(5)
    first = torch.rand(3)
    torch.manual_seed(5)
    mask(0)
    assert torch.equal(torch.rand(3), first)


def test_a_rank_without_a_place_has_a_seed_too() -> None:
    """The hash of None was another one in each process."""
    assert torch.equal(mask(7), mask(7))
    assert seed_of(0, 1, 2) == seed_of(0, 1, 2) != seed_of(0, 1)
