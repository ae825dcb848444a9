"""A member cluster that is kept up to date by watches, for an estimator that runs for a long time.

The informers are those of `bayplan run`. They write into a what-if cluster instead of a scheduler's cache,
so that every question is answered on a branch of the current state. An answer runs to its end before the
next change is applied: there is one thread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from bayplan.answers.sources.live import read_kinds
from bayplan.answers.whatif.cluster import Cluster
from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.kinds import Watch
from bayplan.api.meta import Object
from bayplan.api.releases import Release
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster, read_version
from bayplan.client.informer import Informer
from bayplan.config import default_config
from bayplan.errors import APIError

COMPONENT: Final = "estimator"
RETRY_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class LiveMember:
    """A member, its copy, and the informers that keep the copy up to date."""

    def __init__(self, name: str, access: Access) -> None:
        self.name = name
        self.cluster = Cluster.from_objects(())
        self.changes = 0
        """How many changes have been applied: what was computed before the last one is stale."""
        self.is_synced = False
        self._access = access

    def added(self, item: Object) -> None:
        self.cluster.sync(None, item)
        self.changes += 1

    def updated(self, old: Object, new: Object) -> None:
        self.cluster.sync(old, new)
        self.changes += 1

    def deleted(self, item: Object) -> None:
        self.cluster.sync(item, None)
        self.changes += 1

    async def run(self) -> None:
        """Watches the cluster until it is cancelled. A server that does not respond is tried again."""
        async with KubernetesCluster(self._access, component=COMPONENT) as api:
            await self.watch(api, await self._release(api))

    async def watch(self, api: ClusterAPI, release: Release) -> None:
        """The same with a client, for a server of this release."""
        self.cluster = Cluster.from_objects((), config=default_config(release=release))
        informers: list[Informer[Any]] = [
            Informer(api, kind.record, self, optional=kind.watch is not Watch.REQUIRED)
            for kind in read_kinds()
        ]
        synced = asyncio.ensure_future(self._wait(informers))
        try:
            await asyncio.gather(*(one.run() for one in informers))
        finally:
            synced.cancel()

    async def _release(self, api: KubernetesCluster) -> Release:
        while True:
            try:
                return (await read_version(api.requests)).nearest_release()[0]
            except APIError as error:
                _log.warning("cluster %s: %s", self.name, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait(self, informers: list[Informer[Any]]) -> None:
        await asyncio.gather(*(one.synced.wait() for one in informers))
        self.is_synced = True
        _log.info("cluster %s: %d nodes, %d pods", self.name, len(self.cluster.nodes), self.cluster.pod_count)
