"""Process set-up: pins this process, imports torch and joins the other ranks, in that order."""

from manyhands.comm.ranks.rank_info import Place
from manyhands.comm.rendezvous import join
from manyhands.config import Config
from manyhands.machine.process_setup import settle
from manyhands.plan.plan import Plan


def setup_process(plan: Plan, config: Config, here: Place | None) -> None:
    """Settle this process on its cores; then, and only then, import torch and meet the other ranks."""
    local = here.local_rank if here and plan.has_ranks else 0
    cores = plan.cores[local] if plan.cores and not plan.is_async else None  # a coordinator is none of the ranks
    settle(threads=plan.threads, cores=cores, allocator=plan.allocator or "default")
    import torch

    if plan.has_ranks and not plan.is_async:
        assert here is not None
        if plan.device == "cuda" and torch.cuda.is_available():
            torch.cuda.set_device(local % torch.cuda.device_count())  # ranks with layers in parts may share one
        join(here, plan.backend or "gloo", config.train.timeout)
