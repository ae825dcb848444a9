"""A client as simple as a correct one can be: it lists, watches, and lists again after 410 Gone."""

from __future__ import annotations

import asyncio
from typing import Generic

from bayplan.api.cluster_api import Change, ClusterAPI, ObjectT, WatchEvent
from bayplan.errors import GoneError, ServerError

RETRY_SECONDS = 1.0


class Mirror(Generic[ObjectT]):
    """Keeps a copy of all objects of a kind, by their keys, and records its events."""

    def __init__(self, cluster: ClusterAPI, kind: type[ObjectT]) -> None:
        self.objects: dict[str, ObjectT] = {}
        self.events: list[WatchEvent[ObjectT]] = []
        self.lists = 0
        self.watches = 0
        self._cluster = cluster
        self._kind = kind

    async def run(self) -> None:
        while True:
            try:
                items, version = await self._cluster.list(self._kind)
            except ServerError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.lists += 1
            self.objects = {item.key: item for item in items}
            await self._follow(version)

    async def _follow(self, version: str) -> None:
        """Watches until a list is needed."""
        while True:
            self.watches += 1
            try:
                async for batch in self._cluster.watch(self._kind, version):
                    for event in batch:
                        self._apply(event)
                        version = event.resource_version
            except GoneError:
                return
            except ServerError:
                pass
            await asyncio.sleep(RETRY_SECONDS)

    def _apply(self, event: WatchEvent[ObjectT]) -> None:
        self.events.append(event)
        item = event.object
        if item is None:
            assert event.change is Change.BOOKMARK
        elif event.change is Change.DELETED:
            self.objects.pop(item.key, None)
        else:
            self.objects[item.key] = item
