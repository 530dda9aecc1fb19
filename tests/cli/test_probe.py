"""`manyhands probe`: two tables or one object, and a file that is read back."""

import os
from pathlib import Path

import pytest

from manyhands.comm import links as measure
from manyhands.errors import RankError
from manyhands.machine import machine_toml
from manyhands.machine.link import Link
from manyhands.machine.machine import Machine
from manyhands.machine.throughput import Rate
from manyhands.measure import machine_probe


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """All for real, but shorter."""
    monkeypatch.setattr(machine_probe.probe, "__kwdefaults__", {"seconds": 0.002, "largest": 1024})
    monkeypatch.setattr(measure, "backends", lambda machine: ["shm"])


@pytest.mark.usefixtures("short")
def test_probe(manyhands, tmp_path: Path) -> None:
    said = manyhands("probe", "--out", tmp_path / "new" / "machine.toml", "--ranks", 2, "--json", "--quiet")
    assert said.code == 0, said.err
    machine = Machine.from_json(said.json)
    assert {core.id for core in machine.cores} <= os.sched_getaffinity(0)
    assert [rate.threads for rate in machine.rates if rate.operation == "copy"] == machine_probe.doublings(
        1, machine.physical_cores
    )
    if machine.physical_cores > 1:
        assert [link.operation for link in machine.links] == ["all_reduce", "all_reduce_in_place", "send"]
    again = machine_toml.read(tmp_path / "new" / "machine.toml")
    assert [rate.rate for rate in again.rates] == pytest.approx([rate.rate for rate in machine.rates], rel=1e-3)
    assert [link.operation for link in again.links] == [link.operation for link in machine.links]


def test_tables(manyhands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = (Rate("cpu", "matmul", "fp32", 1, 97.1), Rate("cpu", "matmul", "fp32", 2, 183.2))
    links = (Link("gloo", "all_reduce", 2, 160.0, 1.6),)
    machine = Machine("here", "EPYC", (), 2**34, rates=(*rates, Rate("cuda", "matmul", "bf16", 0, 7e5)), links=links)
    monkeypatch.setattr(machine_probe, "probe", lambda ranks: machine)
    monkeypatch.chdir(tmp_path)
    Path("machine.toml").write_text("an old one")
    said = manyhands("probe")
    assert said.code == 0, said.err
    for shown in ("1 thread", "2 threads", "GPU", "matmul fp32", "183.2", "700,000.0", "gloo all reduce", "160.0"):
        assert shown in said.out
    assert "written to machine.toml" in said.out
    assert "an old one" not in Path("machine.toml").read_text()


def test_a_backend_that_fails_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> list[Link]:
        raise RankError("rank 1 was killed (signal 9)")

    monkeypatch.setattr(measure, "links", fail)
    assert machine_probe._links("mpi", 2, [0, 1], 4, 0.1) == []
    assert "mpi with 2 ranks is left out: rank 1 was killed (signal 9)" in capsys.readouterr().err


def test_doublings() -> None:
    assert machine_probe.doublings(1, 1) == [1]
    assert machine_probe.doublings(1, 16) == [1, 2, 4, 8, 16]
    assert machine_probe.doublings(2, 12) == [2, 4, 8, 12]
    assert machine_probe.doublings(2, 1) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--ranks", "0"], "ranks=0: a whole number, at least 1, is needed"),
        (["--out", "."], ". is a folder: choose the name of a file"),
        (["--out", f"{__file__}/machine.toml"], "choose another name"),
        (["--out", "/proc/machine.toml"], "cannot write /proc/machine.toml"),
    ],
)
def test_bad_input(manyhands, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str) -> None:
    monkeypatch.setattr(machine_probe, "probe", lambda ranks: pytest.fail("it is told before the minute is spent"))
    said = manyhands("probe", *arguments)
    assert said.code == 2
    assert told in said.error


def test_not_among_ranks(manyhands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    said = manyhands("probe", "--out", tmp_path / "machine.toml")
    assert said.code == 2
    assert "without torchrun" in said.error
