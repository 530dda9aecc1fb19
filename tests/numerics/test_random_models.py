"""Models drawn at random train over ranks as on one device, or are refused before they train; none trains otherwise."""

import json
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from numerics.random_models import CONSTRUCTS, KINDS, build
from rank_pool import Pool

CASE = "numerics.random_cases:compared"
PLANS = {"data:2": 2, "tensor:2": 2, "owt:2": 2, "pipeline:2": 2, "data:2,tensor:2": 4}
MOST_REFUSED = {"data:2": 0.0}
MANY = 200


def came_of(pool: Pool, plan: str, seed: int, folder: Path) -> str | None:
    """Why a model was refused under a plan; None where it trained as on one device."""
    world, told = PLANS[plan], folder / f"{plan}-{seed}"
    failed = ""
    try:
        pool.run(CASE, "gloo", world, plan, seed, str(told), timeout=10)
    except AssertionError as error:
        failed = str(error)
    answers = [json.loads(each.read_text()) for each in sorted(folder.glob(f"{told.name}.*"))]
    if failed and (reason := next((each["refused"] for each in answers if each.get("refused")), None)):
        return str(reason)
    about = f"model_{seed} ({', '.join(names(seed))}) under {plan}: {failed or answers}"
    assert not failed, about
    assert [each["keys"] for each in answers] == [True] * world, about
    assert max(each["far"] for each in answers) < 1e-10, about
    return None


def names(seed: int) -> list[str]:
    return build(seed, 5, (1, 6, 6)).names


def test_every_construct_has_a_kind() -> None:
    assert {each for kind in KINDS.values() for each in kind} == set(CONSTRUCTS)


@pytest.mark.parametrize(
    ("plan", "seed"), [(plan, number + 4 * each) for number, plan in enumerate(PLANS) for each in range(4)]
)
def test_a_few_models(pools: Any, tmp_path: Path, plan: str, seed: int) -> None:
    refused = came_of(pools("gloo"), plan, seed, tmp_path)
    assert refused is None or plan != "data:2"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("plan", PLANS)
def test_many_models(pools: Any, tmp_path: Path, plan: str, fresh: bool) -> None:
    first = secrets.randbelow(10**6) if fresh else 1000
    seeds = range(first, first + MANY)
    drawn = Counter(kind for seed in seeds for kind, of in KINDS.items() if of & set(names(seed)))
    assert min(drawn.values()) >= 20, drawn
    reasons = Counter(came_of(pools("gloo"), plan, seed, tmp_path) for seed in seeds)
    equal = reasons.pop(None, 0)
    print(f"{plan}, models {first} to {first + MANY - 1}: {equal} equal, {MANY - equal} refused")
    for reason, count in reasons.most_common():
        print(f"  {count:4} {reason}")
    assert MANY - equal <= MOST_REFUSED.get(plan, 0.4) * MANY


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
