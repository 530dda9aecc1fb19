"""Holds which modules import each other in a circle, which imports stand inside functions, and names in strings.

Each list is of today and may only shrink: what is repaired is taken out of it, what is new fails.
"""

import ast
import re
from pathlib import Path

import pytest

from import_graph import Import, cycles, imports, modules

ROOT = Path(__file__).parent.parent
CYCLES = [
    {
        *("runs.conducted", "runs.contest", "runs.cutting", "runs.find", "runs.hand", "runs.here", "runs.profile"),
        *("runs.profiled", "runs.run", "runs.training", "runs.tune.batch_size", "runs.tune.child", "runs.tune.loaders"),
        *("runs.tune.pick", "runs.tune.pursuit", "runs.tune.ramp", "runs.tune.rate", "runs.tune.speeds"),
        *("runs.tune.throughput", "runs.tune.works"),
    },
    {
        *("comm.arena", "comm.late", "comm.launch", "comm.loopback", "comm.mail", "comm.many_hosts", "comm.mpi"),
        *("comm.mpirun", "comm.one_host", "comm.rank", "comm.shm"),
    },
]

TORCH = "it loads torch, which this module must not, or not before the process is on its cores"
SEEN = "Ctrl-C must end the command while this loads"
PLOTS = "it loads what draws and serves, which few commands need"
KERNELS = "it compiles, with numba or Triton, which few optimizers need"
# Of modules that import each other one does so inside a function: CYCLES says which, and they have no other reason.
INSIDE: dict[str, dict[str, str]] = {
    "cli.accuracy": {TORCH: "runs.cluster.accuracy"},
    "cli.combine": {TORCH: "runs.average runs.ensemble"},
    "cli.demo": {PLOTS: "report.group report.page report.plots report.report"},
    "cli.deploy": {TORCH: "runs.export runs.predict"},
    "cli.explain": {TORCH: "runs.explained runs.here runs.simulated", PLOTS: "report.plots report.timelines"},
    "cli.plan": {TORCH: "runs.explained runs.find runs.planned runs.simulated"},
    "cli.report": {PLOTS: "report.markdown report.page report.plots report.report report.sheet"},
    "cli.serve": {PLOTS: "report.live.serve"},
    "cli.simulate": {TORCH: "runs.here runs.simulated"},
    "cli.start": {SEEN: "cli.main"},
    "cli.tune": {TORCH: "runs.tune.batch_size runs.tune.rate runs.tune.workers", PLOTS: "report.plots report.tuned"},
    "engine.parallelize": {TORCH: "engine.sharded"},
    "optim.lamb": {KERNELS: "optim.blocks optim.passes"},
    "optim.lars": {KERNELS: "optim.blocks optim.passes"},
    "runs.auto": {TORCH: "runs.find"},
    "runs.contest": {TORCH: "data.load engine.team runs.bind runs.guard runs.job"},
    "runs.find": {TORCH: "data.load graph.fuse runs.layers"},
    "runs.hand": {
        TORCH: "comm.wire data.feed data.load engine.flat engine.gossip engine.pushing engine.server engine.slow "
        "engine.worker optim.optimizer runs.job"
    },
    "runs.run": {TORCH: "comm.late engine.team runs.alike"},
    "runs.study": {TORCH: "runs.study_simulated"},
    "runs.tune.child": {TORCH: "data.load engine.team"},
}
NAME = re.compile(r"manyhands(\.[a-z_]\w*)+")
# Strings that begin as a module's name and are none.
NO_MODULES = {"manyhands.runs.nosuch", "manyhands.train.launch.nosuch"}


@pytest.fixture(scope="module")
def edges() -> list[Import]:
    return imports()


def test_cycles_only_shrink(edges: list[Import]) -> None:
    assert cycles(edges, modules()) == CYCLES


def test_imports_inside_functions_have_a_reason(edges: list[Import]) -> None:
    round_about = {(each.module, each.imported) for each in edges if in_one_cycle(each.module, each.imported)}
    found = {(each.module, each.imported) for each in edges if each.inside} - round_about
    told = {(module, each) for module, of in INSIDE.items() for names in of.values() for each in names.split()}
    assert sorted(found - told) == []
    assert sorted(told - found) == [], "these are gone: take them out of the list"


def in_one_cycle(one: str, other: str) -> bool:
    return any({one, other} <= cycle for cycle in CYCLES)


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
    assert cycles(found, modules(package)) == [{"a.one", "a.two"}]
    assert not exists("manyhands.runs.nosuch", modules())
    assert not exists("manyhands.train.launch.nosuch", modules())
