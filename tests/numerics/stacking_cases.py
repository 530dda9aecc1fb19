"""Block by block over ranks, and the same on one device."""

from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config, with_values
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.plan.spec import parse
from manyhands.train.job import Job, assemble
from numerics.cases import BATCH, LIMIT, REST, SAMPLES, trained
from numerics.split_cases import compare


def by_turns(job: Job) -> Job:
    for epoch in range(2):
        job.context.model.begin_epoch(epoch, 2)
        trained(job, [epoch])
    return job


def block_by_block(backend: str, rank: int, world: int, how: str, optimizer: str) -> None:
    settings = {"model.name": "stacking", "model.width": 0.05, "model.depth": 2, "train.batch_size": BATCH}
    config = with_values(Config(), {**settings, "optim.name": optimizer, "optim.lr": 0.01})
    dataset = load("synthetic:1x6x6,4", DataOptions(size=SAMPLES, validation=0))
    job = by_turns(
        assemble(config, parse(f"{how},device=cpu,backend={backend},precision=fp64,{REST}"), dataset, Team(rank, world))
    )
    alone = by_turns(assemble(config, parse(f"serial,device=cpu,precision=fp64,{REST}"), dataset, Team()))
    compare(job, alone, LIMIT["fp64"])
