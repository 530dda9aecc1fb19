"""A machine file: little is needed, what is wrong is said in one line, and what is written is read back."""

from dataclasses import replace
from pathlib import Path

import pytest

from manyhands.errors import MachineError, StorageError
from manyhands.machine import machine_toml
from manyhands.machine.detect import detect
from manyhands.machine.link import Link, fit
from manyhands.machine.machine import Core, Gpu, Machine
from manyhands.machine.throughput import Rate

LEAST = 'cpu = "Xeon"\ncores = 16\nmemory_gb = 128\n'
RATE = '[[rates]]\ndevice = "cpu"\noperation = "matmul"\nprecision = "fp32"\nthreads = 16\ngflop_per_s = 1500\n'
LINK = '[[links]]\nbackend = "gloo"\noperation = "all_reduce"\nranks = 16\nlatency_us = 500\ngb_per_s = 0.5\n'


def described(folder: Path, text: str) -> Machine:
    path = folder / "cpu16.toml"
    path.write_text(text)
    return machine_toml.read(path)


def test_little_is_needed(tmp_path: Path) -> None:
    machine = described(tmp_path, LEAST)
    assert (machine.host, machine.cpu, machine.memory_bytes) == ("cpu16", "Xeon", 128 * 2**30)
    assert machine.physical_cores == len(machine.cores) == 16
    assert (machine.gpus, machine.rates, machine.links) == ((), (), ())


def test_more_may_be_said(tmp_path: Path) -> None:
    gpu = '[[gpus]]\nname = "P100"\nmemory_gb = 16\n'
    copy = '[[rates]]\ndevice = "cuda"\noperation = "copy"\ngb_per_s = 700\n'
    machine = described(tmp_path, LEAST + gpu + gpu + RATE + copy + LINK)
    assert machine.gpus == (Gpu(0, "P100", 2**34), Gpu(1, "P100", 2**34))
    assert machine.rates == (Rate("cpu", "matmul", "fp32", 16, 1500), Rate("cuda", "copy", "fp32", 0, 700))
    assert machine.links == (Link("gloo", "all_reduce", 16, 500, 0.5),)


def test_cores_with_siblings(tmp_path: Path) -> None:
    cores = "cores = [{ id = 0 }, { id = 1 }, { id = 2, physical = 0 }, { id = 3, physical = 0, socket = 1, node = 1 }]"
    machine = described(tmp_path, LEAST.replace("cores = 16", cores))
    assert machine.cores == (Core(0, 0, 0, 0), Core(1, 1, 0, 0), Core(2, 0, 0, 0), Core(3, 0, 1, 1))
    assert machine.separate_cores == (0, 1, 3)


@pytest.mark.parametrize("cores", [(Core(0, 0, 0, 0), Core(1, 1, 0, 0)), (Core(4, 2, 0, 0), Core(5, 2, 0, 1))])
@pytest.mark.parametrize("gpu", ["H200", "a name that would not fit a line " * 4])
def test_what_is_written_is_read_back(tmp_path: Path, cores: tuple[Core, ...], gpu: str) -> None:
    machine = Machine(
        host="here",
        cpu='AMD "EPYC" é',
        cores=cores,
        memory_bytes=24 * 2**30,
        gpus=(Gpu(1, gpu, 139 * 2**30),),
        system="Linux",
        rates=(Rate("cpu", "matmul", "bf16", 2, 402.5), Rate("cuda", "copy", "fp32", 0, 4000)),
        links=(
            Link("shm", "all_reduce_in_place", 2, 13.1, 20.19, ((4, 12.5e-6), (2**26, 5539e-6))),
            Link("nccl", "send", 2, 0.0, 300.0),
        ),
    )
    machine_toml.write(machine, tmp_path / "machine.toml")
    again = machine_toml.read(tmp_path / "machine.toml")
    assert replace(again, links=()) == replace(machine, links=())
    for link, before in zip(again.links, machine.links, strict=True):
        assert replace(link, points=()) == replace(before, points=())
        assert [size for size, _ in link.points] == [size for size, _ in before.points]
        assert [seconds for _, seconds in link.points] == pytest.approx([seconds for _, seconds in before.points])
    assert Machine.from_json(machine.to_json()) == machine


def test_this_machine_is_read_back(tmp_path: Path) -> None:
    machine = detect()
    machine_toml.write(machine, tmp_path / "machine.toml")
    again = machine_toml.read(tmp_path / "machine.toml")
    assert (again.host, again.cores) == (machine.host, machine.cores)
    assert again.memory_bytes == pytest.approx(machine.memory_bytes, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cores = 16\nmemory_gb = 8", "cpu is missing: add a line cpu = …"),
        ('cpu = "Xeon"\nmemory_gb = 8', "cores is missing: add a line cores = …"),
        (LEAST.replace('"Xeon"', "5"), 'cpu is 5: a text in "quotes" is needed'),
        (LEAST.replace("16", '"many"'), "cores is 'many': a whole number, from 1 to 65536, is needed"),
        (LEAST.replace("16", "true"), "cores is True: a whole number, from 1 to 65536, is needed"),
        (LEAST.replace("16", "0"), "cores is 0: a whole number, from 1 to 65536, is needed"),
        (LEAST.replace("16", "9" * 30), f"cores is {'9' * 30}: a whole number, from 1 to 65536, is needed"),
        (LEAST.replace("16", "[]"), "cores is []: a whole number, or a list of at least one core, is needed"),
        (LEAST.replace("16", "[1, 2]"), "cores is [1, 2]: a list of tables, each under a line [[cores]], is needed"),
        (LEAST.replace("16", "[{ id = 0 }, { id = 0 }]"), "cores has 'id 0' 2 times: leave one of them"),
        (LEAST.replace("16", "[{ id = -1 }]"), "entry 1 of cores: id is -1: a whole number, at least 0, is needed"),
        (LEAST.replace("128", "-1"), "memory_gb is -1: a number above zero is needed"),
        (LEAST.replace("128", "nan"), "memory_gb is nan: a number above zero is needed"),
        (LEAST.replace("128", "1e300"), "memory_gb is 1e+300: a number above zero is needed"),
        (LEAST + "memory = 4", "unknown field 'memory': did you mean 'memory_gb'? Allowed: host, cpu, system,"),
        (LEAST + "gpus = 2", "gpus is 2: a list of tables, each under a line [[gpus]], is needed"),
        (LEAST + '[[gpus]]\nname = "P100"', "entry 1 of gpus: memory_gb is missing: add a line memory_gb = …"),
        (LEAST + RATE.replace("matmul", "matmull"), "entry 1 of rates: operation is 'matmull': did you mean 'matmul'?"),
        (LEAST + RATE.replace("fp32", "fp16"), "entry 1 of rates: precision is 'fp16': "),
        (LEAST + RATE.replace("16", '"four"'), "threads is 'four': a whole number, at least 1, is needed"),
        (LEAST + RATE.replace("gflop", "gb"), "entry 1 of rates: gflop_per_s is missing: add a line gflop_per_s = …"),
        (LEAST + RATE.replace('"cpu"', '"cuda"'), "entry 1 of rates: unknown field 'threads'"),
        (LEAST + RATE + RATE, "rates has 'cpu matmul fp32, threads 16' 2 times: leave one of them"),
        (LEAST + LINK.replace("gloo", "glo"), "entry 1 of links: backend is 'glo': did you mean 'gloo'? Allowed: "),
        (LEAST + LINK.replace("16", "1"), "entry 1 of links: ranks is 1: a whole number, at least 2, is needed"),
        (LEAST + LINK.replace("500", "-1"), "latency_us is -1: a number, zero or above, is needed"),
        (LEAST + LINK + "points = [4, 5]", "entry 1 of links: points is [4, 5]: a list of tables"),
        (LEAST + LINK + "points = [{ bytes = 4 }]", "entry 1 of links: entry 1 of points: us is missing"),
        (
            LEAST + LINK + "points = [{ bytes = 4, us = 1 }, { bytes = 4, us = 2 }]",
            "entry 1 of links: points has 'bytes 4' 2 times: leave one of them",
        ),
        ("cpu = Xeon", "is not a TOML file"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(MachineError) as caught:
        described(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "cpu16.toml"))
    assert told in message
    assert "\n" not in message


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"there is no machine file .*none\.toml: make one with `manyhands probe"):
        machine_toml.read(tmp_path / "none.toml")
    with pytest.raises(MachineError, match="cannot read the machine file"):
        machine_toml.read(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(MachineError, match="is not a TOML file"):
        machine_toml.read(tmp_path / "binary.toml")
    with pytest.raises(StorageError):
        machine_toml.write(detect(), tmp_path)


def test_a_link_without_points_is_a_line() -> None:
    link = Link("gloo", "send", 2, latency_us=100, gb_per_s=2)
    assert link.seconds(0) == pytest.approx(100e-6)
    assert link.seconds(2 * 10**9) == pytest.approx(1 + 100e-6)


def test_a_link_goes_through_its_points() -> None:
    link = Link("gloo", "send", 2, 100, 2, ((10, 1.0), (20, 3.0), (40, 4.0)))
    assert [link.seconds(size) for size in (10, 15, 20, 30, 40)] == pytest.approx([1, 2, 3, 3.5, 4])
    assert link.seconds(5) == pytest.approx(100e-6, rel=1e-3)
    assert link.seconds(60) == pytest.approx(5)  # on from the last point, at the rate from the one before
    slow = Link("gloo", "send", 2, 5e6, 2, ((10, 1.0), (20, 3.0)))
    assert slow.seconds(5) == 1  # never more than the first point


@pytest.mark.parametrize(("latency", "bandwidth"), [(100, 2), (0, 10), (10, 0.1)])
def test_the_fit_finds_the_line(latency: float, bandwidth: float) -> None:
    points = [(4**power, latency * 1e-6 + 4**power / (bandwidth * 1e9)) for power in range(1, 14)]
    assert fit(points) == pytest.approx((latency, bandwidth), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "points", [[(4, 1e-5)], [(4, 3e-5), (16, 2e-5), (64, 1e-5)], [(4, 1e-9), (2**20, 1e-2), (2**22, 8e-2)]]
)
def test_the_fit_of_odd_points_is_a_possible_line(points: list[tuple[int, float]]) -> None:
    latency, bandwidth = fit(points)
    assert latency >= 0
    assert 0 < bandwidth < float("inf")
