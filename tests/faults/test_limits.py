"""A machine with little of something: descriptors, memory, shared memory, disk, rights. It ends well or in one line."""

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import mpirun_command
from faults.test_moments import PLANS, TRAIN
from faults.witness import LIMIT, SEARCHES, Command

LONG = pytest.mark.long
V1 = Path(__file__).parents[1] / "fixtures" / "v1"
SHORT = ("serial", "data:2")
EVERY = [pytest.param(plan, marks=() if plan in SHORT else LONG) for plan in PLANS]

pytestmark = [
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
    pytest.mark.timeout(600),
]


def train(plan: str, *more: str) -> tuple[str, ...]:
    if "mpi" in plan:
        mpirun_command()
    return (*TRAIN, "--plan", PLANS.get(plan, plan), "--out", "RUN", "-q", *more)


def shell(line: str) -> tuple[str, ...]:
    """What a shell does before it becomes the command."""
    return ("bash", "-c", f'{line} && exec "$@"', "bash")


def mounted(line: str) -> tuple[str, ...]:
    """As `shell`, where what it mounts nobody else sees."""
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"mount namespaces are not permitted here: {tried.stderr.decode().strip()}")
    return ("unshare", "--mount", *shell(line))


def well_or_in_one_line(command: Command, plan: str) -> None:
    ended = command.ended(SEARCHES if plan == "auto" else LIMIT)
    assert ended.code in (0, 1, 2), ended
    if ended.code:
        assert ended.error
        assert len(ended.error) < 400


@pytest.mark.parametrize("plan", EVERY)
def test_few_descriptors(world: Callable[..., Command], plan: str) -> None:
    well_or_in_one_line(world(*train(plan), before=shell("ulimit -n 64")), plan)


@pytest.mark.parametrize("kilobytes", [500_000, 1_000_000, pytest.param(2_000_000, marks=LONG), 4_000_000, 8_000_000])
@pytest.mark.parametrize("plan", ["serial", pytest.param("data:2", marks=LONG), pytest.param("server:2+1", marks=LONG)])
def test_little_address_space(world: Callable[..., Command], plan: str, kilobytes: int) -> None:
    well_or_in_one_line(world(*train(plan), before=shell(f"ulimit -v {kilobytes}")), plan)


@pytest.mark.parametrize(
    "plan", ["data:2", *(pytest.param(each, marks=LONG) for each in ("data:2,backend=mpi", "plain,workers=2", "auto"))]
)
def test_full_shared_memory(world: Callable[..., Command], plan: str) -> None:
    full = "mount -t tmpfs -o size=64k tmpfs /dev/shm && (head -c 64k /dev/zero > /dev/shm/full || true)"
    well_or_in_one_line(world(*train(plan), before=mounted(full)), plan)


@pytest.mark.parametrize("plan", EVERY)
def test_full_disk(world: Callable[..., Command], tmp_path: Path, plan: str) -> None:
    small = tmp_path / "small"
    small.mkdir()
    size = random.Random(plan).choice((16, 64, 128, 256))  # kilobytes
    words = [word.replace("RUN", f"{small}/run") for word in train(plan)]
    well_or_in_one_line(world(*words, before=mounted(f"mount -t tmpfs -o size={size}k tmpfs {small}")), plan)


@pytest.mark.parametrize("plan", EVERY)
def test_a_run_folder_that_is_deleted(world: Callable[..., Command], plan: str) -> None:
    command = world(*train(plan, "--epochs", "400"))
    deadline = time.monotonic() + LIMIT
    while not list(command.run.glob("checkpoints/step-*")) and command.process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    shutil.rmtree(command.run, ignore_errors=True)
    ended = command.ended()
    assert ended.code in (1, 2), ended
    assert str(command.run) in ended.error


@pytest.fixture
def as_nobody(tmp_path: Path) -> tuple[str, ...]:
    """What makes a command another user's than root, who may read the project and this Python."""
    if os.geteuid():
        pytest.skip("only root may become another user")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to(tempfile.gettempdir()) and folder != Path(tempfile.gettempdir()):
            folder.chmod(folder.stat().st_mode | 0o011)
    python = Path(sys.base_prefix).resolve()
    closed = [folder for folder in reversed(python.parents) if not folder.stat().st_mode & 0o001]
    opened = "true"
    if closed:  # such as /root: another folder in its place has nothing but this Python
        (tmp_path / "python").mkdir()
        opened = (
            f"mount --bind {python} {tmp_path}/python && mount -t tmpfs -o mode=755 tmpfs {closed[0]} && "
            f"mkdir -p {python} && mount --bind {tmp_path}/python {python}"
        )
    ahead = (*mounted(opened), "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    again = "import manyhands.cli.main, subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    tried = subprocess.run([*ahead, sys.executable, "-c", again], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"another user cannot read this Python or the project: {tried.stderr.decode().strip()[-200:]}")
    return ahead


@pytest.mark.parametrize("plan", ["serial", *(pytest.param(each, marks=LONG) for each in ("data:2", "server:2+1"))])
def test_another_user(world: Callable[..., Command], as_nobody: tuple[str, ...], plan: str) -> None:
    ended = world(*train(plan), before=as_nobody, HOME="/nonexistent").ended()
    assert ended.code == 0, ended


@pytest.mark.parametrize("what", ["resume", "train", "home"])
def test_a_folder_that_may_not_be_written(
    world: Callable[..., Command], as_nobody: tuple[str, ...], tmp_path: Path, what: str
) -> None:
    mine = tmp_path / "mine"
    words = {
        "resume": ("train", "--resume", mine, "-q"),
        "train": (*TRAIN, "--plan", PLANS["serial"], "--out", mine / "run", "-q"),
        "home": ("train", "mlp", "--data", "digits", "--plan", PLANS["serial"], "--set", "train.max_steps=2", "-q"),
    }[what]
    shutil.copytree(V1 / "serial", mine)
    ended = world(*words, before=as_nobody, **({"MANYHANDS_HOME": str(mine)} if what == "home" else {})).ended()
    assert ended.code == 2, ended
    assert "cannot write" in ended.error
    assert str(mine) in ended.error


def test_files_may_not_grow(world: Callable[..., Command]) -> None:
    """Checked by a limit that torch itself can still be loaded under."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    wide = ("--set", "model.width=4")
    ended = world(*train("serial", *wide), before=shell("ulimit -f 600")).ended()
    assert ended.code == 2, ended
    assert "may not grow so large" in ended.error
