"""A trunk by sample and branches on ranks of their own, and the same on one device; functions that all ranks run."""

from dataclasses import replace

from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config, with_values
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.engine.sharding.hybrid import Hybrid
from manyhands.plan.layer_rules import read_named
from manyhands.plan.spec import parse
from manyhands.train.job import assemble
from numerics.cases import BATCH, LIMIT, REST, SAMPLES, trained
from numerics.split_cases import compare


def branches_apart(backend: str, rank: int, world: int, precision: str) -> None:
    settings = {"model.name": "treenet", "model.width": 0.25, "model.depth": world, "train.batch_size": BATCH}
    config = with_values(Config(), {**settings, "optim.name": "sgd", "optim.lr": 0.05})
    dataset = load("synthetic:1x12x12,4", DataOptions(size=SAMPLES, validation=0))
    entries = [{"name": f"branch_{number}.*", "devices": [number]} for number in range(world)]
    options = f"device=cpu,precision={precision},{REST}"
    plan = replace(parse(f"data:{world},backend={backend},{options}"), layers=read_named(entries, "plan"))
    job = trained(assemble(config, plan, dataset, Team(rank, world)))
    strategy = job.context.strategy
    assert isinstance(strategy, Hybrid)
    here = {cut.name.partition(".")[0] for cut in strategy.cuts for _ in cut.module.parameters()}
    assert here == {"trunk", f"branch_{rank}"}
    alone = trained(assemble(config, parse(f"serial,{options}"), dataset, Team()))
    compare(job, alone, LIMIT[precision])
