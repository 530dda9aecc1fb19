"""Link timing: what ranks of this machine exchange takes, measured once and remembered."""

import hashlib
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from manyhands.comm import links
from manyhands.comm.connection import Connection, Head, Listener, connect
from manyhands.errors import UNREADABLE
from manyhands.files import home, write_json
from manyhands.machine.link import Link
from manyhands.machine.machine import Machine
from manyhands.simulate.cost.links import Links

WARM, ROUNDS = 3, 21  # of messages that go there and back


def known_links(backend: str, ranks: int, machine: Machine) -> Links:
    """What so many ranks exchange, measured once, as it usually is."""
    found = {each.operation: each for each in _measured(backend, ranks, machine, usual=True)}
    return Links(found.get("all_reduce_in_place", found["all_reduce"]), found["all_reduce"])


def known_messages(backend: str, machine: Machine) -> Link:
    """From one rank to another, as layers in parts send; measured once."""
    return next(each for each in _measured(backend, 2, machine, usual=False) if each.operation == "send")


def known_wire(size: int, machine: Machine) -> float:
    """Seconds in which so many bytes go from a worker to a server, or to another worker; measured once."""
    path = _place("wire", size, machine)
    try:
        return float(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        taken = _time_wire(size)
        write_json(path, taken)
        return taken


def _time_wire(size: int) -> float:
    def echo(connection: Connection, hello: Head) -> None:
        while True:
            connection.send({}, connection.receive()[1])

    row, taken = torch.zeros(max(size // 4, 1)), list[float]()
    listener = Listener("", echo)
    connection = connect(listener.port, "", {})
    try:
        for _ in range(WARM + ROUNDS):
            start = time.perf_counter()
            connection.ask({}, [row], [row])
            taken.append(time.perf_counter() - start)
    finally:
        connection.close()
        listener.close()
    return statistics.median(taken[WARM:]) / 2


def _place(*facts: Any) -> Path:
    *others, machine = facts
    told = json.dumps([*others, machine.to_json()], sort_keys=True).encode()
    return home() / "links" / f"{hashlib.sha256(told).hexdigest()[:32]}.json"


def _measured(backend: str, ranks: int, machine: Machine, *, usual: bool) -> list[Link]:
    path = _place(backend, ranks, usual, machine)
    try:
        return [Link.from_json(each) for each in json.loads(path.read_text())]
    except UNREADABLE:
        found = links.links(backend, ranks, machine.separate_cores, usual=usual)
        write_json(path, [{**vars(each), "points": [list(point) for point in each.points]} for each in found])
        return found
