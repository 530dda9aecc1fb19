"""A home of its own for each test, the real sets where MANYHANDS_DATA has them, and the command line."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from manyhands import files
from manyhands.cli.main import run
from manyhands.cli.output import give_back_output
from manyhands.comm.launch import mpirun
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import MissingPackage
from rank_pool import WORLD, Pool

REAL = os.environ.get("MANYHANDS_DATA", "")

# What numba compiles for the simulator takes half a minute: every test, and every process that one starts, shares it.
os.environ.setdefault("NUMBA_CACHE_DIR", str(files.home() / "compiled"))

# A shell that starts the tests in the background has them ignore Ctrl-C, and nohup that the terminal hangs up; their
# children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYHANDS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MANYHANDS_DATA", raising=False)
    return tmp_path / "home"


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all tests that only read: a set is decoded once."""
    return tmp_path_factory.mktemp("shared-home")


@pytest.fixture
def digits(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    return load("digits")


@pytest.fixture
def real_folder(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """The folder of a real set; skips where there is none."""

    def find(name: str) -> Path:
        for each in REAL.split(":"):
            if each and (Path(each) / name).is_dir():
                monkeypatch.setenv("MANYHANDS_DATA", REAL)
                monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
                return Path(each) / name
        pytest.skip(f"{name} is in no folder of MANYHANDS_DATA")

    return find


@pytest.fixture
def real(real_folder: Callable[[str], Path]) -> Callable[..., Dataset]:
    """Loads a real set."""

    def read(name: str, **options: object) -> Dataset:
        real_folder(name)
        return load(name, DataOptions(**options))  # type: ignore[arg-type]

    return read


@pytest.fixture(scope="session")
def pools() -> Iterator[Callable[[str], Pool]]:
    """The pool of ranks for a backend; skips where there is no MPI."""
    started: dict[bool, Pool] = {}

    def pool(backend: str) -> Pool:
        over_mpi = backend == "mpi"
        if over_mpi not in started:
            started[over_mpi] = Pool([*mpirun_command(), "-n", str(WORLD)] if over_mpi else [])
        return started[over_mpi]

    yield pool
    for each in started.values():
        each.stop()


def mpirun_command() -> list[str]:
    """What a user calls; launched plans have a program of their own where MPICH brings one for one host."""
    try:
        return [str(Path(mpirun.find()).with_name("mpirun"))]
    except MissingPackage as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class Spoken:
    """What a command line said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output."""
        (line,) = self.out.splitlines()
        value: dict[str, Any] = json.loads(line)
        return value

    @property
    def error(self) -> str:
        """The one line on standard error; fails where there is a traceback or more than the error."""
        (line,) = self.err.splitlines()
        assert line.startswith("error: ")
        return line.removeprefix("error: ")


@pytest.fixture
def manyhands(capfd: pytest.CaptureFixture[str]) -> Callable[..., Spoken]:
    """The command line, in this process."""

    def call(*arguments: object) -> Spoken:
        capfd.readouterr()
        code = run([str(each) for each in arguments])
        give_back_output()
        out, err = capfd.readouterr()
        return Spoken(code, out, err)

    return call


@pytest.fixture
def simulate(manyhands: Callable[..., Spoken]) -> Callable[..., dict[str, Any]]:
    """What `manyhands simulate` finds."""

    def call(*arguments: object) -> dict[str, Any]:
        said = manyhands("simulate", *arguments, "--json", "--quiet")
        assert said.code == 0, said.err
        return said.json

    return call
