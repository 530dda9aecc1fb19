"""Torch's private names stand in compat alone, and a torch that nobody has tested is told."""

import re
from pathlib import Path

import pytest

from manyhands.compat import untested

SOURCE = Path(__file__).parent.parent / "src" / "manyhands"
PRIVATE = re.compile(r"\btorch(?:\.\w+)*\._[a-zA-Z]\w*|^from torch[\w.]* import .*\b_\w+", re.MULTILINE)


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.12.1a0+git1234"])
def test_what_was_tested(version: str) -> None:
    assert untested(version) is None


@pytest.mark.parametrize("version", ["2.14.0", "3.0.0+cu140"])
def test_what_was_not(version: str) -> None:
    assert (line := untested(version)) is not None
    assert line.startswith(f"torch {version} is newer than what manyhands was tested with (up to 2.13)")


def test_private_names_stand_in_one_file() -> None:
    found = {
        str(path.relative_to(SOURCE)): names
        for path in SOURCE.rglob("*.py")
        if (names := PRIVATE.findall(re.sub(r'"""[\s\S]*?"""', "", path.read_text())))
    }
    assert found.keys() == {"compat.py"}, found
