"""Dense layers of a model by Cannon's algorithm, in the engine, against one device."""

from dataclasses import replace

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.sharding.hybrid import Hybrid
from manyhands.plan.layer_rules import read_named
from manyhands.plan.spec import parse
from manyhands.train.job import assemble
from numerics.cases import LIMIT, REST, trained
from numerics.split_cases import alone, compare, ordered


def by_cannon(backend: str, rank: int, world: int, model: str, names: str, precision: str) -> None:
    config, dataset = ordered(model)
    entries = [{"name": each, "sample": 2, "parameter": 2, "cannon": True} for each in names.split()]
    plan = parse(f"data:{world},device=cpu,backend={backend},precision={precision},{REST}")
    plan = replace(plan, layers=read_named(entries, "plan"))
    job = trained(assemble(config, plan, dataset, Team(rank, world)))
    strategy = job.context.strategy
    assert isinstance(strategy, Hybrid)
    mine = [cut for cut in strategy.cuts if cut.cannon]
    assert len(mine) == len(entries)
    for cut in mine:  # a quarter of the weight, the larger one where it is uneven
        outputs, inputs = cut.shapes["weight"]
        assert cut.tensor("weight").numel() <= -(-outputs // 2) * -(-inputs // 2)
    compare(job, alone(model, precision), LIMIT[precision])
