"""The API server of a kubeconfig, for `executing.py`: lists, and evictions. Nothing else is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.whatif import Cluster
from bayplan.api.cluster_api import Lease
from bayplan.api.meta import Record
from bayplan.api.pod import Pod
from bayplan.client.access import Access
from bayplan.client.requests import Connections, Requests, make_bucket
from bayplan.deschedule.eviction import REQUESTED_BY, Answer
from bayplan.deschedule.usage import MeasuredUsage
from bayplan.errors import APIError, NotFoundError

QPS, BURST = 50.0, 100
COMPONENT: Final = "descheduler"
_METRICS: Final = "/apis/metrics.k8s.io/v1beta1"
_log = logging.getLogger(__name__)


class _PodList(Record, frozen=True):
    items: tuple[Pod, ...] = ()


class LiveCluster:
    """Reads and evicts with the credentials of a kubeconfig."""

    def __init__(
        self,
        access: Access,
        load: Callable[[], LoadedCluster],
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        self.connections = Connections(access)
        self._requests = Requests(self.connections, make_bucket(QPS, BURST), component=COMPONENT)
        self._load = load

    async def close(self) -> None:
        await self.connections.close()

    async def load(self) -> Cluster:
        # Listing has an event loop of its own.
        loaded = await asyncio.to_thread(self._load)
        return Cluster.from_loaded(loaded)

    async def pods(self, namespace: str) -> Sequence[Pod]:
        body = await self._requests.send("GET", f"/api/v1/namespaces/{quote(namespace)}/pods")
        return msgspec.json.decode(body, type=_PodList).items

    async def read_usage(self, usage: MeasuredUsage) -> None:
        """Adds the newest measurements of the metrics API; those of before stay if it does not answer."""
        usage.has_kubernetes_metrics = True
        try:
            nodes = await self._requests.send("GET", f"{_METRICS}/nodes")
            pods = await self._requests.send("GET", f"{_METRICS}/pods")
        except APIError as error:
            _log.warning("the metrics API cannot be read: %s", error)
            return
        usage.collect(msgspec.json.decode(nodes).get("items") or ())
        usage.set_pods(msgspec.json.decode(pods).get("items") or ())

    async def is_paused(self, namespace: str, name: str, annotation: str) -> bool:
        """Whether the lease has the annotation "true"."""
        target = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases/{quote(name)}"
        try:
            lease = msgspec.json.decode(await self._requests.send("GET", target), type=Lease)
        except NotFoundError:
            return False
        return lease.annotations.get(annotation) == "true"

    async def evict(self, pod: Pod, reason: str, grace_period_seconds: int | None) -> Answer:
        target = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}/eviction"
        body = msgspec.json.encode(eviction_of(pod, reason, grace_period_seconds))
        try:
            await self._requests.send("POST", target, body, repeatable=False)
        except APIError as error:
            return Answer(error.code or -1, str(error))
        return Answer()


def eviction_of(pod: Pod, reason: str, grace_period_seconds: int | None) -> dict[str, Any]:
    """The Eviction object. The uid guards against evicting a later pod of the same name."""
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "annotations": {"reason": reason, "requested-by": REQUESTED_BY},
        },
        "deleteOptions": options,
    }
