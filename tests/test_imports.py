"""Holds why imports stand inside functions, and that names in strings are those of modules.

The list of imports inside functions may only shrink: what is repaired is taken out of it, what is new fails.
"""

import ast
import re
from pathlib import Path

import pytest

from import_graph import Import, imports, modules

ROOT = Path(__file__).parent.parent
TORCH = "it loads torch, which this module must not, or not before the process is on its cores"
SEEN = "Ctrl-C must end the command while this loads"
PLOTS = "it loads what draws and serves, which few commands need"
KERNELS = "it compiles, with numba or Triton, which few optimizers need"
SEARCHES = "it loads the search, which few trainings need"
INSIDE: dict[str, dict[str, str]] = {
    "api": {TORCH: "tune.auto_batch_size", SEARCHES: "tune.plan.choose"},
    "cli.accuracy": {TORCH: "simulate.cluster.train tune.plan.worker_timing"},
    "cli.average": {TORCH: "inference.weight_average"},
    "cli.demo": {PLOTS: "report.data.group report.gather report.matplotlib_backend report.page.page"},
    "cli.ensemble": {TORCH: "inference.ensemble"},
    "cli.explain": {
        TORCH: "simulate.layer_report simulate.narrative simulate.simulator tune.plan.local_predictor",
        PLOTS: "report.charts.timelines report.matplotlib_backend",
    },
    "cli.export": {TORCH: "inference.export"},
    "cli.plan": {
        TORCH: "simulate.layer_report simulate.narrative simulate.simulator",
        SEARCHES: "tune.plan.choose tune.plan.described_machine",
    },
    "cli.predict": {TORCH: "inference.predict"},
    "cli.report": {
        PLOTS: "report.gather report.matplotlib_backend report.page.page report.text.csv_export report.text.markdown"
    },
    "cli.serve": {PLOTS: "report.live.serve"},
    "cli.simulate": {TORCH: "simulate.device_sweep simulate.simulator tune.plan.local_predictor"},
    "cli.start": {SEEN: "cli.main"},
    "cli.tune": {
        TORCH: "tune.batch_size tune.loader_workers tune.lr_range_test",
        PLOTS: "report.charts.batch_size report.matplotlib_backend",
    },
    "comm.launch.elastic": {TORCH: "comm.ranks.one_host"},
    "comm.launch.error_reporting": {TORCH: "compat"},
    "comm.rendezvous": {
        TORCH: "comm.backends.mpi comm.backends.shm comm.ranks.many_hosts comm.ranks.one_host comm.ranks.timeouts"
    },
    "engine.parallelize": {TORCH: "engine.strategies.fsdp"},
    "measure.plan_benchmark_worker": {
        TORCH: "comm.process_setup comm.ranks.rank_group data.load train.autotune train.checks.guard train.job"
    },
    "optim.lamb": {KERNELS: "optim.cpu_kernels optim.triton_kernels"},
    "optim.lars": {KERNELS: "optim.cpu_kernels optim.triton_kernels"},
    "studies.study": {TORCH: "studies.simulated"},
    "train.async_worker": {
        TORCH: "comm.connection data.feeds data.load data.sampler engine.asynchronous.gossip "
        "engine.asynchronous.parameter_server engine.asynchronous.parameter_server_client engine.asynchronous.worker "
        "engine.loop.straggler engine.memory engine.parameters.state_messages optim.factory train.job"
    },
    "train.launch": {TORCH: "comm.ranks.rank_group train.checks.agreement"},
    "train.process": {TORCH: "comm.ranks.rank_group comm.ranks.timeouts train.train"},
    "tune.plan.choose": {TORCH: "data.load graph.coarsen simulate.model_graph"},
    "tune.plan.complete": {TORCH: "tune.plan.pipeline_balance"},
    "tune.worker": {TORCH: "comm.process_setup comm.ranks.rank_group data.load train.job"},
}
NAME = re.compile(r"manyhands(\.[a-z_]\w*)+")
# Strings that begin as a module's name and are none.
NO_MODULES = {"manyhands.runs.nosuch", "manyhands.train.launch.nosuch"}


@pytest.fixture(scope="module")
def edges() -> list[Import]:
    return imports()


def test_imports_inside_functions_have_a_reason(edges: list[Import]) -> None:
    found = {(each.module, each.imported) for each in edges if each.inside}
    told = {(module, each) for module, of in INSIDE.items() for names in of.values() for each in names.split()}
    assert sorted(found - told) == []
    assert sorted(told - found) == [], "these are gone: take them out of the list"


def strings() -> list[tuple[str, str]]:
    """Each string of the sources, tests and benchmarks that names a module of ours, with where it stands."""
    found = []
    for folder in ("src", "tests", "benchmarks", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                    found.append((node.value, f"{path.relative_to(ROOT)}:{node.lineno}"))
    return found


def test_names_in_strings_are_those_of_modules() -> None:
    """Modules that are started with `-m`, patched in a test, imported by name, or looked into for their files."""
    every = modules()
    named = strings()
    assert len(named) > 30
    wrong = [(name, where) for name, where in named if name not in NO_MODULES and not exists(name, every)]
    assert wrong == []


def exists(name: str, every: dict[str, Path]) -> bool:
    """Whether it is a module, a folder of ours, or something that a module defines."""
    inner = name.removeprefix("manyhands.")
    if inner in every or (every[""].parent / inner.replace(".", "/")).is_dir():
        return True
    while "." in inner:
        inner, _, attribute = inner.rpartition(".")
        if inner in every:
            return attribute in {*re.findall(r"\w+", every[inner].read_text())}
    return False


def test_the_checks_can_fail(tmp_path: Path) -> None:
    package = tmp_path / "ours"
    (package / "a").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a" / "__init__.py").write_text("")
    (package / "a" / "one.py").write_text("from ours.a import two\n")
    (package / "a" / "two.py").write_text("def later():\n    from ours.a.one import thing\n    return thing\n")
    (package / "three.py").write_text("import ours.a.one\n")
    found = imports(package)
    assert [(each.module, each.imported, each.inside) for each in found] == [
        ("a.one", "a.two", ""),
        ("a.two", "a.one", "later"),
        ("three", "a.one", ""),
    ]
    assert not exists("manyhands.runs.nosuch", modules())
    assert not exists("manyhands.train.launch.nosuch", modules())
