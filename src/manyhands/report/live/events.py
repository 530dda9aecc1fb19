"""Events: changes of the index as server-sent events; all pages share one watcher, which rests when none is open."""

import asyncio
from collections.abc import AsyncIterator

from manyhands.report.live.index import Index
from manyhands.report.live.values import encode

EVERY = 0.5  # seconds between two looks at the folder
SHARE = 0.1  # of a core that looking may take: a folder of very many runs is looked at less often
HEARTBEAT = 15.0  # seconds: proxies end connections that say nothing for long


class Events:
    """Watches an index for whoever listens."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.listeners = 0
        self.closed = False
        self.told = 0  # the version that listeners know of
        self.moved = asyncio.Event()  # set and replaced with each change
        self.watcher: asyncio.Task[None] | None = None

    async def stream(self, tag: str) -> AsyncIterator[bytes]:
        """The changes after the state that a tag names, for ever; a page that comes back gives the last tag it got."""
        self.listeners += 1
        try:
            yield b"retry: 1000\n\n"
            while not self.closed:
                self._watch()
                moved, now = self.moved, self.index.snapshot
                changes = now.since(tag)
                if changes:
                    yield b"id: %s\ndata: %s\n\n" % (now.tag.encode(), encode(changes))
                    tag = now.tag
                elif not await _set_within(moved, HEARTBEAT):
                    yield b": still here\n\n"
        finally:
            self.listeners -= 1

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        self.moved.set()

    def _watch(self) -> None:
        if self.watcher is None or self.watcher.done():
            self.watcher = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while self.listeners and not self.closed:
            now = await asyncio.to_thread(self.index.refresh)
            if now.version != self.told:
                self.told = now.version
                self.moved.set()
                self.moved = asyncio.Event()
            await asyncio.sleep(max(EVERY, self.index.took / SHARE))


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
