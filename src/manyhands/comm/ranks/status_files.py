"""Status files: a folder where ranks write who they are, why they failed, and that they have ended."""

import os
from collections.abc import Sequence
from pathlib import Path

from manyhands.comm.ranks.rank_info import place
from manyhands.errors import RankLeft

NOTES = "MANYHANDS_NOTES"  # a folder where ranks say who they are, why they failed, and that they have ended


def ended(world: int) -> list[int]:
    """Which ranks, of a group of all, have come to the end of their script; of a smaller group nobody can tell."""
    folder, here = os.environ.get(NOTES), place()
    if not folder or here is None or here.world != world:
        return []
    return sorted(int(path.stem) for path in Path(folder).glob("*.ended"))


def peer_exited(gone: Sequence[int], rank: int, what: str) -> RankLeft:
    """The error of a rank that waits for some that will not come any more."""
    return RankLeft(f"{names(gone)} {'has' if len(gone) == 1 else 'have'} ended while rank {rank} waits in {what}")


def names(ranks: Sequence[int]) -> str:
    return ", ".join(f"rank {rank}" for rank in ranks)


def note(kind: str, text: str) -> None:
    if (folder := os.environ.get(NOTES)) and (here := place()):
        Path(folder, f"{here.rank}.{kind}").write_text(text)
