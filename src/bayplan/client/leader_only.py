"""Nobody writes who does not lead: the last look at the lease before a write.

A process that was paused wakes up believing that it still leads. By its own clock it can tell that its lease
may have lapsed: then it starts no write, and one that was under way can only lose against the new leader's
(409).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.errors import APIError
from bayplan.framework.cluster_api import ClusterAPI, EventSink, ObjectT, PodStatusPatch, WatchEvent


class NotLeadingError(APIError):
    """Nothing was written: our lease has lapsed, so another may lead by now."""

    def __init__(self) -> None:
        super().__init__("nothing was written: the lease has lapsed, so another scheduler may lead by now")


def refuse_unless(may_write: Callable[[], bool]) -> Callable[[], None]:
    """What is asked right before a write; raises NotLeadingError where there is to be none."""

    def permit() -> None:
        if not may_write():
            raise NotLeadingError

    return permit


class LeaderOnly(ClusterAPI):
    """A cluster that is read by everybody and written by the leader.

    Writes over HTTP may wait for their turn after this. `KubernetesCluster` has `may_write`, too, and looks
    again when their turn has come.
    """

    def __init__(self, cluster: ClusterAPI, may_write: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._permit = refuse_unless(may_write)

    async def list(self, kind: type[ObjectT]) -> tuple[Sequence[ObjectT], str]:
        return await self._cluster.list(kind)

    def watch(
        self, kind: type[ObjectT], resource_version: str
    ) -> AsyncIterator[Sequence[WatchEvent[ObjectT]]]:
        return self._cluster.watch(kind, resource_version)

    async def get(self, kind: type[ObjectT], name: str, namespace: str = "") -> ObjectT:
        return await self._cluster.get(kind, name, namespace)

    async def bind(self, pod: Pod, node_name: str) -> None:
        self._permit()
        await self._cluster.bind(pod, node_name)

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        self._permit()
        await self._cluster.patch_pod_status(pod, patch)

    async def delete_pod(self, pod: Pod) -> None:
        self._permit()
        await self._cluster.delete_pod(pod)

    async def create(self, item: Object) -> Object:
        self._permit()
        return await self._cluster.create(item)

    async def update(self, item: Object) -> Object:
        self._permit()
        return await self._cluster.update(item)

    def events(self) -> EventSink:
        """Not withheld: an event says what happened, and changes nothing for whoever leads by now."""
        return self._cluster.events()
