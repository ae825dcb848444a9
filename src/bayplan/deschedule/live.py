"""A live cluster, for `executing.py` and `running.py`: its copy, evictions and their events."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from bayplan.answers.sources.live import read_kinds
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.whatif import Cluster
from bayplan.api.cluster_api import Event, Lease
from bayplan.api.meta import Object, ObjectMeta, ObjectReference
from bayplan.api.pod import Pod
from bayplan.client.access import Access
from bayplan.client.http import EventWriter, KubernetesCluster
from bayplan.client.requests import Connections, Requests, make_bucket
from bayplan.config import default_config
from bayplan.deschedule.copies import ClusterCopy, Informers, Watching, objects_of, pods_of
from bayplan.deschedule.eviction import ACTION, CONTROLLER, REQUESTED_BY, Answer, EvictionEvent
from bayplan.deschedule.policy import Policy, Prometheus
from bayplan.deschedule.prometheus import account_token, queries_of, run_queries, secret_token
from bayplan.deschedule.usage import MeasuredUsage
from bayplan.errors import APIError, NotFoundError
from bayplan.scheduler.tasks import cancel_all, first_to_end

QPS, BURST = 50.0, 100
COMPONENT: Final = "descheduler"
_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_METRICS: Final = "/apis/metrics.k8s.io/v1beta1"
_log = logging.getLogger(__name__)


class UsageReader:
    """Reads measured usage: the metrics API, Prometheus."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def read(self, usage: MeasuredUsage, policy: Policy) -> None:
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

    async def _read_metrics(self, usage: MeasuredUsage) -> None:
        """Keeps the previous values if the metrics API does not respond."""
        usage.has_kubernetes_metrics = True
        try:
            nodes = await self._requests.send("GET", f"{_METRICS}/nodes")
            pods = await self._requests.send("GET", f"{_METRICS}/pods")
        except APIError as error:
            _log.warning("the metrics API cannot be read: %s", error)
            return
        usage.collect(msgspec.json.decode(nodes).get("items") or ())
        usage.set_pods(msgspec.json.decode(pods).get("items") or ())


class LiveCluster:
    """Reads the objects of the informers, and evicts pods."""

    def __init__(self, connections: Connections, source: Informers, copy: ClusterCopy) -> None:
        self.connections = connections
        self._requests = Requests(connections, make_bucket(QPS, BURST), component=COMPONENT)
        self._events = EventWriter(self._requests)
        self.usage = UsageReader(self._requests)
        self._source, self._copy = source, copy

    async def load(self) -> Cluster:
        # The informers' objects are taken here, between two of their changes; comparing them takes longer.
        return await asyncio.to_thread(self._copy.update, objects_of(self._source))

    async def objects(self) -> Sequence[Object]:
        return objects_of(self._source)

    async def pods(self, namespace: str) -> Sequence[Pod]:
        return pods_of(self._source, namespace)

    async def write_event(self, event: EvictionEvent, now: float) -> None:
        """Reports an eviction, as upstream does; a failure is only logged."""
        try:
            await self._events.create_event(event_of(event, now))
        except APIError as error:
            _log.warning("cannot write an event about pod %s: %s", event.pod.key, error)

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

    # Replacements first

    async def scale(self, namespace: str, name: str, expected: int, replicas: int) -> None:
        """Scales a Deployment, unless it has another number of replicas than expected."""
        target = f"/apis/apps/v1/namespaces/{quote(namespace)}/deployments/{quote(name)}/scale"
        changes = [
            {"op": "test", "path": "/spec/replicas", "value": expected},
            {"op": "replace", "path": "/spec/replicas", "value": replicas},
        ]
        await self._requests.send(
            "PATCH", target, msgspec.json.encode(changes), content_type=_JSON_PATCH, repeatable=False
        )

    async def annotate(self, pod: Pod, key: str, value: str | None) -> None:
        target = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}"
        changes = {"metadata": {"uid": pod.uid, "annotations": {key: value}}}
        await self._requests.send("PATCH", target, msgspec.json.encode(changes), content_type=_MERGE_PATCH)

    async def is_autoscaled(self, namespace: str, name: str) -> bool:
        """Whether a HorizontalPodAutoscaler scales the Deployment."""
        target = f"/apis/autoscaling/v2/namespaces/{quote(namespace)}/horizontalpodautoscalers"
        try:
            found = msgspec.json.decode(await self._requests.send("GET", target))
        except NotFoundError:
            return False
        targets = (one.get("spec", {}).get("scaleTargetRef", {}) for one in found.get("items") or ())
        return any(one.get("kind") == "Deployment" and one.get("name") == name for one in targets)


@asynccontextmanager
async def follow(access: Access, loaded: LoadedCluster) -> AsyncIterator[LiveCluster]:
    """Watches a cluster, with the scheduler settings that it was loaded with.

    Kinds that could not be listed when it was loaded are not watched either: warnings name them.
    """
    of_plugins = [kind for plugin in loaded.plugins for kind in plugin.kinds]
    kinds = [kind.record for kind in read_kinds(of_plugins) if kind.record.__name__ in loaded.listed]
    config = loaded.config or default_config(release=loaded.release)
    async with KubernetesCluster(access, component=COMPONENT) as api:
        watching = Watching(api, kinds)
        task = asyncio.ensure_future(watching.run())
        try:
            await first_to_end([task, synced := asyncio.ensure_future(watching.synced())])
            await synced
            yield LiveCluster(api.connections, watching, ClusterCopy(config, loaded.plugins))
        finally:
            await cancel_all([task])


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
