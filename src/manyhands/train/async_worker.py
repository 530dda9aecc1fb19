"""Async worker: a worker or a server of a conducted run (`python -m manyhands.train.async_worker RUN PORT RANK`)."""

import os
import platform
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from manyhands.config import Config
from manyhands.machine.process_setup import settle
from manyhands.plan.plan import Plan, from_table
from manyhands.progress import set_quiet
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of

if TYPE_CHECKING:
    from manyhands.comm.connection import Connection


WORD = "MANYHANDS_WORD"  # that the processes of one run know


def main(folder: Path, port: int, rank: int) -> None:
    set_quiet(True)
    run = run_folder.load(folder)
    plan, config = from_table(run.record["plan"], "run.json"), order_of(run)
    settle(threads=plan.threads, cores=plan.cores[rank] if plan.cores else None, allocator=plan.allocator or "default")
    (serve if rank >= plan.axes[0].degree else work)(config, plan, port, rank)


def serve(config: Config, plan: Plan, port: int, rank: int) -> None:
    """Keep a part of the parameters until the coordinator says that it is over."""
    from functools import partial

    from manyhands.comm.connection import Listener
    from manyhands.engine.asynchronous.parameter_server import Server
    from manyhands.optim import factory as optim

    # The rate comes with every push.
    make = partial(optim.build, options=config.optim, lr=1.0, best=True, device="cpu")
    bound = {"sync": 0, "stale": plan.staleness or 0, "async": None}[plan.consistency or "sync"]
    server = Server(make, plan.axes[0].degree, bound, adapt=plan.adapt == "on")
    with (
        closing(Listener(os.environ[WORD], server.serve)) as listener,
        closing(_hello(port, rank, listener.port)) as connection,
    ):
        while True:
            order, rows = connection.receive()
            match order["kind"]:
                case "begin":
                    server.begin(order, rows)
                    connection.send({})
                case "give":
                    connection.send(*server.give(order["version"]))
                case _:
                    server.end()
                    connection.send(_about())
                    return


def work(config: Config, plan: Plan, port: int, rank: int) -> None:
    """Compute gradients until there is nothing more to do."""
    from torch import Tensor

    from manyhands.comm.connection import Head, connect
    from manyhands.data.feeds import DeviceFeed, HostFeed
    from manyhands.data.load import load
    from manyhands.data.sampler import Batches
    from manyhands.engine.asynchronous.gossip import Gossip
    from manyhands.engine.asynchronous.parameter_server_client import ParameterServerClient
    from manyhands.engine.asynchronous.worker import Worker
    from manyhands.engine.loop.straggler import slow_down
    from manyhands.engine.parameters.state_messages import buffers_of, set_buffers, state_of
    from manyhands.train.job import assemble

    dataset = load(config.data.name, config.data)
    job = assemble(config, plan.alone(), dataset)
    slow_down(job.step, config.fault.read(), rank, config.train.seed)
    context, clip, word, workers = job.context, config.train.clip, os.environ[WORD], plan.axes[0].degree
    strategy: Gossip | ParameterServerClient
    if plan.axes[0].name == "gossip":
        strategy = gossip = Gossip(
            context.model,
            context.optimizer,
            clip,
            rank=rank,
            world=workers,
            topology=plan.topology or "ring",
            seed=config.train.seed,
            word=word,
        )
        connection = _hello(port, rank, gossip.listener.port)
        welcome, (row, *rows) = connection.receive()
        count = len(buffers_of(context.model))
        set_buffers(context.model, rows[:count])
        state, groups = state_of(welcome, rows[count:])
        gossip.take(row, gossip.flat.joined(state, groups) if state else None)
        if welcome["late"]:
            gossip.join(welcome["peers"])
    else:
        connection = _hello(port, rank, 0)
        welcome, rows = connection.receive()
        set_buffers(context.model, rows)
        servers = [connect(each, word, {"rank": rank}) for each in welcome["servers"]]
        strategy = ParameterServerClient(context.model, context.optimizer, clip, servers)
    context.strategy = strategy

    def give() -> tuple[Head, list[Tensor]]:
        head, rows = strategy.told() if isinstance(strategy, Gossip) else ({}, [])
        return head, [*buffers_of(context.model), *rows]

    feed = context.feed
    assert isinstance(feed, DeviceFeed | HostFeed)
    batches = Batches(len(dataset.train), config.batch_sizes, config.train.seed)
    with closing(connection), closing(strategy):
        Worker(connection, job.step, strategy, feed, batches, workers, config.train.seed).run(give, _about)


def _hello(port: int, rank: int, own: int) -> "Connection":
    """Tell the coordinator who one is, and at which port others find one."""
    from manyhands.comm.connection import connect

    about = {"rank": rank, "pid": os.getpid(), "host": platform.node(), "cores": sorted(os.sched_getaffinity(0))}
    return connect(port, os.environ[WORD], {**about, "port": own})


def _about() -> dict[str, float]:
    import torch

    from manyhands.engine.memory import peak_memory_mb

    return {"peak_memory_mb": peak_memory_mb(torch.device("cpu"))}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
