"""Interrupts: Ctrl-C and its like become KeyboardInterrupt, but not while something is being imported.

There torch's C++ calls Python from where no exception may come out: the process would end with "terminate called" and a
core. So the signal waits, and is looked at again shortly after; a second one does not wait.
"""

import signal
from types import FrameType

AGAIN = 0.05  # seconds
IMPORTING = "<frozen importlib._bootstrap"


def install() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a run must not look alive for ever
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup, and what a shell starts in the background
            signal.signal(number, interrupt)


def interrupt(number: int, frame: FrameType | None) -> None:
    waits = signal.getsignal(signal.SIGALRM) is interrupt
    if _is_importing(frame) and (number == signal.SIGALRM or not waits):
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
        return
    signal.setitimer(signal.ITIMER_REAL, 0)  # one that waits still must not come into the clearing up
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(IMPORTING):
            return True
        frame = frame.f_back
    return False
