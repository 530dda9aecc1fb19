"""What compression must do: each function runs in all ranks of a fresh group and asserts."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from manyhands.comm.comm_hook import Compression

LOSSY = ("bf16", "fp16", "topk", "powersgd")
KINDS = ("none", *LOSSY)
SHAPES = ((40, 30), (30,), (6, 4, 5, 5), (50, 40), (7,))


class LocalBatch(nn.Module):
    """A model whose gradients are what it is given."""

    def __init__(self, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(shape, dtype=dtype) for shape in shapes)

    def forward(self, gradients: list[Tensor]) -> Tensor:
        # Not in the order of the parameters, so that DDP's second layout is another than its first.
        pairs = sorted(zip(self.weights, gradients, strict=True), key=lambda pair: pair[0].numel())
        return torch.stack([(weight * gradient).sum() for weight, gradient in pairs]).sum()


class Rank:
    """A model under DDP with compression; called with gradients it gives what comes of them."""

    def __init__(self, model: nn.Module, kind: str, bucket: float | None = None, **options: float) -> None:
        self.model, self.bucket = model, bucket
        self.compression = Compression(kind, model, **options)  # type: ignore[arg-type]
        self.buckets: list[list[str]] = []
        self.wrap()

    def wrap(self) -> None:
        """Begin with DDP's first layout, again."""
        self.parallel: nn.Module = self.model  # the old one takes its hooks away as it goes
        self.parallel = DistributedDataParallel(self.model, bucket_cap_mb=self.bucket)
        self.parallel.register_comm_hook(self, Rank.hook)

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        self.buckets.append([self.compression.names[parameter] for parameter in bucket.parameters()])
        return self.compression.hook(bucket)

    def __call__(self, gradients: list[Tensor], weight: float = 1.0) -> list[Tensor]:
        self.buckets.clear()
        self.parallel.zero_grad()
        self.compression.weight = weight
        self.parallel(gradients).backward()
        return [parameter.grad.clone() for parameter in self.parallel.parameters() if parameter.grad is not None]


def given(kind: str, bucket: float | None = None, dtype: torch.dtype = torch.float32, **options: float) -> Rank:
    return Rank(LocalBatch(*SHAPES, dtype=dtype), kind, bucket, **options)


def random(rank: int, step: int = 0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in SHAPES]


def summed(tensors: list[Tensor], weight: float = 1.0) -> list[Tensor]:
    copies = [tensor * weight for tensor in tensors]
    for copy in copies:
        dist.all_reduce(copy)
    return copies


def same(one: list[Tensor], other: list[Tensor]) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def close(one: list[Tensor], other: list[Tensor], tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def alike(tensors: list[Tensor], world: int) -> None:
    """All ranks have the same to the bit."""
    row = torch.cat([tensor.flatten() for tensor in tensors])
    rows = [torch.empty_like(row) for _ in range(world)]
    dist.all_gather(rows, row)
    assert all(torch.equal(each, row) for each in rows)


def sum_of_all(backend: str, rank: int, world: int) -> None:
    """Without compression: whole numbers, so that no order of adding rounds."""
    ddp = given("none", bucket=0.001)
    for step in range(3):
        gradients = [(tensor * 10).round() for tensor in random(rank, step)]
        weight = rank + 0.5
        same(ddp(gradients, weight), summed(gradients, weight))
    assert len(ddp.buckets) > 1
    assert ddp.compression.state_dict() == {}


def sum_of_rounded(backend: str, rank: int, world: int) -> None:
    """The casts: one step, against a cast made by hand."""
    for kind, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        weight = 1 / (rank + 2)
        halves = [(gradient * weight).to(dtype).float() for gradient in random(rank)]
        close(given(kind)(random(rank), weight), summed(halves), 2 * torch.finfo(dtype).eps)


def everything_of_top(backend: str, rank: int, world: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        top, none = given("topk", dtype=dtype, share=1.0), given("none", dtype=dtype)
        for step in range(2):
            gradients = [(tensor * 10).round() for tensor in random(rank, step, dtype)]
            same(top(gradients, 0.5), none(gradients, 0.5))


def the_largest(backend: str, rank: int, world: int) -> None:
    """Each rank's largest arrives; the rest comes when its time has come."""
    ddp = Rank(LocalBatch((4, 25)), "topk", share=0.01)
    mine = torch.zeros(4, 25)
    mine[3, rank], mine[0, rank] = 5.0, -2.0
    expected = torch.zeros(4, 25)
    expected[3, :world] = 5.0
    same(ddp([mine]), [expected])
    expected[3, :world], expected[0, :world] = 0.0, -2.0
    same(ddp([torch.zeros(4, 25)]), [expected])


def ranks_stay_alike(backend: str, rank: int, world: int) -> None:
    for kind in KINDS:
        ddp = given(kind, bucket=0.004)
        for step in range(4):
            alike(ddp(random(rank, step), weight=(rank + 1) / 7), world)
        alike(list(ddp.compression.factors.values()) or [torch.zeros(1)], world)


def nothing_is_lost(backend: str, rank: int, world: int) -> None:
    """What was applied and what is still owed add up to the gradients; what is owed stays small."""
    gradients, weight, steps = random(rank, dtype=torch.float64), (rank + 1) / 5, 30
    true = summed(gradients, weight)
    for kind in LOSSY:
        ddp = given(kind, bucket=0.001, dtype=torch.float64, share=0.1)
        applied = [torch.zeros_like(tensor) for tensor in true]
        for _ in range(steps):
            for total, gradient in zip(applied, ddp(gradients, weight), strict=True):
                total.add_(gradient)
        left = ddp.compression.residuals.left
        owed = summed([left[name].contiguous() for name in ddp.compression.parameters])
        # The sum of the casts itself is rounded to their precision, at every step.
        tolerance = 1e-9 if kind in ("topk", "powersgd") else 2**-8
        for total, rest, gradient in zip(applied, owed, true, strict=True):
            torch.testing.assert_close((total + rest) / steps, gradient, rtol=tolerance, atol=tolerance)
            assert rest.norm() / steps < 0.25 * gradient.norm()


def fp16_stays_finite(backend: str, rank: int, world: int) -> None:
    """What is too large or too small for fp16 comes in time."""
    ddp = Rank(LocalBatch((2,)), "fp16")
    gradient = torch.tensor([100_000.0, 1e-8])
    applied = torch.zeros(2)
    for step in range(60):
        (result,) = ddp([gradient if step == 0 else gradient * torch.tensor([0.0, 1.0])])
        assert result.isfinite().all()
        applied += result
    assert abs(applied[0].item() / (world * 100_000) - 1) < 2**-10  # the sum itself is rounded
    assert abs(applied[1].item() - world * 60e-8) <= world * 2**-24


def low_rank_is_exact(backend: str, rank: int, world: int) -> None:
    """A sum of matrices of rank 1 is of rank `world`; what is no large matrix is sent whole."""
    torch.manual_seed(rank)
    ddp = Rank(LocalBatch((60, 50), (50,), dtype=torch.float64), "powersgd", rank=4)
    for _ in range(3):
        gradients = [torch.randn(60, 1).double() @ torch.randn(1, 50).double(), torch.randn(50).double()]
        close(ddp(gradients), summed(gradients), 1e-9)


def factors_recover(backend: str, rank: int, world: int) -> None:
    """A step without a gradient leaves factors of zero: two steps later all has come."""
    ddp = Rank(LocalBatch((64, 32)), "powersgd", rank=2)
    same(ddp([torch.zeros(64, 32)]), [torch.zeros(64, 32)])
    applied = ddp([torch.ones(64, 32)])[0] + ddp([torch.ones(64, 32)])[0]
    close([applied], [torch.full((64, 32), 2.0 * world)])


def layouts_do_not_matter(backend: str, rank: int, world: int) -> None:
    """DDP's buckets are rebuilt after the first step: nobody gets another's residual, whatever the buckets."""
    for kind in LOSSY:
        one, many = given(kind, share=0.1), given(kind, bucket=0.001, share=0.1)
        layouts, tolerance = [], 0.03 if kind in ("bf16", "fp16") else 1e-4
        for step in range(6):
            if step == 3:
                many.wrap()
            gradients = random(rank, step)
            close(one(gradients), many(gradients), tolerance)
            layouts.append([*many.buckets])
        assert [len(layout) > 1 for layout in layouts] == [False, True, True, False, True, True]
        assert layouts[0][0] != [name for bucket in layouts[1] for name in bucket]
        for name, left in one.compression.residuals.left.items():
            close([many.compression.residuals.left[name]], [left], tolerance)


def convolved(kind: str, rank: int, formats: tuple[torch.memory_format, ...]) -> list[Tensor]:
    """The gradient and the residual of a convolution that is resumed at every step, in another memory format."""
    state: dict[str, Tensor] = {}
    for step, memory_format in enumerate(formats):
        torch.manual_seed(0)
        model = nn.Conv2d(3, 30, 3).double().to(memory_format=memory_format)
        ddp = Rank(model, kind, rank=1)
        ddp.compression.load_state_dict(state)
        torch.manual_seed(10 * rank + step)
        ddp.parallel(torch.randn(2, 3, 9, 9).double()).square().sum().backward()
        state = ddp.compression.state_dict()
    assert model.weight.grad is not None
    return [model.weight.grad.contiguous(), state["residual.weight"].contiguous()]


def memory_formats(backend: str, rank: int, world: int) -> None:
    """In channels-last memory a residual is the same, and it stays with its element when the format changes."""
    plain, last = torch.contiguous_format, torch.channels_last
    expected = convolved("topk", rank, (plain, plain, plain))
    close(convolved("topk", rank, (last, last, last)), expected)
    close(convolved("topk", rank, (plain, last, plain)), expected)
    alike(convolved("powersgd", rank, (last, last, last))[:1], world)


def bytes_are_counted(backend: str, rank: int, world: int) -> None:
    sizes = [tensor.numel() for tensor in random(0)]
    half = 4 if backend == "mpi" else 2  # MPI adds up no half precision
    # (40, 30) and (50, 40) are matrices worth it at rank 4; (6, 4 · 5 · 5) is none
    low_rank = (40 + 30) * 4 + (50 + 40) * 4 + 30 + 600 + 7
    expected = {
        "none": 4 * sum(sizes),
        "bf16": half * sum(sizes),
        "fp16": half * sum(sizes),
        "topk": sum(max(1, round(0.02 * size)) for size in sizes) * (4 + 4),
        "powersgd": 4 * low_rank,
    }
    for kind in KINDS:
        ddp = given(kind, bucket=0.001, share=0.02)
        assert ddp.compression.ratio == 1.0
        for step in range(3):
            ddp(random(rank, step))
        assert ddp.compression.sent_bytes == 3 * expected[kind]
        assert ddp.compression.plain_bytes == 3 * 4 * sum(sizes)
        assert ddp.compression.ratio == 4 * sum(sizes) / expected[kind]


def resumed(backend: str, rank: int, world: int) -> None:
    """A fresh model with the state of another goes on as that one does, though its buckets are not rebuilt yet."""
    for kind in KINDS:
        ddp = given(kind, bucket=0.001)
        for step in range(3):
            ddp(random(rank, step), 0.3)
        other = given(kind, bucket=0.001)
        other.compression.load_state_dict(ddp.compression.state_dict())
        for step in range(3, 6):
            # With three ranks, where an element lies in a bucket decides in which order gloo adds it up.
            check = same if world == 2 else close
            tolerance = () if check is same else (0.02 if kind in ("bf16", "fp16") else 1e-4,)
            check(other(random(rank, step), 0.3), ddp(random(rank, step), 0.3), *tolerance)


def part_of_the_ranks(backend: str, rank: int, world: int) -> None:
    """The group that is given counts, not the one of all."""
    members = list(range(1, world))
    group = dist.new_group(members)
    if rank in members:
        model = LocalBatch((100,))
        ddp = DistributedDataParallel(model, process_group=group)
        ddp.register_comm_hook(Compression("topk", model, group, share=1.0), Compression.hook)
        ddp([torch.full((100,), float(rank))]).backward()
        assert model.weights[0].grad is not None
        same([model.weights[0].grad], [torch.full((100,), float(sum(members)))])
    dist.barrier()


def trained(kind: str, rank: int, world: int) -> tuple[float, float]:
    """The loss before and after some steps, over all samples."""
    torch.manual_seed(0)
    inputs = torch.randn(96, 20)
    labels = (inputs @ torch.randn(20, 5)).argmax(1)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 5))
    ddp = DistributedDataParallel(model)
    compression = Compression(kind, model, share=0.1, rank=2)
    ddp.register_comm_hook(compression, Compression.hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
    mine = slice(96 * rank // world, 96 * (rank + 1) // world)
    compression.weight = (mine.stop - mine.start) / 96
    before = nn.functional.cross_entropy(model(inputs), labels).item()
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(inputs[mine]), labels[mine]).backward()
        optimizer.step()
    alike([parameter.detach() for parameter in model.parameters()], world)
    return before, nn.functional.cross_entropy(model(inputs), labels).item()


def learns(backend: str, rank: int, world: int) -> None:
    before, plain = trained("none", rank, world)
    for kind, worse in (("bf16", 0.01), ("fp16", 0.01), ("topk", 0.05), ("powersgd", 0.05)):
        _, after = trained(kind, rank, world)
        assert after - plain < worse * (before - plain)


ALL: tuple[Callable[[str, int, int], None], ...] = (
    sum_of_all, sum_of_rounded, everything_of_top, the_largest, ranks_stay_alike, nothing_is_lost, fp16_stays_finite,
    low_rank_is_exact, factors_recover, layouts_do_not_matter, memory_formats, bytes_are_counted, resumed,
    part_of_the_ranks, learns,
)  # fmt: skip
