"""Which runs are listed, and in which order."""

from collections.abc import Callable
from typing import Any

import pytest

from manyhands.errors import InputError
from manyhands.report.data.selection import selected
from manyhands.runs import run_folder

CONFIG_KEYS = ("optim.lr", "optim.name", "train.batch_size", "model.freeze", "log.tensorboard")


@pytest.fixture
def runs(make_run: Callable[..., run_folder.Run]) -> list[run_folder.Run]:
    def config(model: str, **sections: Any) -> dict[str, Any]:
        return {"model": {"name": model, "freeze": []}, "data": {"name": "digits"}, **sections}

    return [
        make_run(
            "b-slow",
            speed=100.0,
            accuracy=0.97,
            config=config("mlp", optim={"lr": 0.01, "name": "sgd"}, log={"tensorboard": True}),
            created="2026-01-01T10:00:00+00:00",
        ),
        make_run(
            "a-fast",
            speed=5000.0,
            accuracy=0.99,
            plan_words="data:2,precision=bf16,backend=shm",
            config=config("convnet", optim={"lr": None, "name": "adam"}),
            case="data:2",
            created="2026-01-02T10:00:00+00:00",
        ),
        make_run(
            "c-failed",
            speed=None,
            config=config("convnet", optim={"lr": 0.1, "name": "adam"}),
            created="2026-02-01T10:00:00+00:00",
        ),
    ]


def names(runs: list[run_folder.Run], *filters: str, **how: Any) -> str:
    return " ".join(run.name[0] for run in selected(runs, filters, config_keys=CONFIG_KEYS, **how))


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], "b a c"),
        (["status=finished"], "b a"),
        (["status!=finished"], "c"),
        (["model=MLP"], "b"),
        (["model=conv*"], "a c"),
        (["name=?-f*"], "a c"),
        (["data=digits"], "b a c"),
        (["plan=data:2"], "a"),
        (["plan=precision=bf16"], "a"),
        (["plan=data:2,backend=shm"], "a"),
        (["plan=data"], ""),
        (["case=data:2"], "a"),
        (["case=none"], "b c"),
        (["accuracy>0.97"], "a"),
        (["accuracy>=0.97"], "b a"),
        (["accuracy<0.98"], "b"),
        (["accuracy=0.99"], "a"),
        (["samples_per_s>1000"], "a"),
        (["speed<=100"], "b"),
        (["seconds>50"], "b"),
        (["optim.lr=0.01"], "b"),
        (["optim.lr=1e-2"], "b"),
        (["optim.lr=none"], "a"),
        (["optim.lr!=0.01"], "a c"),
        (["optim.lr>0.05"], "c"),
        (["optim.name=adam", "optim.lr=0.1"], "c"),
        (["log.tensorboard=true"], "b"),
        (["created>2026-01-02"], "a c"),
        (["created<2026-01-02"], "b"),
        (["out of memory"], "c"),  # the error
        (["BF16"], "a"),
        (["sgd"], "b"),
        (["2 cores", "finished"], "b a"),
        (["nowhere"], ""),
    ],
    ids=" ".join,
)
def test_filters(runs: list[run_folder.Run], filters: list[str], left: str) -> None:
    assert names(runs, *filters) == left


@pytest.mark.parametrize(
    ("key", "order", "other_way"),
    [
        ("created", "b a c", "c a b"),
        ("name", "a b c", "c b a"),
        ("model", "a c b", "b a c"),
        ("status", "c b a", "b a c"),
        ("speed", "b a c", "a b c"),  # what has none is last either way
        ("accuracy", "b a c", "a b c"),
        ("seconds", "a b c", "b a c"),
        ("optim.lr", "b c a", "c b a"),
    ],
)
def test_sorts(runs: list[run_folder.Run], key: str, order: str, other_way: str) -> None:
    assert names(runs, sort=key) == order
    assert names(runs, sort=key, reverse=True) == other_way


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"sort": "sped"}, "--sort: unknown key 'sped': did you mean 'speed'? Allowed: name, created"),
        ({"sort": "optim.rl"}, "unknown key 'optim.rl': did you mean 'optim.lr'? Allowed: optim.lr, optim.name"),
        ({"filters": ["modell=mlp"]}, "--filter modell=mlp: unknown key 'modell': did you mean 'model'?"),
        ({"filters": ["optim.rl=3"]}, "unknown key 'optim.rl'"),
        ({"filters": ["accuracy>high"]}, "'high' is no number"),
        ({"filters": ["accuracy=high"]}, "'high' is no number"),
        ({"filters": ["status>finished"]}, "status is a text, which goes with = or !="),
    ],
)
def test_what_no_run_has_is_refused(runs: list[run_folder.Run], how: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        selected(runs, config_keys=CONFIG_KEYS, **how)
    assert told in str(error.value)
