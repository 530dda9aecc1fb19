"""Witness: a command that runs in a world of its own, and what it must not leave behind when it ends."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import left_behind

PATIENCE = 10.0  # seconds in which the processes of a command that was killed have to be gone
LIMIT = 90.0  # seconds after which a command hangs
SEARCHES = 300.0  # the same, of one that searches for a plan beside other tests
WRONG = (
    "Traceback",
    "the traceback is in",
    "Exception ignored",
    "Fatal Python error",
    "core dumped",
    "terminate called",
)


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def before_us(self) -> bool:
        """Whether Python itself was interrupted, before a line of ours was read."""
        return "Traceback" in self.err and "manyhands" not in self.err

    @property
    def error(self) -> str:
        """The one line about what went wrong; fails where there is more or less than one."""
        told = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(told) == 1, self
        assert self.err.splitlines()[-1] == told[0], self
        return told[0].removeprefix("error: ")


@dataclass
class Command:
    """`manyhands arguments…` with a home, a folder for temporary files and a session of its own; RUN is a run of it."""

    folder: Path
    arguments: tuple[object, ...]
    before: tuple[str, ...] = ()  # the program that starts it, where it needs one
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A short name: sockets of the kernel's own have at most 107 bytes.
        self.temporary = Path(tempfile.mkdtemp(prefix="w-", dir="/tmp"))
        self.temporary.chmod(0o777)  # another user's command may have to write there
        self.run = self.folder / "run"
        self._out, self._err = (self.folder / "out").open("w+"), (self.folder / "err").open("w+")
        self.process = self._start(self.arguments, self._out, self._err)

    def _start(self, arguments: tuple[object, ...], out: object, err: object) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "MANYHANDS_HOME": str(self.folder / "home"),
            "TMPDIR": str(self.temporary),
            **self.environment,
        }
        command = [
            *self.before,
            sys.executable,
            "-m",
            "manyhands",
            *(str(each).replace("RUN", str(self.run)) for each in arguments),
        ]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
        )

    def others(self) -> list[psutil.Process]:
        """The processes that it has started and that live, whoever is their parent by now."""
        mark = f"TMPDIR={self.temporary}\0".encode()
        found = []
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                if pid != self.process.pid and mark in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(psutil.Process(pid))
        return [each for each in found if _lives(each)]

    def ended(self, seconds: float = LIMIT, *, cleared: bool = True) -> Ended:
        """Wait for its end, and hold it to what every end owes; `cleared`: temporary folders among that."""
        try:
            code = self.process.wait(seconds)
            ended = Ended(code, _all_of(self._out), _all_of(self._err))
            self._leaves_no_process()
        finally:
            for each in (*self.others(), self.process):
                with suppress(psutil.Error, OSError):
                    os.kill(each.pid, signal.SIGKILL)
            self.process.wait()
            self._out.close()
            self._err.close()
        assert ended.before_us or not [word for word in WRONG if word in ended.err + ended.out], ended
        assert not left_behind.segments()
        if code >= 0 and cleared:  # one that was killed leaves that to the next
            assert self.left() == [], self.left()
        return ended

    def _leaves_no_process(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while left := self.others():
            assert time.monotonic() < deadline, f"processes were left behind: {[each.cmdline() for each in left]}"
            time.sleep(0.05)

    def then(self, *arguments: object, seconds: float = LIMIT) -> Ended:
        """Another command in the same world, after one that was killed."""
        self._out, self._err = (self.folder / "out").open("w+"), (self.folder / "err").open("w+")
        self.process = self._start(arguments, self._out, self._err)
        return self.ended(seconds, cleared=False)

    def left(self) -> list[str]:
        """What stands in its folder for temporary files, but for what torch and ONNX Runtime keep there for later."""
        kept = ("torchinductor_", ".ses")
        return sorted(path.name for path in self.temporary.iterdir() if not path.name.startswith(kept))

    def clear(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def _all_of(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    return file.read()  # type: ignore[attr-defined]
