"""Parallelize: the exchange that a bound plan asks for, around a model that knows nothing of it."""

from collections.abc import Sequence

import torch.distributed as dist
from torch import nn

from manyhands.comm.backends.shm import ShmGroup
from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.asynchronous.local_sgd import LocalSGD
from manyhands.engine.asynchronous.stale_synchronous import StaleSynchronous
from manyhands.engine.sharding.hybrid import Hybrid
from manyhands.engine.strategies.base import Strategy
from manyhands.engine.strategies.ddp import Make, Replicated
from manyhands.engine.strategies.shared_memory import Shared
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.graph.graph import Graph
from manyhands.plan.plan import Plan
from manyhands.plan.sharding import Split
from manyhands.plan.stages import Pipeline

Layers = tuple[Graph, Sequence[Split], Pipeline]


def parallelize(
    model: nn.Module,
    make: Make,
    clip: float | None,
    plan: Plan,
    team: Team,
    layers: Layers | None = None,
    *,
    by_tensor: bool = False,
    seed: int = 0,
    idle: frozenset[str] = frozenset(),
) -> Strategy:
    """Let the ranks of a team train one model; `make` makes the optimizer of some parameters.

    `layers`: the model's graph, the split of each layer and the stages of these, where the plan cuts them.
    `by_tensor`: the optimizer goes by the norms of whole tensors. `seed`: of what layers in parts draw.
    `idle`: parameters of which the scores do not depend.
    """
    if not plan.has_ranks or team.world != dist.get_world_size():  # alone, or a trial of one rank's share
        return SingleProcess(model, make([each for each in model.parameters() if each.requires_grad]), clip)
    if layers is not None:
        return Hybrid(model, make, clip, *layers, team, seed, idle)
    if plan.axes[0].name == "local":
        assert plan.every is not None
        elastic = plan.average == "elastic"
        return LocalSGD(model, make, clip, team, every=plan.every, after=plan.after or 0, elastic=elastic)
    if plan.consistency == "stale":
        assert plan.staleness is not None
        return StaleSynchronous(model, make, clip, team, plan.staleness)
    group = dist.group.WORLD
    if isinstance(group, ShmGroup) and not plan.is_baseline:
        return Shared(model, make, clip, group, team, by_tensor=by_tensor)
    if plan.shard == "full":
        from manyhands.engine.strategies.fsdp import Sharded  # its imports take half a second, for this alone

        return Sharded(model, make, clip, team)
    return Replicated(
        model,
        make,
        clip,
        team,
        compress=plan.compress or "none",
        shard=plan.shard == "optimizer",
        usual=plan.is_baseline,
        idle=bool(idle),
    )
