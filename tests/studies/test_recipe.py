"""Recipes: what is shipped can be read, cells are the right ones, and a wrong file is told in one line."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from manyhands.config import Config
from manyhands.errors import ConfigError, InputError
from manyhands.studies import claims, derived_metrics, recipe
from manyhands.studies.grid import telling

STUDIES = {
    "affinity",
    "alexnet-methods",
    "alexnet-predicted",
    "backends",
    "batch-sizes",
    "compression",
    "consistency",
    "cpu-vs-gpu",
    "epochs",
    "forward-backward",
    "large-batch",
    "learning-rates",
    "optimizers",
    "parallel-backprop",
    "scaling",
    "search-time",
    "sensitivity",
    "serial-vs-parallel",
}

PAIR = ("these", "those")


def test_every_study_is_shipped() -> None:
    assert set(recipe.names()) >= STUDIES


@pytest.mark.parametrize("name", recipe.names())
def test_a_shipped_recipe(name: str) -> None:
    found = recipe.read(name)
    assert found.source
    assert found.hardware
    assert found.differs
    assert found.claims
    assert set(found.columns) <= derived_metrics.COLUMNS.keys()
    for claim in found.claims:
        assert claim["kind"] in claims.KINDS
        assert claim["words"]
    every = {full: found.cases(full, found.config(full, {})) for full in (False, True)}
    for cases in every.values():
        labels = [case.label for case in cases]
        assert len(set(labels)) == len(labels) > 1
        for named in (each for claim in found.claims for key in ("of", "over") for each in claim.get(key, ())):
            assert named in labels, f"a claim names '{named}'"
    both = [case for cases in every.values() for case in cases]
    assert {row["label"] for row in found.published} <= {case.label for case in both}
    for claim in found.claims:
        for key, values in (
            *claim.get("where", {}).items(),
            *((claim.get("axis"), claim.get(key, ())) for key in PAIR),
        ):
            assert set(values) <= {case.values.get(key) for case in both}, f"a claim names {values}"
    assert found.config(False, {}) != found.config(True, {}) or found.varied(False) != found.varied(True)


def test_the_published_affinity_table() -> None:
    """As the source prints it: the slowest time over this time."""
    rows = recipe.read("affinity").published
    slowest = max(row["seconds"] for row in rows)
    for row in rows:
        assert row.get("slowest time / this", 1) == pytest.approx(slowest / row["seconds"], abs=5e-5)


def made(text: str) -> recipe.Recipe:
    return recipe.from_table("mine", tomllib.loads(text))


def labels(found: recipe.Recipe) -> list[str]:
    return [case.label for case in found.cases(False, Config())]


def test_a_grid() -> None:
    found = made('options = "precision=fp32"\n[axes]\nplan = ["serial", "data:2"]\noptim.lr = [0.1, 0.01]')
    cases = found.cases(False, Config())
    assert [case.label for case in cases] == [
        "serial, lr 0.1", "serial, lr 0.01", "data:2, lr 0.1", "data:2, lr 0.01"
    ]  # fmt: skip
    assert [str(case.plan) for case in cases] == ["serial,precision=fp32"] * 2 + ["data:2,precision=fp32"] * 2
    assert [case.config.optim.lr for case in cases] == [0.1, 0.01] * 2
    assert cases[1].values == {"plan": "serial", "optim.lr": 0.01}


def test_one_at_a_time() -> None:
    found = made('design = "one-at-a-time"\n[axes]\noptim.lr = [0.1, 0.01]\ntrain.epochs = [5]')
    assert labels(found) == ["base", "lr 0.1", "lr 0.01", "epochs 5"]


def test_several_grids() -> None:
    found = made(
        '[[grids]]\noptim.name = ["sgd", "adam"]\noptim.lr = 0.1\n[[grids]]\noptim.name = "sgd"\noptim.lr = 0.2'
    )
    assert labels(found) == ["sgd, lr 0.1", "adam, lr 0.1", "sgd, lr 0.2"]
    lined = made('[[grids]]\nline = "small"\nplan = ["data:1", "data:2"]\ntrain.batch_size = 64')
    assert labels(lined) == ["small, data:1", "small, data:2"]


def test_a_line_stands_for_what_has_one_value_along_it() -> None:
    found = made(
        '[[grids]]\nline = "small"\nmodel.depth = 2\ntrain.batch_size = [8, 16]\n'
        '[[full.grids]]\nline = "large"\nmodel.depth = 3\ntrain.batch_size = [8, 16]'
    )
    assert labels(found) == ["small, batch 8", "small, batch 16"]
    cells = found.cells(full=True)
    assert [cell["line"] for cell in cells] == ["small", "small", "large", "large"]
    assert telling(cells) == {"line", "train.batch_size"}
    assert telling(cells[:2]) == {"train.batch_size"}


def test_a_plan_of_its_own() -> None:
    table = '[plans.apart]\naxes = ["serial"]\nlayers = [{ name = "pool*", devices = [1] }]\n'
    found = made(f'options = "precision=fp32"\n{table}[axes]\nplan = ["serial", "apart"]')
    serial, apart = found.cases(False, Config())
    assert (serial.label, apart.label) == ("serial", "apart")
    assert [str(case.plan) for case in (serial, apart)] == ["serial,precision=fp32"] * 2
    assert [(named.name, named.split.devices) for named in apart.plan.layers] == [("pool*", (1,))]
    with pytest.raises(InputError, match=r"recipe mine: plans\.apart: unknown key 'layer'"):
        made(table.replace("layers", "layer") + '[axes]\nplan = ["apart"]')


def test_what_is_one_value_is_not_named() -> None:
    found = made('[[grids]]\nmodel.name = "mlp"\noptim.lr = [0.1, 0.2]\n"plan.precision" = ["fp32"]')
    assert labels(found) == ["lr 0.1", "lr 0.2"]


def test_axes_by_size() -> None:
    found = made("[axes]\ntrain.epochs = [1]\n[full]\naxes.train.epochs = [2, 3]\n[base]\ntrain.batch_size = 8")
    assert found.varied(False) == [{"train.epochs": [1]}]
    assert found.varied(True) == [{"train.epochs": [2, 3]}]
    assert found.config(True, {"train.seed": "4"}).train.seed == 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("repeat = 3", "unknown key 'repeat': did you mean 'repeats'?"),
        ("repeats = 0", "repeats=0: a whole number, at least 1"),
        ('repeats = "many"', "repeats=many"),
        ('design = "gird"', "design=gird: did you mean 'grid'?"),
        ('plot = "pie"', "plot=pie: Allowed: bars"),
        ('by = "simulating"', "by=simulating: did you mean 'simulation'?"),
        ('by = "search"\ndesign = "optuna"\ntrials = 2', "by=search does not go with design=optuna"),
        ('by = "search"\n[base]\nmachine = "p100x4"', "unknown machine 'p100x4': did you mean 'p100x4-ib'"),
        ('by = "search"\n[axes]\ndevices = [0]', "devices=0: it must be at least 1"),
        ('by = "search"\n[axes]\ndevices = [2.5]', "devices=2.5: a whole number"),
        ('by = "search"\n[axes]\nsimulator = ["deltas"]', "simulator=deltas: did you mean 'delta'"),
        ("[axes]\ndevices = [4]", "unknown axis 'devices'"),
        ('[base]\nmachine = "h200"', "unknown key 'machine'"),
        ("plans = 3", "plans is 3; tables such as"),
        ('design = "optuna"\n[axes]\noptim.lr = [1]', "trials=0: a whole number"),
        ("[axes]\ntides = [1]", "unknown axis 'tides'"),
        ("[axes]\noptim.lr = []", "axis optim.lr=\\[\\]: a list of values is needed"),
        ("[axes]\noptim.lr = {low = 1, high = 2}", "a list of values is needed"),
        ('design = "optuna"\ntrials = 2\n[axes]\noptim.lr = {low = 1, up = 2}', "low, high and log are allowed"),
        ("axes = 3", "axes is 3; a table such as \\[axes\\] is needed"),
        ('[axes]\noptim.name = ["sgdd"]', "unknown optimizer 'sgdd'"),
        ('[axes]\nplan = ["parallel:2"]', "parallel"),
        ("[base]\ntrain.epoch = 1", "unknown key 'train.epoch'"),
        ("title = 5", "title=5: words in quotes are needed"),
        ("options = 5", "options=5: words in quotes are needed"),
        ('whole = "many"', "whole='many': a whole number is needed"),
        ("grids = 5", "grids=5: tables such as \\[\\[grids\\]\\] are needed"),
        ("[small]\ngrids = 5", "small.grids=5: tables such as"),
        ("[plans]\nmine = 5", "plans is {'mine': 5}; tables such as"),
        ('columns = ["foo"]', "column 'foo': Allowed: "),
        ('measure = "speed"', "measure 'speed': "),
        ('claims = ["x"]', "claims=\\['x'\\]: tables such as"),
        ('[[claims]]\nkind = "foo"', "claim kind 'foo': Allowed: ratio"),
        ('[[claims]]\nkind = "ratio"', "a claim of kind 'ratio' needs 'words'"),
        ('[[claims]]\nwords = "x"\nkind = "ratio"', "a claim of kind 'ratio' needs 'above' or 'below'"),
        ('[[claims]]\nwords = "x"\nkind = "all above"\nabove = "1"\nmeasure = "seconds"', "claim above='1': a number"),
        ('[[claims]]\nwords = "x"\nkind = "peak"\nmeasure = "foo"', "measure 'foo': "),
        ("[[published]]\nseconds = 3", "a label, that of its cell, is needed"),
        ('[[published]]\nlabel = "x"\nseconds = nan', "published.seconds=nan: words, a finite number"),
        ("[[published]]\nwhen = 2020-01-01", "published.when=2020-01-01: words"),
        ('design = "optuna"\ntrials = 2\n[axes]\noptim.lr = {low = 3, high = 1}', "low not above high"),
        ('design = "optuna"\ntrials = 2\n[axes]\noptim.lr = {low = 0, high = 1, log = true}', "above 0 where log"),
        ('design = "optuna"\ntrials = 2\n[axes]\noptim.lr = {low = "a", high = 1}', "numbers, low not above"),
        ('design = "optuna"\ntrials = 2', "one table \\[axes\\]; write that"),
        ('design = "optuna"\ntrials = 2\nmeasure = "speed-up"\n[axes]\noptim.lr = [1]', "measure 'speed-up': "),
    ],
)
def test_a_wrong_recipe(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        made(text)


def test_one_value_of_an_axis_needs_no_list() -> None:
    found = made('design = "one-at-a-time"\n[axes]\noptim.name = "sgd"')
    assert found.cells(False) == [{}, {"optim.name": "sgd"}]


def test_files(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[axes]\ntrain.epochs = [1, 2]")
    found = recipe.read(str(tmp_path / "mine.toml"))
    assert (found.name, found.title, labels(found)) == ("mine", "mine", ["epochs 1", "epochs 2"])
    with pytest.raises(ConfigError, match=r"there is no recipe file .*: give an existing one"):
        recipe.read(str(tmp_path / "no.toml"))
    with pytest.raises(InputError, match="unknown study 'epoch': did you mean 'epochs'"):
        recipe.read("epoch")


def test_columns() -> None:
    def row(plan: str, speed: float, **cell: Any) -> dict[str, Any]:
        return {"bound": plan, "cell": {"plan": plan, **cell}, "samples_per_s": {"mean": speed, "std": 0.0}}

    rows = [row("data:1", 10, line="a"), row("data:2", 15, line="a"), row("data:2", 99, line="b")]
    assert [derived_metrics.scaled(each, rows) for each in rows] == [1.0, 1.5, 1.0]
    assert [derived_metrics.efficiency(each, rows) for each in rows] == [1.0, 0.75, 1.0]
    assert derived_metrics.line(row("data:1", 1, **{"train.batch_size": 64})) == "batch_size 64"


def test_columns_beside_synchronous_training() -> None:
    def row(plan: str, line: str, speed: float, accuracy: float, std: float = 0.0, **more: Any) -> dict[str, Any]:
        speeds, scores = {"mean": speed, "std": 0.0}, {"mean": accuracy, "std": std}
        return {"cell": {"plan": plan, "line": line}, "samples_per_s": speeds, "test_accuracy": scores, **more}

    rows = [
        row("data:4", "even", 10, 0.98, 0.003),
        row("local:4", "even", 15, 0.97, 0.004),
        row("data:4", "slow", 5, 0.98),
        row("local:4", "slow", 20, 0.99, staleness={"mean": 1.5, "max": 4}, epoch_seconds={"mean": 2.0, "std": 0.1}),
        row("serial", "one", 3, 0.9),
    ]
    names = ("over data:4", "points over data:4", "staleness", "most stale", "s an epoch", "s to 98 %")
    derived_metrics.derive(rows, names)
    assert [each["extra"]["over data:4"] for each in rows] == [1.0, 1.5, 1.0, 4.0, None]
    points = [each["extra"]["points over data:4"] for each in rows]
    assert points[0] is points[2] is points[4] is None
    assert points[1] == {"mean": pytest.approx(-1.0), "std": pytest.approx(0.5)}
    assert points[3]["mean"] == pytest.approx(1.0)
    assert [rows[3]["extra"][name] for name in names[2:]] == [1.5, 4.0, {"mean": 2.0, "std": 0.1}, None]
    assert [rows[1]["extra"][name] for name in names[2:]] == [None] * 4


def test_the_consistency_study() -> None:
    """Every way on even workers, with a slow rank and with slow steps; its claims find their rows."""
    found = recipe.read("consistency")
    cases = found.cases(False, found.config(False, {}))
    by_line: dict[str, list[str]] = {}
    for case in cases:
        by_line.setdefault(case.values["line"], []).append(case.values["plan"])
    even, slow, random = by_line.values()
    assert even == slow == random
    assert len(even) == 11
    faults = {(case.values["line"], case.config.fault.slow_rank, case.config.fault.slow_steps) for case in cases}
    assert faults == {
        ("even workers", None, None),
        ("one slow rank", "1:3x", None),
        ("slow steps", None, "0.1:10x"),
    }
    rows = [
        {
            "label": case.label,
            "n": 2,
            "cell": dict(case.values),
            "samples_per_s": {"mean": 100.0 + number, "std": 1.0},
            "test_accuracy": {"mean": 0.98, "std": 0.001},
            "target_seconds": {"mean": 5.0, "std": 0.1},
        }
        for number, case in enumerate(cases)
    ]
    derived_metrics.derive(rows, found.columns)
    said = claims.judge(found.claims, rows)
    assert said.count("That ") == len(found.claims)
    assert "cannot be tested" not in said
