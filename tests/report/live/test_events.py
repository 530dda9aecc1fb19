"""The changes of the list as server-sent events."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from live_server import Start, start

MakeRun = Any
__all__ = ["start"]  # a fixture


@contextmanager
def listening(client: httpx.Client, since: str = "", **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The messages of /events as they come."""
    with client.stream("GET", "/events", params={"since": since}, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        yield (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def test_changes_come_as_events(start: Start, make_run: MakeRun) -> None:
    one = make_run("one")
    client = start().client
    known = client.get("/api/runs").json()
    with listening(client, known["tag"]) as messages:
        one.update(total_steps=77)
        first = next(messages)
        assert not first.get("all")
        assert [(row["name"], row["steps"]) for row in first["rows"]] == [("one", 77)]
        make_run("two")
        assert "two" in [row["name"] for row in next(messages)["rows"]]
    with listening(client, known["tag"], **{"last-event-id": first["tag"]}) as messages:  # a page that comes back
        assert {row["name"] for row in next(messages)["rows"]} == {"two"}
    with listening(client, "of.another.server") as messages:
        everything = next(messages)
        assert everything["all"]
        assert {row["name"] for row in everything["rows"]} == {"one", "two"}


def test_all_pages_share_one_watcher_which_rests_without_them(start: Start, make_run: MakeRun) -> None:
    make_run("one")
    served = start()
    client, events = served.client, served.server.live.events
    with listening(client) as here, listening(client) as there:
        next(here), next(there)
        watcher = events.watcher
        assert (events.listeners, watcher.done()) == (2, False)
        make_run("two")
        assert next(here)["rows"] == next(there)["rows"]
        assert events.watcher is watcher
    deadline = time.monotonic() + 20
    while (events.listeners or not watcher.done()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (events.listeners, watcher.done()) == (0, True)


def test_a_server_ends_while_pages_listen(start: Start) -> None:
    served = start()
    with listening(served.client) as messages:
        next(messages)
        served.server.should_exit = True
        assert list(messages) == []
