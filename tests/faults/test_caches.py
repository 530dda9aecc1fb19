"""Every file that is kept for the next time, damaged: it is made again, and nothing else changes."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.mutations import mutated

SIZE = ("--data", "digits", "--batch-size", "32", "--set", "data.size=300", "--set", "model.width=0.1")
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "text": lambda content: b'{"a": [',
    "a list": lambda content: b"[1, 2]",
    "one byte": lambda content: mutated(content, random.Random(0)),
}


def kept(home: Path) -> list[Path]:
    """What is kept, but for runs and for locks."""
    found = [path for path in home.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return sorted(path for path in found if "runs" not in path.relative_to(home).parts)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_caches(manyhands: Any, home: Path, tmp_path: Path, monkeypatch: Any, damage: str) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(home / "compiled"))

    def call(name: str) -> list[int]:
        training = (*SIZE, "--set", "train.max_steps=5", "-q", "--out", tmp_path / name)
        said = [
            manyhands("train", "mlp", "--plan", "tensor:2", *training[:-1], tmp_path / f"{name}-tensor"),
            manyhands("train", "mlp", "--plan", "auto", *training),
            manyhands(
                "plan",
                "mlp",
                *SIZE[:4],
                "--set",
                "model.width=0.1",
                "--budget",
                "2",
                "-q",
                "-o",
                tmp_path / f"{name}.toml",
            ),
            manyhands("tune", "workers", "mlp", *SIZE, "-q"),
        ]
        assert not [each.err for each in said if "Traceback" in each.err or "error: " in each.err]
        return [each.code for each in said]

    assert call("before") == [0, 0, 0, 0]
    files = kept(home)
    assert {path.relative_to(home).parts[0] for path in files} >= {
        "data",
        "found",
        "links",
        "profiles",
        "trials",
        "guard",
    }
    for path in files:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert call("after") == [0, 0, 0, 0]
    print(f"{damage}: {len(files)} files")
