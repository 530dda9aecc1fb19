"""Plan words and files: what is said comes back, what is wrong is named."""

from pathlib import Path

import pytest

from manyhands.errors import PlanError
from manyhands.plan.axis import Axis
from manyhands.plan.options import OPTIONS
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse, read, write


@pytest.mark.parametrize(
    "words",
    [
        "plain",
        "plain,workers=4",
        "serial,precision=bf16,layout=channels_last",
        "ddp:4",
        "data:2,tensor:2,pipeline:2,schedule=1f1b,microbatches=8",
        "owt:2,backend=shm",
        "server:3+1,consistency=stale,staleness=4",
        "local:4,every=8",
        "auto",
    ],
)
def test_words_come_back(words: str, tmp_path: Path) -> None:
    plan = parse(words)
    assert parse(str(plan)) == plan
    write(plan, tmp_path / "plan.toml")
    assert parse(str(tmp_path / "plan.toml")) == plan


def test_cores_are_kept_by_a_file(tmp_path: Path) -> None:
    plan = Plan(axes=(Axis("data", 2),), cores=((0, 1), (2,)))
    write(plan, tmp_path / "plan.toml")
    assert read(tmp_path / "plan.toml") == plan


@pytest.mark.parametrize(("words", "world"), [("serial", 1), ("data:4,tensor:2", 8), ("server:3+2", 5)])
def test_world(words: str, world: int) -> None:
    assert parse(words).world == world


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("seril", "did you mean 'serial'"),
        ("", "unknown plan ''"),
        ("data", "write data:2"),
        ("data:x", "write data:2"),
        ("data:0", "at least 1"),
        ("serial:2", "takes no number"),
        ("server:3", "write server:3+1"),
        ("data:2+1", "write data:2"),
        ("data:2,data:2", "twice"),
        ("data:2,serial", "can be combined"),
        ("serial,precison=bf16", "did you mean 'precision'"),
        ("serial,precision=fp8", "Allowed: fp32, bf16"),
        ("serial,threads=0", "at least 1"),
        ("serial,threads=two", "a whole number"),
        ("serial,threads=1,threads=2", "twice"),
        ("precision=bf16", "at least one axis"),
        ("missing.toml", "there is no plan file missing.toml"),
    ],
)
def test_bad_words(words: str, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse(words)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("axes = [", "not a TOML file"),
        ("precision = 'bf16'", "axes is None"),
        ("axes = ['serial']\ncolour = 'red'", "unknown key 'colour'"),
        ("axes = ['serial']\nthreads = 'two'", "threads=two"),
        ("axes = ['serial']\ncores = 'all'", "cores is 'all'"),
        ("axes = ['data:2']\ncores = [[0.7], [true]]", "a list per rank such as [[0, 1], [2, 3]] is needed"),
        ("axes = ['data:2']\ncores = ['01', '1']", "a list per rank"),
        ("axes = ['data:2']\ncores = [[0, 0], [1]]", "each core once"),
        ("axes = ['data:2']\nloader_cores = [[true], [1]]", "loader_cores is [[True], [1]]"),
    ],
)
def test_bad_files(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(content)
    with pytest.raises(PlanError, match=r".*") as caught:
        read(tmp_path / "plan.toml")
    assert told in str(caught.value)


def test_defaults_fill_only_what_is_open() -> None:
    plan = parse("serial,precision=fp32").with_defaults(precision="bf16", threads=2)
    assert (plan.precision, plan.threads) == ("fp32", 2)


def test_every_option_is_a_field() -> None:
    assert set(OPTIONS) <= set(Plan.__dataclass_fields__)
