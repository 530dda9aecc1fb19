"""Inside another launcher a plan of several ranks is refused before anything starts."""

from pathlib import Path


def test_inside_torchrun(manyhands, monkeypatch, tmp_path: Path) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    said = manyhands("train", "mlp", "--data", "synthetic:4,2", "--plan", "data:2", "--out", tmp_path / "run", "-q")
    assert said.code == 2
    assert "without torchrun" in said.error
    assert not (tmp_path / "run").exists()
