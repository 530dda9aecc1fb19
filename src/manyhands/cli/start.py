"""Start: the command before its modules are there, so that Ctrl-C in the first moments ends it without a traceback."""

# What `signal` wraps: that one imports `enum`, which takes longer than all else here.
import _signal as signal  # type: ignore[import-not-found]
import os


def main() -> None:
    early = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if early:
        signal.signal(signal.SIGINT, _end)
    from manyhands.cli.main import main as command

    if early:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


def _end(number: int, frame: object) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(130)
