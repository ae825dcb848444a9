"""The API server of a kubeconfig, for `executing.py` and `running.py`: lists, evictions and their events."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.whatif import Cluster
from bayplan.api.cluster_api import Event, Lease
from bayplan.api.meta import ObjectMeta, ObjectReference, Record
from bayplan.api.pod import Pod
from bayplan.client.access import Access
from bayplan.client.http import EventWriter
from bayplan.client.requests import Connections, Requests, make_bucket
from bayplan.deschedule.eviction import ACTION, CONTROLLER, REQUESTED_BY, Answer, EvictionEvent
from bayplan.deschedule.policy import Policy, Prometheus
from bayplan.deschedule.prometheus import account_token, queries_of, run_queries, secret_token
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

    def __init__(self, access: Access, load: Callable[[], LoadedCluster]) -> None:
        self.connections = Connections(access)
        self._requests = Requests(self.connections, make_bucket(QPS, BURST), component=COMPONENT)
        self._events = EventWriter(self._requests)
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

    async def read_usage(self, usage: MeasuredUsage, policy: Policy) -> None:
        """Adds the newest measurements of the sources that a policy names."""
        if policy.uses_kubernetes_metrics:
            await self._read_metrics(usage)
        if policy.prometheus is not None:
            await self._query(usage, policy, policy.prometheus)

    async def _query(self, usage: MeasuredUsage, policy: Policy, server: Prometheus) -> None:
        token, secret = "", None if server.auth_token is None else server.auth_token.secret_reference
        if secret is None:
            token = account_token()
        else:
            target = f"/api/v1/namespaces/{quote(secret.namespace)}/secrets/{quote(secret.name)}"
            try:
                token = secret_token(msgspec.json.decode(await self._requests.send("GET", target)))
            except APIError as error:
                _log.warning("the token for Prometheus cannot be read: %s", error)
        usage.queries = None
        if token:
            usage.queries = await asyncio.to_thread(run_queries, server.url, queries_of(policy), token)

    async def write_event(self, event: EvictionEvent, now: float) -> None:
        """Reports an eviction, as upstream does; a failure is only logged."""
        try:
            await self._events.create_event(event_of(event, now))
        except APIError as error:
            _log.warning("cannot write an event about pod %s: %s", event.pod.key, error)

    async def _read_metrics(self, usage: MeasuredUsage) -> None:
        """Values of before stay if the metrics API does not answer."""
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


def event_of(event: EvictionEvent, now: float) -> Event:
    """The Event of an eviction."""
    pod, at = event.pod, datetime.fromtimestamp(now, UTC)
    reference = ObjectReference(
        kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, api_version="v1"
    )
    return Event(
        metadata=ObjectMeta(name=f"{pod.name}.{uuid.uuid4().hex[:16]}", namespace=pod.namespace),
        event_time=at,
        reporting_controller=CONTROLLER,
        reporting_instance=f"{CONTROLLER}-{socket.gethostname()}"[:128],
        action=ACTION,
        reason=event.reason,
        regarding=reference,
        note=event.note[:1024],
        type=event.type,
    )


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
