"""Machines that are described: those that ship have sources, little is needed, what is wrong is said in one line."""

from pathlib import Path

import pytest

from manyhands.errors import MachineError
from manyhands.graph.graph import KINDS
from manyhands.machine import cluster_toml
from manyhands.machine.cluster import Accelerator, Cluster, Level

NAMES = ["a100x8-nvlink", "cpu16", "edge4-1gbe", "h200", "k20-pcie", "p100x4-25gbe", "p100x4-ib"]
ACCELERATOR = '[accelerator]\nname = "P100"\nmemory_gb = 16\ngb_per_s = 732\ntflop_per_s = { fp32 = 10.6 }\n'
LEVEL = "[[levels]]\ndevices = 1\ngb_per_s = 18\nlatency_us = 8\n"
LEAST = ACCELERATOR + LEVEL


def read(folder: Path, text: str) -> Cluster:
    path = folder / "mine.toml"
    path.write_text(text)
    return cluster_toml.find(str(path))


def test_the_names_that_stay() -> None:
    assert cluster_toml.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_shipped(name: str) -> None:
    cluster = cluster_toml.find(name)
    assert cluster.name == name
    assert cluster.levels[0].devices == 1
    assert set(cluster.accelerator.efficiency) <= set(KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_its_source(name: str) -> None:
    """Beside it, or above the table in which it stands; an efficiency is an assumption."""
    lines = (cluster_toml.shipped() / f"{name}.toml").read_text().splitlines()
    explained = ""  # the lines above the table
    for number, line in enumerate(lines):
        if line.startswith("["):
            explained = lines[number - 1] if lines[number - 1].startswith("#") else ""
        key = line.partition(" = ")[0]
        if key in ("memory_gb", "gb_per_s", "latency_us", "tflop_per_s", "efficiency", "half_batch"):
            source = line.partition("#")[2] or explained
            assert source, f"{name}: {line}"
            assert "assumption" in source or key not in ("efficiency", "half_batch"), f"{name}: {line}"


def test_k20_is_as_the_paper_has_it() -> None:
    cluster = cluster_toml.find("k20-pcie")
    assert (cluster.devices, cluster.collectives) == (8, "direct")
    assert cluster.levels == (Level(1, 6.0, 10.0, True), Level(4, 6.0, 10.0, False))


def test_little_is_needed(tmp_path: Path) -> None:
    chip = Accelerator("P100", 2**34, {"fp32": 10.6}, 732.0)
    assert read(tmp_path, LEAST) == Cluster(1, chip, (Level(1, 18.0, 8.0),), name="mine")


def test_more_may_be_said(tmp_path: Path) -> None:
    head = 'name = "ours"\ndevices = 6\ncollectives = "direct"\noverlap = false\nlate = true\n'
    head += "speeds = [1, 0.5]\njitter = 0.1\n"
    more = "efficiency = { conv = 0.6 }\nhalf_batch = 8\n"
    cluster = read(tmp_path, head + ACCELERATOR + more + LEVEL + LEVEL.replace("devices = 1", "devices = 3"))
    assert (cluster.name, cluster.devices, cluster.collectives) == ("ours", 6, "direct")
    assert (cluster.overlap, cluster.late) == (False, True)
    assert (cluster.speeds, cluster.jitter) == ((1.0, 0.5), 0.1)
    assert (cluster.accelerator.efficiency, cluster.accelerator.half_batch) == ({"conv": 0.6}, 8.0)
    assert [level.devices for level in cluster.levels] == [1, 3]


def test_kinds_are_those_of_layers() -> None:
    assert cluster_toml.KINDS == KINDS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("devices = 0\n" + LEAST, "devices is 0: a whole number, from 1 to 65536, is needed"),
        ('collectives = "tree"\n' + LEAST, "collectives is 'tree'"),
        ("overlap = 1\n" + LEAST, "overlap is 1: true or false is needed"),
        ("speeds = [1, 0]\n" + LEAST, "speeds is [1, 0]: a list of numbers above zero"),
        ("speeds = 2\n" + LEAST, "speeds is 2: a list of numbers above zero"),
        ("jitter = -1\n" + LEAST, "jitter is -1: a number, zero or above, is needed"),
        ("colour = 1\n" + LEAST, "unknown field 'colour'"),
        ('cpu = "Xeon"\ncores = 16\nmemory_gb = 128\n', "has no [accelerator]"),
        ("accelerator = 3\n" + LEVEL, "accelerator is 3: a table of fields is needed"),
        (LEAST.replace("memory_gb = 16\n", ""), "accelerator: memory_gb is missing"),
        (LEAST.replace("732", '"fast"'), "accelerator: gb_per_s is 'fast': a number above zero is needed"),
        (LEAST.replace("fp32 = 10.6", ""), "at least fp32 is needed"),
        (LEAST.replace("fp32", "fp3"), "tflop_per_s: unknown field 'fp3': did you mean 'fp32'?"),
        (LEAST.replace("10.6", "-1"), "tflop_per_s: fp32 is -1: a number above zero is needed"),
        (ACCELERATOR + "efficiency = { covn = 0.6 }\n" + LEVEL, "unknown field 'covn': did you mean 'conv'?"),
        (ACCELERATOR + "efficiency = { conv = 6 }\n" + LEVEL, "efficiency of conv is 6.0"),
        (ACCELERATOR + 'half_batch = "x"\n' + LEVEL, "half_batch is 'x': a number, zero or above, is needed"),
        (ACCELERATOR, "levels of [] devices: the first must be of 1"),
        (LEAST.replace("devices = 1", "devices = 2"), "levels of [2] devices: the first must be of 1"),
        (LEAST + LEVEL, "levels of [1, 1] devices"),
        (LEAST.replace("latency_us = 8", ""), "entry 1 of levels: latency_us is missing"),
        (LEAST + "duplex = 2\n", "entry 1 of levels: duplex is 2: true or false is needed"),
        ("[", "is not a TOML file"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(MachineError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "mine.toml"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("p100", "unknown machine 'p100'"),
        ("k20-pice", "did you mean 'k20-pcie'? Allowed: here, a100x8-nvlink, cpu16"),
        ("missing.toml", "there is no machine file missing.toml"),
    ],
)
def test_unknown(name: str, told: str) -> None:
    with pytest.raises(MachineError) as caught:
        cluster_toml.find(name)
    assert told in str(caught.value)
