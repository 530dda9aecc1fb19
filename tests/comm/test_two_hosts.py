"""Two hosts, each a network namespace, under torchrun: they meet without a variable set by hand, and never differ."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from manyhands.comm.ranks.many_hosts import interface
from manyhands.errors import InputError

PORT = 29_517
TRAIN = ("train", "mlp", "--data", "synthetic:1x6x6,4", "--batch-size", "16", "--set", "data.size=200")
TRAIN = (*TRAIN, "--set", "train.max_steps=6", "--set", "model.width=0.125")
MOUNT = 'mount --bind "$0" "$1" && shift && exec "$@"'  # `ip netns exec` gives mounts of their own, too
SHORT = 60.0  # seconds, start included: importing torch takes some of them on two cores


@dataclass
class Host:
    """A namespace, and what runs in it."""

    name: str
    address: str
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, node: int, *words: str, folder: Path, disk: Path | None = None) -> None:
        """`disk`: what this host alone sees at `folder / "disk"`."""
        launch = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", f"--node-rank={node}"]
        launch += [f"--master-addr={HOSTS[0].address}", f"--master-port={PORT}", "-m", "manyhands"]
        home = folder / f"home{node}"
        mounted = ["sh", "-c", MOUNT, str(disk), str(folder / "disk")] if disk else []
        clean = {name: value for name, value in os.environ.items() if "SOCKET_IFNAME" not in name}
        self.processes.append(
            subprocess.Popen(
                ["ip", "netns", "exec", self.name, *mounted, sys.executable, *launch, *words],
                env={**clean, "MANYHANDS_HOME": str(home), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )

    def end(self, seconds: float) -> tuple[int, str]:
        """Exit code, and what it said."""
        process = self.processes[-1]
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, err = process.communicate()
            raise AssertionError(f"{self.name} hangs: {err[-2000:]}") from None
        return process.returncode, out + err


HOSTS = (Host("manyhands-a", "10.213.7.1"), Host("manyhands-b", "10.213.7.2"))


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def remove() -> None:
    for host in HOSTS:
        for process in host.processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
        host.processes.clear()
        subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    remove()
    one, other = HOSTS
    try:
        for host in HOSTS:
            ip("netns", "add", host.name)
            ip("-n", host.name, "link", "set", "lo", "up")
        ip("link", "add", "mh-a", "netns", one.name, "type", "veth", "peer", "name", "mh-b", "netns", other.name)
        for host, link in ((one, "mh-a"), (other, "mh-b")):
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", link)
            ip("-n", host.name, "link", "set", link, "up")
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        remove()
        pytest.skip(f"network namespaces cannot be made here ({getattr(error, 'stderr', '') or error})")
    yield one, other
    remove()


@pytest.mark.long
def test_the_same_on_both_trains(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    for node, host in enumerate(hosts):
        host.start(node, *TRAIN, "--plan", GLOO, "--out", str(tmp_path / "run"), folder=tmp_path)
    ends = [host.end(2 * SHORT) for host in hosts]
    assert [code for code, _ in ends] == [0, 0], ends
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "finished"
    assert len(record["ranks"]) == 2


GLOO = "data:2,backend=gloo"
CSV = "a,b,kind\n" + "".join(f"{row % 7},{row % 5},{'x' if row % 2 else 'y'}\n" for row in range(80))
DIFFERENT = {
    "plan": (
        ("--plan", GLOO),
        ("--plan", "data:2,backend=gloo,precision=fp64"),
        "ranks differ in plan",
    ),
    "seed": (("--seed", "1"), ("--seed", "2"), "ranks differ in config.train.seed: 2 on rank 1"),
    "rows": (("--set", "data.size=100"), ("--set", "data.size=120"), "ranks differ in config.data.size: 120 on rank 1"),
}


@pytest.mark.parametrize("name", ["seed", *(pytest.param(each, marks=pytest.mark.long) for each in ("plan", "rows"))])
def test_words_that_differ_are_refused(hosts: tuple[Host, Host], tmp_path: Path, name: str) -> None:
    *words, said = DIFFERENT[name]
    plan = () if name == "plan" else ("--plan", GLOO)
    refused(hosts, tmp_path, [(*TRAIN, *plan, *each) for each in words], said)


@pytest.mark.long
@pytest.mark.parametrize("change", ["values", "rows"])
def test_data_that_differ_are_refused(hosts: tuple[Host, Host], tmp_path: Path, change: str) -> None:
    """The same path, another content: as on two disks."""
    (tmp_path / "disk").mkdir()
    disks = [tmp_path / f"disk{node}" for node in range(2)]
    for disk, text in zip(
        disks, (CSV, CSV.replace("0,0,y", "0,0,x", 1) if change == "values" else CSV + "1,1,x\n"), strict=True
    ):
        disk.mkdir()
        (disk / "set.csv").write_text(text)
    words = ("train", "mlp", "--data", str(tmp_path / "disk" / "set.csv"), "--set", "data.target=kind")
    order = (*words, "--plan", GLOO, "--batch-size", "16")
    refused(hosts, tmp_path, [order, order], "ranks differ in data (checksum)", disks)


def refused(
    hosts: tuple[Host, Host],
    tmp_path: Path,
    orders: Sequence[tuple[str, ...]],
    said: str,
    disks: Sequence[Path | None] = (None, None),
) -> None:
    before = time.monotonic()
    for node, (host, words, disk) in enumerate(zip(hosts, orders, disks, strict=True)):
        host.start(node, *words, "--out", str(tmp_path / f"run{node}"), folder=tmp_path, disk=disk)
    ends = [host.end(SHORT) for host in hosts]
    assert time.monotonic() - before < SHORT
    for code, text in ends:
        assert code != 0
        assert said in text, text[-3000:]
    for path in tmp_path.glob("run*/run.json"):
        assert json.loads(path.read_text())["status"] != "running"


@pytest.mark.long
def test_a_host_that_never_comes_is_told(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """Ranks that no agent keeps a store for, as mpirun and srun start them."""
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    place |= {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(PORT)}
    command = ["ip", "netns", "exec", hosts[0].name, sys.executable, "-m", "manyhands", *TRAIN]
    before = time.monotonic()
    said = subprocess.run(
        [*command, "--plan", GLOO, "--out", str(tmp_path / "run")],
        env={**os.environ, **place, "MANYHANDS_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=2 * SHORT,
        check=False,
    )
    assert time.monotonic() - before < SHORT
    assert said.returncode != 0
    assert "rank 1 did not come within 30 s" in said.stderr
    assert not (tmp_path / "run" / "run.json").exists()


def test_the_loopback_is_refused_where_others_must_come() -> None:
    with pytest.raises(InputError, match="leads to the loopback"):
        interface("127.0.0.1")
