"""What listens while a plan trains: nothing beyond the loopback interface, and nothing that unpickles."""

import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
from torch.distributed import DistStoreError, TCPStore

from conftest import mpirun_command

REST = "precision=fp32,layout=contiguous,compile=off,threads=1"
SMALL = (
    "mlp",
    "--data",
    "synthetic:1x8x8,4",
    "--batch-size",
    "16",
    "--set",
    "data.size=160",
    "--set",
    "model.width=0.1",
)
TRAIN = ("train", *SMALL, "--epochs", "1")
KEY = "torch.rendezvous.manyhands"  # which the rendezvous of torch's launcher unpickles, with the run id of old

PLANS = {
    "data over shm": "data:2,backend=shm",
    "data over gloo": "data:2,backend=gloo",
    "data over mpi": "data:2,backend=mpi",
    "ddp": "ddp:2",
    "tensor": "tensor:2",
    "owt": "owt:2",
    "pipeline": "pipeline:2,microbatches=2",
    "server": "server:2+1",
    "gossip": "gossip:2",
    "local": "local:2",
    "stale": "data:2,consistency=stale",
}
SHORT = ("data over shm", "data over mpi", "server", "tensor")

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def heard(command: Sequence[object], folder: Path, meet: Callable[[int], None] = lambda port: None) -> set[str]:
    """The addresses at which the processes of a command listened until it ended well; `meet` is told each port."""
    environment = {**os.environ, "MANYHANDS_HOME": str(folder / "home")}
    with (folder / "said").open("w+") as said:
        process = psutil.Popen([*map(str, command)], stdout=said, stderr=said, env=environment, cwd=folder)
        found: set[str] = set()
        met: set[int] = set()
        deadline = time.monotonic() + 120
        while process.poll() is None:
            assert time.monotonic() < deadline, process.kill()
            for each in (process, *children(process)):
                for ip, port in listening(each):
                    found.add(ip)
                    if port not in met and not is_mpich(each):
                        met.add(port)
                        meet(port)
            time.sleep(0.02)
        said.seek(0)
        assert process.returncode == 0, said.read()
    return found


def is_mpich(process: psutil.Process) -> bool:
    """MPICH's launcher may take whoever comes first for a rank: the run then ends, and runs nothing of a stranger's."""
    try:
        return process.name().startswith("mpiexec")
    except psutil.Error:
        return False


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def listening(process: psutil.Process) -> list[tuple[str, int]]:
    try:
        sockets = process.net_connections(kind="inet")
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):  # it has just ended
        return []
    return [(each.laddr.ip, each.laddr.port) for each in sockets if each.status == psutil.CONN_LISTEN]


def exploit(proof: Path) -> Callable[[int], None]:
    """What ran a command as the launcher's user: an object that is unpickled, under the key that torch asks for."""

    class Payload:
        def __reduce__(self) -> object:
            return os.system, (f"touch {proof}",)

    def strike(port: int) -> None:
        try:
            store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=0.3), wait_for_workers=False)
            store.set(KEY, pickle.dumps(Payload()))
        except (DistStoreError, RuntimeError, TimeoutError):
            pass  # it does not speak so

    return strike


def beyond(addresses: set[str]) -> set[str]:
    return {each for each in addresses if not ip_address(each).is_loopback}


@pytest.mark.parametrize(
    "plan", [each if each in SHORT else pytest.param(each, marks=pytest.mark.long) for each in PLANS]
)
def test_a_plan(tmp_path: Path, plan: str) -> None:
    if "mpi" in plan:
        mpirun_command()
    words = PLANS[plan] if "ddp" in plan else f"{PLANS[plan]},{REST}"
    proof = tmp_path / "ran"
    command = [sys.executable, "-m", "manyhands", *TRAIN, "--plan", words, "--out", tmp_path / "run", "-q"]
    found = heard(command, tmp_path, exploit(proof))
    print(f"{plan} | {', '.join(sorted(found)) or 'nothing listens'}")
    assert not beyond(found)
    assert not proof.exists()


@pytest.mark.long
@pytest.mark.parametrize("what", ["auto", "find", "tune"])
def test_a_search(tmp_path: Path, what: str) -> None:
    words = {
        "auto": (*TRAIN, "--plan", f"auto,{REST.replace(',threads=1', '')}"),
        "find": ("plan", *SMALL, "--budget", "5"),
        "tune": (
            "tune",
            "batch-size",
            *SMALL[:3],
            *SMALL[5:],
            "--plan",
            f"data:2,{REST}",
            "--sizes",
            "16,32",
            "--target",
            "0.3",
            "--epochs",
            "1",
        ),
    }[what]
    found = heard([sys.executable, "-m", "manyhands", *words, "-q"], tmp_path)
    print(f"{what} | {', '.join(sorted(found)) or 'nothing listens'}")
    assert not beyond(found)


def test_a_script_of_a_user(tmp_path: Path) -> None:
    """Whose ranks meet by torch's own `init_process_group`, through the launcher's store on the loopback interface."""
    (tmp_path / "mine.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "row = torch.ones(1)\n"
        "dist.all_reduce(row)\n"
        "assert row.item() == 2\n"
        "import time; time.sleep(1)\n"
        "dist.destroy_process_group()\n"
    )
    proof = tmp_path / "ran"
    found = heard(
        [sys.executable, "-m", "manyhands", "launch", "--plan", "data:2", "mine.py"], tmp_path, exploit(proof)
    )
    assert found
    assert not beyond(found)
    assert not proof.exists()


def test_a_listener_is_seen(tmp_path: Path) -> None:
    """The test's own eyes: torch's launcher listens on all interfaces."""
    (tmp_path / "mine.py").write_text("import time; time.sleep(1)\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "mine.py"]
    assert beyond(heard(command, tmp_path))
