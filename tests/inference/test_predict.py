"""A run whose schema is damaged says which file it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyhands.runs import run_folder


@pytest.mark.parametrize("command", [("predict", "x.png"), ("export", "--torch", "model.pt2")], ids=" ".join)
@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"columns": [3]}', '"text"', "null", None])
def test_a_damaged_schema_is_named(
    manyhands: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any, content: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    run_folder.create(Path("run"), {"plan_words": "serial", "config": {}})
    if content is not None:
        Path("run/data.json").write_text(content)
    name, *rest = command
    said = manyhands(name, "run", *rest)
    assert said.code == 2
    assert said.error.startswith("run/data.json")
    assert not Path("model.pt2").exists()
