"""The command `manyhands`: its parts, and what becomes of errors."""

import atexit
import os
import sys
import traceback
from contextlib import suppress
from typing import Any

import typer

from manyhands.cli import interrupts, output, version
from manyhands.cli.commands import Commands
from manyhands.comm.launch.bootstrap import end_now
from manyhands.comm.launch.error_reporting import speaks
from manyhands.comm.ranks.rank_info import is_leader, place
from manyhands.errors import ManyhandsError
from manyhands.files import home, make_folder

# The parser's exceptions. Newer releases of typer carry click within themselves, older ones need it as a
# package; as the bases of typer.BadParameter they are public in both.
ParserError = typer.BadParameter.__mro__[2]

# After an interruption, by the command.
KEPT = {
    "study": "; what has finished is kept: the same command with the same --out goes on",
    "train": "; what a run has reached is kept: manyhands train --resume RUN",
}
INTERRUPTED = 130

app = typer.Typer(
    name="manyhands",
    cls=Commands,
    help="Find and run the fastest way to train a PyTorch model on the machine you have.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.callback()(version.options)


def main() -> None:
    """Run a command; errors become one line and an exit code."""
    interrupts.install()
    code = run(sys.argv[1:])
    if code and place() is not None:
        end_now(code)
    if code == INTERRUPTED:
        # Python ends itself by the signal, whatever the exit code, where Ctrl-C once came in the middle of an `exec`,
        # as when a dataclass is made.
        atexit._run_exitfuncs()
        end_now(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """The exit code of a command line: 0 done, 1 the run failed, 2 bad input, 130 interrupted."""
    try:
        if "--json" in arguments[: arguments.index("--") if "--" in arguments else None]:  # then come a script's own
            output.set_output(as_json=True, quiet=False)  # so that errors of the parser are JSON too
        if not _has_folder():
            return output.fail("the current folder has been removed: go to another one", 2)
        result = app(arguments, standalone_mode=False)
        if result == INTERRUPTED:  # typer has caught it already
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except ManyhandsError as error:
        return output.fail(str(error), error.exit_code) if speaks(error) else error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted(arguments)
    except BrokenPipeError:
        # The reader of our output has gone (| head): nothing is left to say, not even at exit.
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a path that the system refuses, wherever it was first touched
        return output.fail(f"{error.filename or 'the system'}: {error.strerror or error}: choose another path", 2)
    except Exception as error:
        if isinstance(error, ParserError):
            return _parser_error(error)
        if _was_interrupted(error):
            return _interrupted(arguments)
        if isinstance(error, RuntimeError) and "home directory" in str(error):  # pathlib's, of ~ and of ~user
            return output.fail("no home folder is known: set HOME or MANYHANDS_HOME, or write paths without ~", 2)
        first = (str(error).strip().splitlines() or [""])[0]
        return output.fail(f"{type(error).__name__}: {first}{_traceback()}", 1)


def _interrupted(arguments: list[str]) -> int:
    if not is_leader():
        return INTERRUPTED
    kept = KEPT.get(arguments[0] if arguments else "", "")
    return output.fail(f"interrupted{kept}", INTERRUPTED)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what caused an error: torch's exporter makes one of its own of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _has_folder() -> bool:
    """Whether the current folder is there still; libraries below torch end the process where it is not."""
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _traceback() -> str:
    """Where the traceback of an error that nobody foresaw was written."""
    with suppress(Exception):
        path = make_folder(home()) / "last-error.txt"
        path.write_text(traceback.format_exc())
        return f"; the traceback is in {path}"
    return ""


def _parser_error(error: Any) -> int:
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help text
        print(message)
        return 2
    context = getattr(error, "ctx", None)
    return output.fail(message + (f" (see {context.command_path} --help)" if context else ""), 2)
