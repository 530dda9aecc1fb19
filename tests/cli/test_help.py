"""The help: told without loading what commands need, and the same that each command tells itself."""

import re
import subprocess
import sys

import pytest

from manyhands.cli.commands import COMMANDS, load

HELP = (
    "import sys\n"
    "from manyhands.cli.main import run\n"
    "code = run(['--help'])\n"
    "print(code, sum(name.split('.')[0] == 'manyhands' for name in sys.modules))\n"
    "print(*(name for name in ('torch', 'numpy', 'PIL', 'scipy', 'numba', 'matplotlib') if name in sys.modules))\n"
)


def test_the_help_loads_little() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    *_, counts, libraries = done.stdout.splitlines()
    code, modules = map(int, counts.split())
    assert (code, libraries) == (0, "")
    assert modules <= 60


@pytest.mark.parametrize("name", COMMANDS)
def test_each_line_is_the_commands_own(name: str) -> None:
    first = re.split(r"\n\s*\n", load(name).help)[0]
    assert " ".join(first.split()) == COMMANDS[name]
