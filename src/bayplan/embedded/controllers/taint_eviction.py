"""Eviction by taints: pods leave a node whose NoExecute taints they do not tolerate, or not for long.

https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.api.node import Node, Taint
from bayplan.api.pod import Pod, Toleration
from bayplan.api.times import seconds_or_1970
from bayplan.api.tolerations import tolerates
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.controllers.status import with_condition
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.documents import Content, Document
from bayplan.embedded.server.kinds import NODES, PODS, Resource
from bayplan.errors import NotFoundError

_NO_EXECUTE: Final = "NoExecute"
_NO_EXECUTE_JSON: Final = b'"NoExecute"'
_MESSAGE: Final = "Taint manager: deleting due to NoExecute taint"


class TaintEviction(Controller):
    """Reconciles pods on nodes with NoExecute taints."""

    name: ClassVar = "taint-eviction-controller"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._marked: dict[str, float] = {}
        """Pods that are to be evicted later, and since when."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NODES: self._node, PODS: self._pod}

    def _node(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None or not any(
            document is not None and _NO_EXECUTE_JSON in document.body
            for document in (change.before, change.after)
        ):
            return ()
        return [pod.key for pod in self.cluster.pods.on_node(change.key)]

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None:
            self._marked.pop(change.key, None)
            return ()
        pod = change.after.record(Pod)
        if not pod.spec.node_name:
            return ()
        node = self.api.store.find(NODES, pod.spec.node_name)
        return (change.key,) if node is not None and _NO_EXECUTE_JSON in node.body else ()

    def reconcile(self, key: str) -> float | None:
        pod = self.cluster.pods.get(key)
        if pod is None or pod.is_terminating or not pod.spec.node_name:
            return None
        node = self.api.store.find(NODES, pod.spec.node_name)
        if node is None:
            return None
        seconds = tolerated_seconds(_evicting(node), pod.spec.tolerations)
        if seconds is None:
            self._cancel_eviction(pod)
            return None
        if seconds:
            since = self._added(node) or self._marked.get(key, self.api.time())
            self._marked[key] = since
            if (left := since + seconds - self.api.time()) > 0:
                return left
        self._evict(pod)
        return None

    def _cancel_eviction(self, pod: Pod) -> None:
        if self._marked.pop(pod.key, None) is not None:
            content = self.api.get(PODS, pod.name, pod.namespace)
            self.events.normal(content, "TaintManagerEviction", f"Cancelling deletion of Pod {pod.key}")

    def _added(self, node: Document) -> float | None:
        """When the last NoExecute taint of the node was added; None without timeAdded, as with taints of
        users."""
        taints = node.parse()["spec"].get("taints") or ()
        times = [each.get("timeAdded") for each in taints if each["effect"] == _NO_EXECUTE]
        if not times or None in times:
            return None
        return max(map(seconds_or_1970, times))

    def _evict(self, pod: Pod) -> None:
        content = self.api.get(PODS, pod.name, pod.namespace)
        self.events.normal(content, "TaintManagerEviction", f"Marking for deletion Pod {pod.key}")
        mark_disrupted(content, "DeletionByTaintManager", _MESSAGE, self.api.now())
        self.api.update(PODS, content, subresource="status")
        with suppress(NotFoundError):
            self.api.delete(PODS, pod.name, pod.namespace, DeleteOptions(uid=pod.uid))


def mark_disrupted(pod: Content, reason: str, message: str, now: str) -> None:
    """Writes into a pod's status why it is deleted by a controller."""
    status = pod.setdefault("status", {})
    status["conditions"] = with_condition(
        status.get("conditions"), "DisruptionTarget", "True", reason, message, now, lastProbeTime=None
    )


def _evicting(node: Document) -> list[Taint]:
    return [taint for taint in node.record(Node).spec.taints if taint.effect == _NO_EXECUTE]


def tolerated_seconds(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """How long a pod may stay on a node with these NoExecute taints: None forever, 0 not at all."""
    used: list[Toleration] = []
    for taint in taints:
        matching = [each for each in tolerations if tolerates(each, taint)]
        if not matching:
            return 0.0
        used += matching
    limits = [max(each.toleration_seconds, 0) for each in used if each.toleration_seconds is not None]
    return float(min(limits)) if limits else None
