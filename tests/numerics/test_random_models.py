"""Models drawn at random train over ranks as on one device, or are refused before they train; none trains otherwise."""

import json
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from manyhands.data.load import load
from manyhands.data.normalize import Normalize
from manyhands.data.schema import DataOptions
from manyhands.engine.loop import checkpoint
from manyhands.train.checks import guard
from numerics.random_constructs import CONSTRUCTS
from numerics.random_models import KINDS, NOT_DRAWN, build
from rank_pool import Pool

CASE = "numerics.random_cases:compared"
PLANS = {"data:2": 2, "tensor:2": 2, "owt:2": 2, "pipeline:2": 2, "data:2,tensor:2": 4}
MOST_REFUSED = {"data:2": 0.0}
MANY = 200
SET, IN_FP32 = "synthetic:1x6x6,5", "device=cpu,precision=fp32,layout=contiguous,compile=off,threads=1"

NOT_REFUSED = {"data:2": 42, "tensor:2": 59, "owt:2": 35, "pipeline:2": 70, "data:2,tensor:2": 107}  # else the next
AT_ONCE = {"pipeline:2": f"{IN_FP32},microbatches=2,balance=equal"}  # which are measured otherwise


def came_of(pool: Pool, plan: str, model: str, constructs: list[str], folder: Path) -> str | None:
    """Why a model was refused under a plan; None where it trained as on one device."""
    world, told = PLANS[plan], folder / f"{plan}-{model}"
    failed = ""
    try:
        pool.run(CASE, "gloo", world, plan, model, str(told), timeout=10)
    except AssertionError as error:
        failed = str(error)
    answers = [json.loads(each.read_text()) for each in sorted(folder.glob(f"{told.name}.*"))]
    about = f"{model} ({', '.join(constructs)}) under {plan}: {failed or answers}"
    refused = [each["refused"] for each in answers if "refused" in each]
    if refused and (failed or len(refused) == world):  # by all, or by one for whom the others then waited
        return str(refused[0])
    assert not failed, about
    assert [each.get("keys") for each in answers] == [True] * world, about
    assert max(each["far"] for each in answers) < 1e-10, about
    return None


def names(seed: int) -> list[str]:
    return build(seed, 5, (1, 6, 6)).names


def test_every_construct_has_a_kind() -> None:
    assert {each for kind in KINDS.values() for each in kind} == set(CONSTRUCTS) - NOT_DRAWN


@pytest.mark.parametrize(
    ("plan", "seed"), [(plan, number + 4 * each) for number, plan in enumerate(PLANS) for each in range(4)]
)
def test_a_few_models(pools: Any, tmp_path: Path, plan: str, seed: int) -> None:
    refused = came_of(pools("gloo"), plan, f"model_{seed}", names(seed), tmp_path)
    assert refused is None or plan != "data:2"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plan", PLANS)
def test_each_construct_alone(pools: Any, tmp_path: Path, plan: str) -> None:
    wrong, refused = [], {}
    for number, name in enumerate(CONSTRUCTS):
        try:
            reason = came_of(pools("gloo"), plan, f"alone_{number}", [name], tmp_path)
        except AssertionError as error:
            wrong.append(str(error))
            print(error, flush=True)
        else:
            refused |= {name: reason} if reason else {}
    print(f"{plan}: of {len(CONSTRUCTS)} constructs {len(refused)} refused, {len(wrong)} otherwise", flush=True)
    for name, reason in refused.items():
        print(f"  {name}: {reason}", flush=True)
    assert not wrong
    assert not refused or plan != "data:2"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("plan", PLANS)
def test_many_models(pools: Any, tmp_path: Path, plan: str, fresh: bool) -> None:
    first = secrets.randbelow(10**6) if fresh else 1000
    seeds = range(first, first + MANY)
    drawn = Counter(kind for seed in seeds for kind, of in KINDS.items() if of & set(names(seed)))
    assert min(drawn.values()) >= 20, drawn
    reasons, wrong = Counter[str](), []
    for seed in seeds:
        try:
            if (refused := came_of(pools("gloo"), plan, f"model_{seed}", names(seed), tmp_path)) is not None:
                reasons[refused] += 1
        except AssertionError as error:
            wrong.append(str(error))
            print(error, flush=True)
    refused, equal = reasons.total(), MANY - reasons.total() - len(wrong)
    print(
        f"{plan}, models {first} to {seeds[-1]}: {equal} equal, {refused} refused, {len(wrong)} otherwise", flush=True
    )
    for reason, count in reasons.most_common():
        print(f"  {count:4} {reason}", flush=True)
    assert not wrong
    assert refused <= MOST_REFUSED.get(plan, 0.4) * MANY


@pytest.mark.parametrize("plan", PLANS)
def test_the_figures_are_those_of_the_saved_weights(
    manyhands: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str
) -> None:
    """By the command line; the plain model, with no rank and nothing of ours around it, scores the same."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    for seed in range(NOT_REFUSED[plan], NOT_REFUSED[plan] + 9):
        said = manyhands(
            "train", f"numerics.random_models:model_{seed}", "--data", SET,
            "--plan", f"{plan},{AT_ONCE.get(plan, IN_FP32)}",
            "--batch-size", 12, "--epochs", 2, "--set", "data.size=120", "--set", "optim.lr=0.01",
            "--out", tmp_path / f"run{seed}", "--json", "-q",
        )  # fmt: skip
        if said.code == 0:
            break
        assert (said.code, plan != "data:2") == (2, True), said.err
    model = build(seed, 5, (1, 6, 6))
    weights = checkpoint.load_model(tmp_path / f"run{seed}" / "checkpoints" / f"step-{said.json['weights_step']:08d}")
    model.load_state_dict(weights)
    dataset = load(SET, DataOptions(size=120))
    rows, labels = (torch.as_tensor(each[dataset.test.index]) for each in (dataset.test.inputs, dataset.test.labels))
    with torch.inference_mode():
        answers = model.eval()(Normalize(dataset.schema, contiguous=True)(rows))
    assert said.json["test_accuracy"] == (answers.argmax(1) == labels).sum().item() / len(labels)
    assert said.json["test_loss"] == pytest.approx(functional.cross_entropy(answers, labels).item(), rel=1e-6)


def test_a_statistic_of_no_samples_is_refused(pools: Any, tmp_path: Path) -> None:
    """A running mean of the model's own, on a rank that has no samples where it is taken: not a number."""
    reason = came_of(pools("gloo"), "pipeline:2", "model_1087", names(1087), tmp_path)
    assert reason is not None
    assert "the output differs from that of the whole model" in reason


@pytest.mark.parametrize("model", ["model_577658", "only_a view changed twice", "only_a changed view in no_grad"])
def test_a_changed_view_goes_once_to_the_stage_that_uses_it_twice(pools: Any, tmp_path: Path, model: str) -> None:
    """On a rank without samples too: it would else wait for a message that nobody sends."""
    assert came_of(pools("gloo"), "pipeline:2", model, [], tmp_path) is None


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("one", "other", "far"),
    [
        ([1.0, NAN], [1.0, 2.0], INF),
        ([1.0, 2.0], [1.0, NAN], INF),
        ([1.0, INF], [1.0, 2.0], INF),
        ([1.0, NAN, INF], [1.0, NAN, INF], 0.0),
        ([1.5, NAN, INF], [1.0, NAN, INF], 0.5),
        ([1.5, -4.0], [1.0, -4.0], 0.125),
    ],
)
def test_what_is_no_number_is_far_from_every_number(one: list[float], other: list[float], far: float) -> None:
    assert guard._distance(torch.tensor(one), torch.tensor(other), 0.0) == far


@pytest.mark.parametrize("wrong", ["cumsum", "roll"])
def test_the_guard_finds_what_is_wrong(pools: Any, wrong: str) -> None:
    """A function that is taken for elementwise and is not."""
    pools("gloo").run("numerics.random_cases:refuses", "gloo", 2, wrong)


@pytest.mark.parametrize(
    ("words", "backend"),
    [
        *(("data:2", backend) for backend in ("gloo", "shm")),
        *((f"data:2,{more}", "gloo") for more in ("shard=optimizer", "shard=full", "consistency=stale,staleness=0")),
        *((plan, "gloo") for plan in ("tensor:2", "owt:2", "pipeline:2")),
    ],
)
def test_weights_that_nothing_needs_stay(pools: Any, words: str, backend: str) -> None:
    pools(backend).run("numerics.random_cases:leaves_the_unused_alone", backend, 2, words)
