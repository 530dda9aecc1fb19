"""On a GPU: a batch that does not fit fails in its own process, and the next goes on."""

import pytest
import torch

from manyhands.config import Config, with_values
from manyhands.plan.spec import parse
from manyhands.tune.child_process import settled
from manyhands.tune.throughput import Speeds

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LEFT = 3 * 2**30  # bytes


@pytest.mark.parametrize("capture", ["on", "off"])
def test_out_of_memory(capture: str) -> None:
    """All but a little of the GPU is taken by somebody else."""
    values = {"model.name": "convnet", "data.name": "synthetic:3x64x64,4", "data.size": 40_000}
    config = with_values(Config(), values)
    plan = parse(f"serial,device=cuda,precision=fp32,layout=channels_last,compile=off,capture={capture}")
    speeds = Speeds(config, settled(config, plan))
    taken = torch.empty(max(torch.cuda.mem_get_info()[0] - LEFT, 0), dtype=torch.uint8, device="cuda")
    try:
        small, large, after = (speeds.at(size) for size in (16, 30_000, 32))
    finally:
        del taken
        torch.cuda.empty_cache()
    assert (small.failed, after.failed) == (None, None)
    assert large.failed is not None
    assert "memory" in large.failed
