"""Guard: before a plan that cuts layers trains, one small step of it beside one of the whole model.

    whole model   forward, backward ─→ scores, gradients, buffers ┐
                                                                  ├─ as near as float64 lets them be, else refused
    in parts      forward, backward ─→ scores, gradients, buffers ┘

On real samples and copies of the model, whose weights are moved from where they begin: a zero bias or a gain of one
would hide that a rank has the wrong part of it. What is drawn at random is fixed for both. What has passed is
remembered by model, source, plan and versions. It is a net under what nobody thought of, not a proof.
"""

import hashlib
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor, nn

import manyhands
from manyhands.comm.ranks.rank_group import Team
from manyhands.comm.ranks.timeouts import named
from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.feeds import HostFeed
from manyhands.data.sampler import Share
from manyhands.engine.sharding.hybrid import Hybrid
from manyhands.errors import ManyhandsError, ModelError
from manyhands.files import home, write_json
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan, to_table
from manyhands.progress import say
from manyhands.train.checks.no_randomness import Still, hold_still
from manyhands.train.checks.source_hash import source_hash
from manyhands.train.job import Job, assemble
from manyhands.train.weights import build_model

SECONDS = 5.0  # after which no further check is begun
EXACT, LOWERED = 1e-8, 1e-4  # relative, in float64; where the model itself goes below it
FLOOR = 1e-3  # of the largest gradient: a tensor's own may be nothing but rounding
ROUNDING = 8.0  # how much further from float64 than the whole model in the run's own precision
LEAST = 1e-3
MOVES = (0.1, 0.01, 0.0)  # how far weights are moved; less where numbers do not stay finite
CHECK = 2  # which check this is: raised when it refuses more, so that what passed an earlier one is checked again
COPIES = 8  # of the weights, in float64: two models with gradients, and what is between
OF_A_STEP = ("device", "precision", "layout", "kernels", "feed", "workers", "capture", "compile", "places", "threads")


@dataclass
class Seen:
    """What a step and a look at the scores gave; tensors by name, in the order of the model's layers."""

    gradients: dict[str, Tensor | None]
    buffers: dict[str, Tensor]
    scores: Tensor
    loss: float
    lowered: bool

    @property
    def finite(self) -> bool:
        tensors = [self.scores, *(each for each in self.gradients.values() if each is not None)]
        return math.isfinite(self.loss) and all(bool(each.isfinite().all()) for each in tensors)


def guard(config: Config, plan: Plan, dataset: Dataset, team: Team) -> None:
    """Refuse a plan under which this model would train as another one."""
    if not plan.is_model_parallel or team.world == 1 or plan.boundary == "updates":  # which learns by other batches
        return
    path = home() / "guard" / f"{_key(config, plan, dataset)}.json"
    if team.broadcast_json(path.is_file()):
        return
    started = time.perf_counter()
    if not all(team.all_gather_json(_fits(config, plan, dataset))):
        if team.is_leader:
            say(
                f"plan {plan.name} was not checked against the whole model, which is too large for the memory of a rank"
            )
        return
    done = 0
    with torch.random.fork_rng([torch.cuda.current_device()] if plan.device == "cuda" else []):
        for precision, samples in _checks(plan, team):
            if not team.broadcast_json(time.perf_counter() - started < SECONDS):
                break
            if not _check(config, plan, dataset, team, precision, samples):
                return
            done += 1
    if team.is_leader:
        write_json(path, {"checks": done, "plan": plan.name, "model": config.model.name})


def _checks(plan: Plan, team: Team) -> list[tuple[str, int]]:
    """Precision and number of samples: one in float64, one more of uneven size, one as the run itself computes."""
    each = 2 * max(team.world, plan.microbatches or 1)
    own = [] if plan.precision in (None, "fp64") else [(plan.precision, each)]
    return [("fp64", each), *own, ("fp64", each + 1)]


def _check(config: Config, plan: Plan, dataset: Dataset, team: Team, precision: str, samples: int) -> bool:
    """Whether there was something to compare; raises where it is not the same."""
    see = partial(_seen, config, plan, dataset, team, min(samples, len(dataset.train)))
    for move in MOVES:
        whole = see(True, precision, move)
        if team.broadcast_json(whole.finite):
            break
    else:
        say("the plan was not checked against the whole model, whose scores are not finite")
        return False
    try:
        parts = see(False, precision, move)
    except ManyhandsError:
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and (other := named(error, config.train.timeout)):
            raise other from error
        reason = (str(error).strip().splitlines() or [""])[0]
        raise ModelError(
            f"model {config.model.name} runs whole, but not as plan {plan.name} cuts it "
            f"({type(error).__name__}: {reason}): use data:N"
        ) from error
    if precision == "fp64":
        wrong = _differs(parts, whole, LOWERED if whole.lowered else EXACT)
    else:
        wrong = _strays(parts, whole, see(True, "fp64", move))
    if (wrong := next((each for each in team.all_gather_json(wrong) if each), None)) is not None:
        raise ModelError(
            f"plan {plan.name} would train model {config.model.name} as another one: {wrong} from that of the whole "
            "model; use data:N, or see the model's code before that layer"
        )
    return True


def _differs(parts: Seen, whole: Seen, limit: float) -> str | None:
    """What is wrong first, and by how much."""
    largest = max((float(each.abs().max()) for each in whole.gradients.values() if each is not None), default=0.0)
    if (far := _distance(parts.scores, whole.scores, 0.0)) > limit:
        worst = _worst(parts, whole, limit, largest)
        about = f" (the gradient of {worst} does too)" if worst else ""
        return f"the output differs{about}{_by(far)}"
    if (worst := _worst(parts, whole, limit, largest)) is not None:
        return f"the gradient of {worst} differs"
    for name, buffer in whole.buffers.items():
        if buffer.is_floating_point() and (far := _distance(parts.buffers[name], buffer, FLOOR)) > limit:
            return f"buffer {name} differs{_by(far)}"
    far = abs(parts.loss - whole.loss)
    return None if far <= limit * max(abs(whole.loss), 1.0) else f"the loss differs{_by(far)}"


def _by(far: float) -> str:
    return f" by {far:.1e}" if math.isfinite(far) else ""


def _worst(parts: Seen, whole: Seen, limit: float, largest: float) -> str | None:
    """The last layer whose gradient is wrong: what is wrong behind it would make all before it wrong."""
    for name, gradient in reversed(whole.gradients.items()):
        own = parts.gradients[name]
        if (own is None) != (gradient is None):
            return name
        if own is not None and gradient is not None and _distance(own, gradient, FLOOR * largest) > limit:
            return name
    return None


def _strays(parts: Seen, whole: Seen, whole64: Seen) -> str | None:
    """Whether all gradients together are much further from exact ones than rounding makes the whole model's."""
    usual = _apart(whole, whole64)
    far = _apart(parts, whole)
    if far <= max(ROUNDING * usual, LEAST):
        return None
    return f"in its own precision the gradient differs{_by(far)} (rounding alone: {usual:.1e})"


def _apart(one: Seen, other: Seen) -> float:
    apart = size = 0.0
    for name, gradient in other.gradients.items():
        own = one.gradients[name]
        if gradient is not None and own is not None:
            apart += float((own.double() - gradient.double()).square().sum())
            size += float(gradient.double().square().sum())
    return float((apart / size) ** 0.5) if size else 0.0


def _distance(one: Tensor, other: Tensor, floor: float) -> float:
    """Relative to the other's largest number; infinite where only one of them has a number."""
    if one.shape != other.shape:
        return math.inf
    if not one.numel():
        return 0.0
    one, other = one.double(), other.double()
    alike = (one == other) | (one.isnan() & other.isnan())
    far = float(torch.where(alike, 0.0, (one - other).abs()).nan_to_num(nan=math.inf, posinf=math.inf).max())
    return far / max(float(other.nan_to_num(0.0, 0.0, 0.0).abs().max()), floor, 1e-30) if far else 0.0


def _seen(
    config: Config,
    plan: Plan,
    dataset: Dataset,
    team: Team,
    samples: int,
    whole: bool,
    precision: str,
    move: float,
) -> Seen:
    """A step and a look at the scores, of the whole model or in parts."""
    accumulate = plan.microbatches or config.train.accumulate
    exact: dict[str, Any] = {"precision": precision, "feed": "host", "workers": 0, "capture": "off", "compile": "off"}
    if precision == "fp64":
        exact |= {"kernels": "torch"}
    mine = replace(plan, **exact)
    if whole:
        mine = Plan(axes=(Axis("serial"),), **{key: getattr(mine, key) for key in OF_A_STEP})
    settings = {"data.augment": "none", "optim.name": "sgd", "optim.lr": 1e-12, "optim.weight_decay": 0.0}
    order = with_values(config, {**settings, "train.clip": None, "train.accumulate": accumulate if whole else 1})
    job = assemble(order, mine, dataset, Team() if whole else team)
    hold_still(job.context.model)
    job.context.strategy.load_weights(_moved(order, dataset, move))
    feed = job.context.feed
    assert isinstance(feed, HostFeed)
    batch = feed.of(np.arange(samples) * (len(dataset.train) // samples))
    with _watched(job.context.model) as mode:
        loss = job.step(batch, Share(samples, samples, samples))
        gradients, buffers = _told(job, whole)
        scores = _scores(job, team, batch, whole)
    own = Team() if whole else team
    return Seen(gradients, buffers, scores, float(own.sum(loss.detach().double())), mode.lowered)


def _told(job: Job, whole: bool) -> tuple[dict[str, Tensor | None], dict[str, Tensor]]:
    """Gradients and buffers of the whole model."""
    strategy, model = job.context.strategy, job.context.model
    strategy.sync_buffers()
    buffers = {name for name, _ in model.named_buffers()}
    state = {name: each.detach().cpu().clone() for name, each in strategy.weights().items()}
    if whole:
        gradients = {name: each.grad for name, each in model.named_parameters() if each.requires_grad}
        found = {name: None if each is None else each.cpu() for name, each in gradients.items()}
    else:
        assert isinstance(strategy, Hybrid)
        found = strategy.gradients()
        buffers = set(state) - found.keys()
    return found, {name: state[name] for name in state if name in buffers}


def _scores(job: Job, team: Team, batch: Any, whole: bool) -> Tensor:
    """What the model says of the samples in evaluation, in their order, on every rank."""
    context = job.context
    context.model.eval()
    with torch.no_grad():
        outputs, _, given = context.answers(context.feed, batch)
    context.model.train()
    if whole:
        return outputs.detach().cpu()
    told = team.all_gather_json(outputs.detach().cpu()[: given.counts].contiguous())
    return torch.cat([each for each in told if len(each)])


def _moved(config: Config, dataset: Dataset, move: float) -> dict[str, Tensor]:
    """The weights with which the run begins, a little elsewhere; the same on all ranks and devices."""
    model = build_model(config, dataset.schema)
    generator = torch.Generator().manual_seed(config.train.seed + 1)
    learned = {name for name, _ in model.named_parameters()}
    state = {name: each.detach().clone() for name, each in model.state_dict().items()}
    for name, each in state.items():
        if each.is_floating_point():
            noise = torch.randn(each.shape, generator=generator, dtype=torch.float64)
            size = float(each.double().abs().mean()) if each.numel() else 0.0
            by = noise * max(size, 0.1) if name in learned else noise.clamp(-2, 2) * each.double()
            state[name] = each.double() + move * torch.where(each.isfinite(), by, 0.0)
    return state


@contextmanager
def _watched(model: nn.Module) -> Iterator[Still]:
    """Around each call of the model, in whatever thread: a mode is one thread's."""
    told, forward = Still(), model.forward

    def watched(*given: Any, **named: Any) -> Any:
        with (mode := Still()):
            result = forward(*given, **named)
        told.lowered |= mode.lowered
        return result

    model.forward = watched
    try:
        yield told
    finally:
        model.forward = forward


def _fits(config: Config, plan: Plan, dataset: Dataset) -> bool:
    """Whether this rank has the memory for copies of the whole model."""
    with torch.device("meta"):
        try:
            size = sum(each.numel() for each in build_model(config, dataset.schema).parameters())
        except Exception:  # a user's own may not let itself be built so
            return True
    if plan.device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return COPIES * 8 * size < free
    return COPIES * 8 * size * plan.world < psutil.virtual_memory().available


def _key(config: Config, plan: Plan, dataset: Dataset) -> str:
    """All that the answer hangs on."""
    facts = {
        "check": CHECK,
        "model": config.to_json()["model"],
        "source": source_hash(config.model.name),
        "plan": to_table(plan),
        "train": [config.train.batch_size, config.train.accumulate, config.train.label_smoothing],
        "data": dataset.schema.to_json(),
        "versions": [torch.__version__, manyhands.__version__],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]
