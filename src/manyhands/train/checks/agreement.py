"""Agreement: what must be the same on all ranks before they train together; a difference is told by host and rank."""

import platform
from collections.abc import Iterator, Mapping
from typing import Any

from manyhands.comm.ranks.rank_group import Team
from manyhands.errors import InputError

MOST = 60  # characters of a value that are shown


def alike(team: Team, facts: Mapping[str, Any]) -> None:
    """All ranks call it, and all refuse alike: which differs from rank 0, in what."""
    if team.world == 1:
        return
    told = team.all_gather_json({"host": platform.node(), **facts})
    first = told[0]
    for rank, other in enumerate(told):
        for name in facts:
            if other[name] != first[name]:
                where, ours, theirs = next(_differences(name, first[name], other[name]))
                raise InputError(
                    f"ranks differ in {where}: {_short(theirs)} on rank {rank} ({other['host']}), {_short(ours)} on "
                    f"rank 0 ({first['host']}): start all with the same"
                )


def _differences(name: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """The innermost values that are not the same, with their dotted names."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if one.get(key) != other.get(key):
                yield from _differences(f"{name}.{key}", one.get(key), other.get(key))
    else:
        yield name, one, other


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MOST else f"{text[:MOST]}…"
