"""What may only shrink: functions that are too long or take too much, records that are dictionaries, words of our own.

Whoever mends one of these takes it out of its list, or lowers its count; what is new fails.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "manyhands"
OFFENDERS = Path(__file__).with_name("ratchets.txt")
RULES = "C901,PLR0913,PLR0915"  # complexity above 10, more than 5 arguments, more than 50 statements
DICTS = 226  # dict[str, Any]

# Defined under these names on the day that the rooms were made; and what each is called since.
RENAMED = {
    "Exchange": "Strategy",
    "Alone": "SingleProcess",
    "Given": "LocalBatch",
    "Trainee": "TrainContext",
    "Conductor": "Coordinator",
    "Agenda": "WorkQueue",
    "Flock": "ProcessSupervisor",
    "Wire": "Connection",
    "Door": "Listener",
    "dial": "connect",
    "Arena": "SharedMemory",
    "Mail": "PointToPoint",
    "left": "peer_exited",
    "contest": "benchmark",
    "Turn": "BenchmarkResult, PausablePass",
    "Answer": "SearchResult, Reply",
    "Here": "LocalPredictor",
    "settle_early": "resolve",
    "bind": "autotune",
    "outcome": "record_failure",
    "enter": "setup_process",
    "order": "epoch_order",
    "cuts_layers": "is_model_parallel",
    "is_conducted": "is_async",
    "Board": "SimulationState",
    "play": "execute",
    "change": "incremental_update",
    "attempt": "metropolis",
    "fuse": "coarsen",
    "Crew": "Workers",
    "Pace": "WorkerTiming",
    "Line": "Resource",
    "Gate": "Condition, AccessControl",
    "passes": "timed_passes, batches_with_shares",
    "finding": "judge, conclusion",
    "Chase": "TargetTrial",
    "Handover": "BoundaryStep",
    "crossed": "activation_of_turn",
    "Flat": "FlatParameters",
    "Gradients": "GradientBuffer, GradientList",
    "Stale": "StaleSynchronous",
    "Pushing": "ParameterServerClient",
    "Local": "LocalSGD",
    "Spread": "WeightedDDP",
    "Shares": "ShardedBatchSampler",
    "SharedLoader": "ShardedDataLoader",
    "NOW": "CURRENT_SHARE",
    "Later": "WeightGradStore",
    "beside": "overlapped_wgrad, path_beside",
    "Residuals": "ErrorFeedback",
    "gathered": "all_gather_json",
    "go_on": "resume",
}
# The sharding core keeps its words until it is rewritten.
CORE = ("Cut", "Piece", "Grain", "Part", "Lay", "Post", "Fellows", "Table", "Logits", "Recurrent", "Attention")
METHODS = {"cuts_layers", "is_conducted", "crossed", "gathered"}  # the others are classes and functions of modules
USES = 411  # of the old words as identifiers


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_offenders_only_become_fewer() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", RULES, "--output-format", "json"]
    settings = ["--config", "lint.mccabe.max-complexity=10", "--config", "lint.pylint.max-args=5"]
    done = subprocess.run([*command, *settings, str(SOURCE)], capture_output=True, text=True, check=False)
    found = Counter(f"{each['code']} {where(each)}" for each in json.loads(done.stdout))
    listed = Counter(OFFENDERS.read_text().split("\n")[:-1])
    assert sorted((found - listed).elements()) == [], "too complex, too many arguments or statements: divide it"
    assert sorted((listed - found).elements()) == [], f"mended: take these out of {OFFENDERS.name}"


def where(offence: dict[str, object]) -> str:
    """File and function of what ruff has found."""
    path, line = Path(str(offence["filename"])), offence["location"]["row"]  # type: ignore[index]
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inner = max((each for each in functions if each.lineno <= line <= (each.end_lineno or 0)), key=lambda it: it.lineno)
    return f"{path.relative_to(SOURCE)} {inner.name}"


def test_dictionaries_that_are_records_only_become_fewer() -> None:
    count = sum(len(re.findall(r"\bdict\[str, Any\]", path.read_text())) for path in sources())
    assert count <= DICTS, "make it a frozen dataclass beside who writes it"
    assert count >= DICTS, f"there are {count} now: lower DICTS"


def test_nothing_is_defined_by_a_word_that_was_renamed() -> None:
    defined = [(word, str(path.relative_to(SOURCE))) for path in sources() for word in definitions(path) & {*RENAMED}]
    assert defined == [], [RENAMED[word] for word, _ in defined]


def definitions(path: Path) -> set[str]:
    """Names of a module's classes and functions, of what is assigned at its top, and of METHODS."""
    tree = ast.parse(path.read_text())
    named = {
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef | ast.FunctionDef) and (each in tree.body or each.name in METHODS)
    }
    assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return named | {each.id for each in assigned if isinstance(each, ast.Name)}


def test_words_that_were_renamed_are_used_ever_less() -> None:
    count = Counter[str]()
    for path in sources():
        for token in tokens(path):
            if token.type == tokenize.NAME and token.string in RENAMED:
                count[token.string] += 1
    assert count.total() <= USES, count.most_common()
    assert count.total() >= USES, f"there are {count.total()} now: lower USES"


def test_words_that_are_left_are_left() -> None:
    """Whoever has renamed one takes it out of docs/words.md."""
    rows = [line.split("|")[1] for line in (ROOT / "docs" / "words.md").read_text().splitlines() if line[:2] == "| "]
    listed = {word for row in rows[1:] for word in re.findall(r"\w+", row)}
    used = {token.string for path in sources() for token in tokens(path)}
    assert len(listed) > 100
    assert sorted(listed - used) == []


def tokens(path: Path) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
