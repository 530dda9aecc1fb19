"""Error reporting: which of the ranks that another launcher has started says why they failed."""

import sys
import time
from datetime import timedelta

from manyhands.comm.ranks.rank_info import place
from manyhands.errors import RankLeft

MOMENT = timedelta(seconds=3)
SAID = "said"


def speaks(error: Exception) -> bool:
    """Whether this process is to say why it fails: the first rank of each host is, for people look at one terminal; and
    one that fails while the first does not.

    A rank that has left said why itself. What all find out before they have met (plan, options) they find out alike;
    the others give the first a moment to say it, since their end is its end. After that the first leaves word in the
    store by which they met; when the store has ended, the first has.
    """
    first = (here := place()) is None or here.rank == 0
    on_host = here is None or here.local_rank == 0
    if isinstance(error, RankLeft) or "torch" not in sys.modules:
        return on_host
    import torch.distributed as dist

    from manyhands.compat import get_default_store

    if not (dist.is_available() and dist.is_initialized()):
        if not on_host:
            time.sleep(MOMENT.total_seconds())
        return on_host
    try:
        if first:
            get_default_store().set(SAID, "")
        elif not on_host:
            get_default_store().wait([SAID], MOMENT)
    except dist.DistStoreError:  # waited in vain
        return True
    except RuntimeError:
        return on_host
    return on_host
