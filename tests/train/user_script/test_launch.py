"""A user's own script on many ranks: it computes what it computes alone, speaks once, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import manyhands as mh
from conftest import mpirun_command

# 49 = 3 · 16 + 1: shares of 6, 5, 5 and of 8, 8; of the last batch, one sample, most ranks have nothing.
TRAINS = """
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

import manyhands as mh

options = argparse.ArgumentParser()
options.add_argument("folder")
options.add_argument("--workers", type=int, default=0)
chosen = options.parse_args()


class Samples(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.picture = torch.randn(49, 2, 5, 5, generator=generator, dtype=torch.float64)
        self.number = torch.randn(49, 3, generator=generator, dtype=torch.float64)

    def __len__(self):
        return 49

    def __getitem__(self, row):
        return {"row": row, "picture": self.picture[row], "number": self.number[row]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.dense, self.other = nn.Linear(36, 3), nn.Linear(3, 3)

    def forward(self, picture, number):
        hidden = self.norm(self.conv(picture)).relu().flatten(1)
        return {"guess": self.dense(hidden) + self.other(number).tanh(), "hidden": hidden}


torch.manual_seed(0 if mh.rank() == 0 else 7)  # the first rank's weights and order are to count
net = Net().double()
groups = [{"params": net.conv.parameters(), "lr": 0.1}, {"params": [*net.parameters()][1:]}]
optimizer = torch.optim.AdamW(groups, lr=0.01)
loader = DataLoader(Samples(), batch_size=16, shuffle=True, num_workers=chosen.workers)
model, optimizer, loader = mh.parallelize(net, optimizer, loader)
losses, rows = [], []
for epoch in range(2):
    for batch in loader:
        optimizer.zero_grad()
        result = model(batch["picture"], number=batch["number"])
        loss = (result["guess"] - batch["number"]).square().mean() + 0.1 * result["hidden"].mean()
        loss = loss + 0.1 * net.dense.weight.square().sum()
        loss.backward()
        optimizer.step()
        losses.append(mh.mean_over_ranks(loss))
        rows.append(batch["row"].tolist())
print(len(loader), loader.batch_size, mh.world())
torch.save((torch.stack(losses), net.state_dict(), rows), f"{chosen.folder}/{mh.rank()}.pt")
"""

Written = Callable[[str], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes a script."""

    def write(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the training comes to in one process, started as any script is."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "script.py").write_text(TRAINS)
    subprocess.run([sys.executable, str(folder / "script.py"), str(folder)], check=True, capture_output=True)
    return torch.load(folder / "0.pt")


def check_same(folder: Path, alone: Any, world: int) -> None:
    """The losses and the weights of one process, on every rank; and the rows of its batches, dealt out."""
    ranks = [torch.load(folder / f"{rank}.pt") for rank in range(world)]
    for losses, weights, _ in ranks:
        torch.testing.assert_close(losses, alone[0], rtol=0, atol=1e-10)
        torch.testing.assert_close(weights, alone[1], rtol=0, atol=1e-10)
        for name, tensor in weights.items():
            assert torch.equal(tensor, ranks[0][1][name]), name
    for number, rows in enumerate(alone[2]):
        shares = [mine[number] for _, _, mine in ranks]
        assert [row for share in shares[: len(rows)] for row in share] == rows
        assert all(share == rows[:1] for share in shares[len(rows) :])


@pytest.mark.parametrize(
    ("plan", "world", "workers"),
    [
        pytest.param("data:2", 2, 1, marks=pytest.mark.long),
        ("data:2,backend=gloo,shard=optimizer", 2, 0),
        ("data:3,backend=shm", 3, 0),
        pytest.param("data:3,backend=gloo", 3, 0, marks=pytest.mark.long),
        pytest.param("data:2,backend=mpi", 2, 0, marks=pytest.mark.long),
    ],
)
def test_ranks_compute_what_one_process_computes(
    manyhands, written: Written, tmp_path: Path, alone: Any, plan: str, world: int, workers: int
) -> None:
    if "mpi" in plan:
        mpirun_command()
    if world == 3:  # on two cores a plan file alone may say so
        axes, backend = plan.split(",backend=")
        cores = sorted(os.sched_getaffinity(0))
        (tmp_path / "plan.toml").write_text(f'axes = ["{axes}"]\nbackend = "{backend}"\ncores = {[cores] * 3}')
        plan = str(tmp_path / "plan.toml")
    said = manyhands("launch", written(TRAINS), "--plan", plan, tmp_path, "--workers", workers)
    assert said.code == 0, said.err
    assert said.out == f"4 16 {world}\n"
    check_same(tmp_path, alone, world)


@pytest.mark.long
def test_it_joins_the_ranks_of_torchrun(written: Written, tmp_path: Path, alone: Any) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--local-addr", "127.0.0.1"]
    done = subprocess.run([*command, str(written(TRAINS)), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check_same(tmp_path, alone, 3)


def test_a_script_runs_as_python_runs_it(manyhands, written: Written, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    script = written(
        "import sys, beside, manyhands as mh\n"
        "print(__name__, beside.NAME, sys.argv[1:], sys.path[0], mh.rank(), mh.world(), 'torch' in sys.modules)"
    )
    said = manyhands("launch", script, "--plan", "plain", "--lr", 0.1, "-x", "--", "--plan", "--json")
    assert said.code == 0, said.err
    arguments = ["--lr", "0.1", "-x", "--plan", "--json"]
    # mh.rank() is in a module that imports torch.
    assert said.out == f"__main__ beside {arguments} {tmp_path} 0 1 True\n"


def test_json_alone_is_on_standard_output(manyhands, written: Written) -> None:
    script = written("print('hello')")
    said = manyhands("launch", script, "--plan", "ddp:2", "--json")
    assert said.err == "hello\n"
    assert said.json["script"] == str(script)
    assert said.json["plan"].startswith("ddp:2,device=cpu")
    assert said.json["world"] == 2
    assert 0 < said.json["seconds"] < 60


LIVE = """
import os, sys, time
from manyhands.comm.ranks.rank_info import place
print(f"rank {place().rank}", end="")
print("half a line\\r", end="", file=sys.stderr)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


@pytest.mark.parametrize("backend", ["shm", "mpi"])
def test_the_first_rank_speaks_at_once(written: Written, tmp_path: Path, backend: str) -> None:
    if backend == "mpi":
        mpirun_command()
    plan = ["--plan", f"data:2,backend={backend}"]
    with start(written(LIVE), *plan, str(tmp_path / "go")) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(6) == b"rank 0"
        assert process.stderr.read(12) == b"half a line\r"
        (tmp_path / "go").touch()
        assert process.communicate(timeout=20) == (b"", b"")
    assert process.returncode == 0


FAILS = """
import os, signal, sys
if os.environ["RANK"] == sys.argv[1]:
    match sys.argv[2]:
        case "raise":
            raise ValueError("a broken picture\\nand more")
        case "exit":
            sys.exit("no such file")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
signal.alarm(60)  # should nobody end it
signal.pause()
"""


@pytest.mark.parametrize(
    ("rank", "how", "message"),
    [
        (0, "raise", "rank 0 failed: ValueError: a broken picture"),
        (1, "raise", "rank 1 failed: ValueError: a broken picture"),
        (1, "exit", "rank 1 failed: no such file"),
        (1, "kill", "rank 1 was killed (signal 9)"),
    ],
)
def test_a_failing_rank_is_named(manyhands, written: Written, rank: int, how: str, message: str) -> None:
    said = manyhands("launch", written(FAILS), "--plan", "data:2", rank, how)
    assert said.code == 1
    *before, last = said.err.splitlines()
    assert last == f"error: {message}"
    if how == "raise":  # whose traceback is shown, whichever rank it was
        assert 'script.py", line 6' in "".join(before)


LEAVES = """
import sys
import torch, torch.distributed as dist
import manyhands as mh

rank, when, code = sys.argv[1:]
if when == "at once" and mh.rank() == int(rank):
    sys.exit(int(code))
model = torch.nn.Linear(1, 1)
mh.parallelize(model, torch.optim.SGD(model.parameters()))
if mh.rank() == int(rank):
    sys.exit(int(code))
dist.all_reduce(torch.ones(3))
"""


@pytest.mark.parametrize(
    ("backend", "rank", "when", "code", "message"),
    [
        ("shm", 1, "when all have met", 0, "rank 1 has ended while rank 0 waits in all_reduce"),
        ("gloo", 1, "when all have met", 0, "rank 1 has ended while rank 0 waits in a collective"),
        pytest.param(
            *("mpi", 0, "when all have met", 0, "rank 0 has ended while rank 1 waits in all_reduce"),
            marks=pytest.mark.long,
        ),
        pytest.param("mpi", 1, "when all have met", 3, "rank 1 failed: exit code 3", marks=pytest.mark.long),
        ("mpi", 1, "at once", 3, "rank 1 failed: exit code 3"),
    ],
)
def test_nobody_waits_for_a_rank_that_has_left(
    manyhands, written: Written, backend: str, rank: int, when: str, code: int, message: str
) -> None:
    if backend == "mpi":
        mpirun_command()
    said = manyhands("launch", written(LEAVES), "--plan", f"data:2,backend={backend}", rank, when, code)
    assert said.code == 1
    assert said.err.splitlines()[-1] == f"error: {message}"


LINGERS = """
import os, pathlib, signal, sys
pathlib.Path(sys.argv[1], f"{os.getpid()}.pid").touch()
signal.alarm(60)  # should nobody end it
signal.pause()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_launcher_is_the_end_of_its_ranks(written: Written, tmp_path: Path, how: signal.Signals) -> None:
    with start(written(LINGERS), "--plan", "data:2", str(tmp_path)) as process:
        wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2, 60)
        process.send_signal(how)
        _, errors = process.communicate(timeout=20)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert errors == b"error: interrupted\n"
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    wait_for(lambda: not any(map(psutil.pid_exists, pids)), 5)


def start(script: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "manyhands", "launch", str(script), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("name", "plan", "message"),
    [
        ("nowhere.py", "data:2", "there is no script"),
        ("notes.txt", "data:2", "is not a Python script"),
        ("", "data:2", "there is no script"),
        ("script.py", "tensor:2", "plan tensor:2 is for manyhands train"),
        ("script.py", "local:2", "plan local:2 is for manyhands train"),
        ("script.py", "data:2,compile=on", "plan option compile=on is for manyhands train: a script takes device, "),
        ("script.py", "data:2,shard=full", "a script takes shard=optimizer"),
        ("script.py", "data:2,precision=fp64", "call model.double() in the script"),
        ("script.py", "data:2,backend=shm,compress=topk", "say backend=gloo"),
        ("script.py", "date:2", "did you mean 'data'?"),
        ("script.py", "data:9999", "9999 ranks on "),
    ],
)
def test_bad_input_is_one_line(manyhands, written: Written, tmp_path: Path, name: str, plan: str, message: str) -> None:
    written("")
    (tmp_path / "notes.txt").touch()
    said = manyhands("launch", tmp_path / name, "--plan", plan)
    assert said.code == 2
    assert message in said.error


def test_ranks_start_no_ranks(manyhands, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    said = manyhands("launch", written(""), "--plan", "data:2")
    assert said.code == 2
    assert "this is rank 0 of 2 already" in said.error


def test_alone_nothing_changes() -> None:
    model, loader = nn.Linear(1, 1), DataLoader(TensorDataset(torch.zeros(3)))
    optimizer, loss = torch.optim.SGD(model.parameters()), torch.ones(2, requires_grad=True)
    assert mh.parallelize(model, optimizer, loader, "data:4") == (model, optimizer, loader)
    assert torch.equal(mh.mean_over_ranks(loss), loss)
    assert not mh.mean_over_ranks(loss).requires_grad
