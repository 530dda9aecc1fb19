"""Every plan, and what may befall a process of it at any moment: it ends in one line, and nothing is left behind."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest

from conftest import mpirun_command
from faults.witness import LIMIT, SEARCHES, Command

REST = "precision=fp32,layout=contiguous,compile=off"
PLANS = {
    **{words: words for words in ("plain", "ddp:2")},
    **{
        words: f"{words},{REST}"
        for words in (
            *("serial", "data:2", "data:2,backend=gloo", "data:2,backend=mpi", "tensor:2", "pipeline:2", "owt:2"),
            *("data:2,tensor:2", "data:2,consistency=stale", "local:2", "gossip:2"),
            *("server:2+1", "server:2+1,consistency=async", "auto"),
        )
    },
}
SIZE = ("--data", "synthetic:1x6x6,4", "--batch-size", "16", "--epochs", "4")
SETTINGS = ("data.size=1600", "data.test_size=40", "model.width=0.1", "model.dropout=0.3", "train.timeout=25")
TRAIN = (
    "train",
    "mlp",
    *SIZE,
    *(word for each in (*SETTINGS, "checkpoint.every_steps=20") for word in ("--set", each)),
)
MOMENTS = 5
PAUSE = 2.0  # seconds, fewer than train.timeout
STARTS = 7.0  # seconds that a training takes here to start and end, more or less

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def signalled(number: signal.Signals) -> Callable[[Command, random.Random], None]:
    def strike(command: Command, chance: random.Random) -> None:
        command.process.send_signal(number)

    return strike


def whole_group(command: Command, chance: random.Random) -> None:
    """Ctrl-C as a terminal sends it: to the launcher and to all that it has started."""
    os.killpg(command.process.pid, signal.SIGINT)


def one_of_them(number: signal.Signals) -> Callable[[Command, random.Random], None]:
    def strike(command: Command, chance: random.Random) -> None:
        """Whichever process it has started; a moment later if there is none yet."""
        while command.process.poll() is None:
            if others := command.others():
                with suppress(psutil.NoSuchProcess):
                    chance.choice(others).send_signal(number)
                return
            time.sleep(0.01)

    return strike


def paused(command: Command, chance: random.Random) -> None:
    """Ctrl-Z, and a moment later fg."""
    os.killpg(command.process.pid, signal.SIGSTOP)
    time.sleep(PAUSE)
    os.killpg(command.process.pid, signal.SIGCONT)


FAULTS: dict[str, tuple[Callable[[Command, random.Random], None], set[int]]] = {
    "kill -9 of the launcher": (signalled(signal.SIGKILL), {-signal.SIGKILL}),
    "kill -9 of another": (one_of_them(signal.SIGKILL), {1}),
    "stop of another": (one_of_them(signal.SIGSTOP), {1}),
    "SIGINT": (signalled(signal.SIGINT), {130}),
    "SIGTERM": (signalled(signal.SIGTERM), {130}),
    "SIGHUP": (signalled(signal.SIGHUP), {130}),
    "Ctrl-C": (whole_group, {130}),
    "Ctrl-Z and fg": (paused, set()),
}
# Before a line of ours is read, and when all is said, Python itself ends as these signals have it end.
NOT_OURS = {-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP}
ALONE = ("plain", "serial")  # no process but the launcher


def cells() -> Iterator[object]:
    for plan in PLANS:
        for fault in FAULTS:
            if "another" in fault and plan in ALONE:
                continue
            short = (plan, fault) == ("server:2+1", "Ctrl-C")
            yield pytest.param(plan, fault, marks=() if short else pytest.mark.long)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("plan", "fault"), list(cells()))
def test_at_any_moment(request: pytest.FixtureRequest, world: Callable[..., Command], plan: str, fault: str) -> None:
    if "mpi" in plan:
        mpirun_command()
    strike, codes = FAULTS[fault]
    came = Counter[str]()
    for number in range(MOMENTS if request.config.getoption("markexpr") != "not long" else 1):
        chance = random.Random(f"{plan} {fault} {number}")
        moment = chance.uniform(0, STARTS)
        command = world(*TRAIN, "--plan", PLANS[plan], "--out", "RUN", "-q")
        came[one(command, strike, codes, moment, chance)] += 1
    print(f"{plan} | {fault} | {dict(came)}")


def one(
    command: Command,
    strike: Callable[[Command, random.Random], None],
    codes: set[int],
    moment: float,
    chance: random.Random,
) -> str:
    """What became of a training that something befell `moment` seconds after its start."""
    time.sleep(moment)
    if (early := command.process.poll()) is None:
        strike(command, chance)
    ended = command.ended(SEARCHES if "auto" in " ".join(map(str, command.arguments)) else LIMIT)
    about = f"after {moment:.2f} s: {ended}"
    if ended.before_us:
        return "before a line of ours"
    assert ended.code in {*codes, 0, *(NOT_OURS if ended.err == "" or ended.out else ())}, about
    if ended.code > 0:
        assert ended.error, about
    if ended.code == -signal.SIGKILL:
        goes_on(command, about)
    return "had ended" if early is not None else "finished" if ended.code == 0 else f"exit code {ended.code}"


def goes_on(command: Command, about: str) -> None:
    """After a kill the next command clears away what it left, and the run goes on from its last checkpoint."""
    again = command.then("train", "--resume", "RUN", "-q")
    if again.code != 0:
        assert again.code == 2, (about, again)
        assert "has finished" in again.error or "is not a run" in again.error, (about, again)
        anew = command.then(*TRAIN, "--plan", PLANS["data:2"], "--set", "train.max_steps=2", "--out", "RUN-anew", "-q")
        assert anew.code == 0, (about, anew)
    assert command.left() == []
