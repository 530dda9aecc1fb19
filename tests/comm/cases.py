"""What every backend must do: each function runs in all ranks of a fresh group and asserts."""

import random
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from manyhands.errors import RankError

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, torch.int16, torch.bool)
SIZES = (0, 1, 1001)


def numbers_for(backend: str) -> tuple[torch.dtype, ...]:
    return NUMBERS if backend == "gloo" else (*NUMBERS, torch.int16)


def movable_for(backend: str) -> tuple[torch.dtype, ...]:
    return tuple(dtype for dtype in ALL if backend != "gloo" or dtype not in (torch.int16, torch.bool))


def values(rank: int, count: int, dtype: torch.dtype) -> Tensor:
    """Small whole numbers, which every dtype adds up without rounding; another row for each rank."""
    row = torch.arange(count) % 5 + rank + 1
    return row % 2 == 0 if dtype == torch.bool else row.to(dtype)


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def spread(tensor: Tensor) -> Tensor:
    """A tensor with gaps in its memory, of the same elements."""
    gaps = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)
    gaps[..., 0] = tensor
    return gaps[..., 0]


def layouts(backend: str) -> Iterator[Callable[[Tensor], Tensor]]:
    """Contiguous, and not, of which gloo silently makes nonsense."""
    yield lambda tensor: tensor
    if backend != "gloo":
        yield spread


def all_reduce(backend: str, rank: int, world: int) -> None:
    for dtype, count, layout in product(numbers_for(backend), SIZES, layouts(backend)):
        rows = torch.stack([values(each, count, dtype) for each in range(world)])
        for op, expected in (
            (dist.ReduceOp.SUM, rows.sum(0, dtype=dtype)),
            (dist.ReduceOp.MIN, rows.amin(0)),
            (dist.ReduceOp.MAX, rows.amax(0)),
            (dist.ReduceOp.PRODUCT, rows.prod(0, dtype=dtype)),
        ):
            tensor = layout(rows[rank].clone())
            dist.all_reduce(tensor, op)
            same(tensor, expected)


def average(backend: str, rank: int, world: int) -> None:
    for dtype in FLOATS:
        tensor = torch.full((33,), rank * 2.0, dtype=dtype)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        same(tensor, torch.full((33,), world - 1.0, dtype=dtype))
    half = torch.full((3,), 60000.0, dtype=torch.float16)  # whose sum is no float16
    dist.all_reduce(half, dist.ReduceOp.AVG)
    same(half, torch.full((3,), 60000.0, dtype=torch.float16))


def truth(backend: str, rank: int, world: int) -> None:
    rows = torch.tensor([[True, each == 0, False] for each in range(world)])
    for op, expected in (
        (dist.ReduceOp.SUM, rows.any(0)),
        (dist.ReduceOp.MAX, rows.any(0)),
        (dist.ReduceOp.PRODUCT, rows.all(0)),
        (dist.ReduceOp.MIN, rows.all(0)),
    ):
        tensor = rows[rank].clone()
        dist.all_reduce(tensor, op)
        same(tensor, expected)


def larger_than_the_buffer(backend: str, rank: int, world: int) -> None:
    for count in (1 << 18, (1 << 18) + 1, 999_983):  # a buffer of shm holds 2**18 fp32
        tensor = values(rank, count, torch.float32)
        dist.all_reduce(tensor)
        same(tensor, sum((values(each, count, torch.float32) for each in range(world)), torch.zeros(count)))
        dist.broadcast(tensor := values(rank, count, torch.float32), world - 1)
        same(tensor, values(world - 1, count, torch.float32))
        gathered = torch.empty(world * count)
        dist.all_gather_into_tensor(gathered, values(rank, count, torch.float32))
        same(gathered, torch.cat([values(each, count, torch.float32) for each in range(world)]))
        part = torch.empty(count)
        dist.reduce_scatter_tensor(part, gathered)
        same(part, world * values(rank, count, torch.float32))


def reduce(backend: str, rank: int, world: int) -> None:
    for dtype, count, root in product(numbers_for(backend), SIZES[1:], range(world)):
        tensor = values(rank, count, dtype)
        dist.reduce(tensor, root)
        if rank == root:
            same(tensor, torch.stack([values(each, count, dtype) for each in range(world)]).sum(0, dtype=dtype))


def broadcast(backend: str, rank: int, world: int) -> None:
    for dtype, count, root, layout in product(movable_for(backend), SIZES, range(world), layouts(backend)):
        tensor = layout(values(rank, count, dtype))
        dist.broadcast(tensor, root)
        same(tensor, values(root, count, dtype))


def all_gather(backend: str, rank: int, world: int) -> None:
    for dtype, count, layout in product(movable_for(backend), SIZES[1:], layouts(backend)):
        outputs = [torch.zeros(count, dtype=dtype) for _ in range(world)]
        dist.all_gather(outputs, layout(values(rank, count, dtype)))
        for each, output in enumerate(outputs):
            same(output, values(each, count, dtype))
        joined = torch.zeros(world * count, dtype=dtype)
        dist.all_gather_into_tensor(joined, values(rank, count, dtype))
        same(joined, torch.cat(outputs))


def reduce_scatter(backend: str, rank: int, world: int) -> None:
    for dtype, count, layout in product(numbers_for(backend), SIZES[1:], layouts(backend)):
        given = [layout(values(rank + each, count, dtype)) for each in range(world)]
        expected = torch.stack([values(rank + each, count, dtype) for each in range(world)]).sum(0, dtype=dtype)
        output = layout(torch.zeros(count, dtype=dtype))
        dist.reduce_scatter(output, given)
        same(output, expected)
        output = torch.zeros(count, dtype=dtype)
        dist.reduce_scatter_tensor(output, torch.cat(given))
        same(output, expected)


def gather_and_scatter(backend: str, rank: int, world: int) -> None:
    for dtype, count, root in product(movable_for(backend), SIZES[1:], range(world)):
        outputs = [torch.zeros(count, dtype=dtype) for _ in range(world)] if rank == root else None
        dist.gather(values(rank, count, dtype), outputs, root)
        for each, output in enumerate(outputs or []):
            same(output, values(each, count, dtype))
        output = torch.zeros(count, dtype=dtype)
        dist.scatter(output, outputs, root)
        same(output, values(rank, count, dtype))


def all_to_all(backend: str, rank: int, world: int) -> None:
    for dtype, count in product(movable_for(backend), SIZES[1:]):
        output = torch.zeros(world * count, dtype=dtype)
        dist.all_to_all_single(output, torch.cat([values(rank + each, count, dtype) for each in range(world)]))
        same(output, torch.cat([values(rank + each, count, dtype) for each in range(world)]))


def objects(backend: str, rank: int, world: int) -> None:
    gathered: list[object] = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * 100 * rank})
    assert gathered == [{"rank": each, "text": "x" * 100 * each} for each in range(world)]
    told = [{"from": rank}]
    dist.broadcast_object_list(told, world - 1)
    assert told == [{"from": world - 1}]


def send_and_receive(backend: str, rank: int, world: int) -> None:
    """Around a ring, in order, also what is larger than a box."""
    if world == 1:
        return
    to, source = (rank + 1) % world, (rank - 1) % world
    for dtype, count in product(movable_for(backend), (1, 1001, 700_001)):
        *_, layout = layouts(backend)
        received = layout(torch.zeros(count, dtype=dtype))
        if rank % 2 == 0 and rank != world - 1:
            dist.send(values(rank, count, dtype), to)
            dist.recv(received, source)
        else:
            work = dist.irecv(received, source)
            dist.send(values(rank, count, dtype), to)
            work.wait()
        same(received, values(source, count, dtype))


def all_send_first(backend: str, rank: int, world: int) -> None:
    """Nobody waits for a send before it has asked to receive: no rank may wait for ever."""
    if world == 1:
        return
    count, peers = 600_000, [each for each in range(world) if each != rank]
    received = {peer: torch.zeros(count) for peer in peers}
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, values(rank, count, torch.float32), peer) for peer in peers]
        + [dist.P2POp(dist.irecv, received[peer], peer) for peer in peers]
    )
    total = torch.ones(1)
    dist.all_reduce(total)  # while messages are on their way
    for work in works:
        work.wait()
    assert total.item() == world
    for peer in peers:
        same(received[peer], values(peer, count, torch.float32))


def told_apart_by_tags(backend: str, rank: int, world: int) -> None:
    """Messages are taken in another order than they were sent in, also larger ones than a box holds."""
    if world == 1:
        return
    to, source = (rank + 1) % world, (rank - 1) % world
    counts = {7: 700_001, 3: 5, 11: 0, 0: 1001}
    works = [dist.isend(values(rank, count, torch.float32), to, tag=tag) for tag, count in counts.items()]
    works += [dist.isend(values(rank + 1, 5, torch.float32), to, tag=3)]
    for tag in sorted(counts):
        received = torch.zeros(counts[tag])
        dist.recv(received, source, tag=tag)
        same(received, values(source, counts[tag], torch.float32))
    second = torch.zeros(5)
    dist.recv(second, source, tag=3)
    same(second, values(source + 1, 5, torch.float32))
    for work in works:
        work.wait()


def many_in_a_row(backend: str, rank: int, world: int) -> None:
    """Whichever rank is ahead, nothing is overwritten that another still reads."""
    choose = random.Random(0)
    for step in range(300):
        kind, count = choose.choice(("reduce", "broadcast", "gather", "barrier")), choose.choice((1, 33, 5000))
        tensor = torch.full((count,), float(rank + step))
        if kind == "reduce":
            dist.all_reduce(tensor)
            same(tensor, torch.full((count,), float(sum(range(world)) + step * world)))
        elif kind == "broadcast":
            dist.broadcast(tensor, step % world)
            same(tensor, torch.full((count,), float(step % world + step)))
        elif kind == "gather":
            joined = torch.empty(world * count)
            dist.all_gather_into_tensor(joined, tensor)
            same(joined, (torch.arange(world) + step).float().repeat_interleave(count))
        else:
            dist.barrier()


def part_of_the_ranks(backend: str, rank: int, world: int) -> None:
    """A group of fewer ranks, beside the one of all."""
    members = list(range(1, world)) or [0]
    group = dist.new_group(members)
    if rank in members:
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == sum(members)
    dist.barrier()


def data_parallel(backend: str, rank: int, world: int) -> None:
    """DDP has the gradients of one process, and all ranks the same to the bit."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 3)).double()
    inputs, labels = torch.randn(12, 20).double(), torch.randint(3, (12,))
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    parallel = DistributedDataParallel(model)
    mine = slice(rank * 12 // world, (rank + 1) * 12 // world)
    torch.nn.functional.cross_entropy(parallel(inputs[mine]), labels[mine]).backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-14)
        copies = [torch.empty_like(gradient) for _ in range(world)]
        dist.all_gather(copies, parameter.grad)
        assert all(torch.equal(copy, parameter.grad) for copy in copies)


def sharded_tensors(backend: str, rank: int, world: int) -> None:
    """DTensor, and FSDP2 upon it, compute what one process does."""
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    one, other = torch.randn(8, 6).double(), torch.randn(6, 4).double()
    product = distribute_tensor(one, mesh, [Shard(1)]) @ distribute_tensor(other, mesh, [Shard(0)])
    torch.testing.assert_close(product.full_tensor(), one @ other)
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Linear(9, 3)).double()
    expected = torch.autograd.grad(model(one).square().mean(), list(model.parameters()))
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh)
    model(one).square().mean().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.full_tensor(), gradient)


CONTRACT = (
    all_reduce, average, truth, larger_than_the_buffer, reduce, broadcast, all_gather, reduce_scatter,
    gather_and_scatter, all_to_all, objects, send_and_receive, all_send_first, told_apart_by_tags,
    many_in_a_row, part_of_the_ranks,
    data_parallel, sharded_tensors,
)  # fmt: skip
GAPS_OF_GLOO = {"truth": "no reduction of truth values", "average": "no AVG of float16"}


# Of shm alone.


def shared(backend: str, rank: int, world: int) -> None:
    """Reduced in place: what each rank sees, and that views may be taken."""
    group = dist.group.WORLD
    for dtype, count in product(NUMBERS, (0, 1, 130, 300_000)):
        copies = group.shared(count, dtype)
        assert len(copies) == world
        expected = torch.stack([values(each, count, dtype) for each in range(world)]).sum(0, dtype=dtype)
        copies[rank].copy_(values(rank, count, dtype))
        same(group.all_reduce_shared(copies), expected)
        same(copies[-1], expected if world == 1 else values(world - 1, count, dtype))
        group.meet()
        copies[rank].copy_(values(rank, count, dtype))
        group.all_reduce_every(copies)
        for copy in copies:
            same(copy, expected)
        group.meet()
        copies[rank].copy_(values(rank, count, dtype))
        part = group.reduce_scatter_shared([copy[:100] for copy in copies])
        same(copies[rank][100:], values(rank, count, dtype)[100:])
        sizes: list[object] = [None] * world
        dist.all_gather_object(sizes, part.clone())
        same(torch.cat([each for each in sizes if isinstance(each, Tensor)]), expected[:100])


def one_common_tensor(backend: str, rank: int, world: int) -> None:
    """All ranks use the first row: what one writes, all read."""
    weight = dist.group.WORLD.shared(10, torch.float32)[0]
    if rank == world - 1:
        weight.fill_(7)
    dist.barrier()
    same(weight, torch.full((10,), 7.0))
    dist.barrier()


def maps_of_ours() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:manyhands")


def memory_is_freed(backend: str, rank: int, world: int) -> None:
    group = dist.new_group(backend="shm")
    before = maps_of_ours()
    copies = group.shared(1000, torch.float32)
    assert maps_of_ours() == before + 1
    del copies
    assert maps_of_ours() == before
    dist.barrier()
    dist.destroy_process_group(group)
    del group
    assert maps_of_ours() == before - 1


def beside_gloo(backend: str, rank: int, world: int) -> None:
    group = dist.new_group(backend="shm")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world * world] * 3


def hang(backend: str, rank: int, world: int) -> None:
    """The last rank does not come: the others say so, and in what."""
    limited = dist.new_group(backend="shm", timeout=timedelta(seconds=1))
    if rank == world - 1:
        time.sleep(2)
        return
    for what, operation in (
        ("all_reduce", lambda: dist.all_reduce(torch.ones(3), group=limited)),
        ("receive", lambda: dist.recv(torch.ones(3), world - 1, group=limited)),
    ):
        late = f"^rank {world - 1} did not come: rank {rank} waited 1 s in {what}$"
        with pytest.raises(RankError, match=late):
            operation()


def wrong_sizes(backend: str, rank: int, world: int) -> None:
    for operation, words in (
        (lambda: dist.all_gather([torch.ones(2)] * world, torch.ones(3)), "all_gather needs tensors of one size"),
        (lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(7)), "7 elements do not divide among"),
    ):
        with pytest.raises(RankError, match=words):
            operation()
