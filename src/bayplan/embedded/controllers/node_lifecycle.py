"""Nodes that fail, are tainted or deleted, and what happens to their pods.

`NodeLifecycle`: the conditions of a node without a heartbeat for 50 seconds become Unknown, and its pods are
no longer Ready. Conditions and `kubectl cordon` become taints: NoSchedule keeps new pods away; a node that is
not ready also gets NoExecute. `TaintEviction`: pods leave a node whose NoExecute taints they do not tolerate,
or not for long. `OrphanedPods`: pods of a deleted node, which no kubelet reports as ended, are deleted after
40 seconds, because the node may be registered again soon.

A real kubelet that fails stops sending heartbeats. Simulated ones send none (`kubelets/nodes.py`): a node is
down while it has the annotation `bayplan/down: "true"`, which stands in for missing heartbeats.

https://kubernetes.io/docs/reference/node/node-status/
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.api.go_values import seconds_or_1970
from bayplan.api.meta import Content
from bayplan.api.node import Node, Taint
from bayplan.api.pod import Pod
from bayplan.controllers.nodes import (
    GRACE_SECONDS,
    tolerated_seconds,
    wanted_taints,
)
from bayplan.controllers.pods import find_condition, is_ready
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper, with_condition
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import NODES, PODS, Resource
from bayplan.errors import NotFoundError

DOWN: Final = "bayplan/down"


def is_down(node: Document) -> bool:
    return DOWN.encode() in node.body and node.record(Node).annotations.get(DOWN) == "true"


_NO_HEARTBEAT: Final = "Kubelet stopped posting node status."
_CONDITIONS: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


class NodeLifecycle(Controller):
    """Reconciles nodes."""

    name: ClassVar = "node-controller"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._silent_since: dict[str, float] = {}

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NODES: self._node}

    def _node(self, change: ObjectChange) -> Iterable[str]:
        if change.after is None or not is_down(change.after):
            self._silent_since.pop(change.key, None)
        return () if change.after is None else (change.key,)

    def reconcile(self, key: str) -> float | None:
        document = self.api.store.find(NODES, key)
        if document is None:
            return None
        node = document.parse()
        left = None
        if is_down(document):
            left = self._silent_since.setdefault(key, self.api.time()) + GRACE_SECONDS - self.api.time()
            if left <= 0:
                left = None
                self._mark_unknown(node)
        taints = wanted_taints(node, self.api.now())
        if taints != (node["spec"].get("taints") or []):
            node["spec"]["taints"] = taints
            self.api.update(NODES, node)
        return left

    def _mark_unknown(self, node: Content) -> None:
        """Sets the conditions of the node to Unknown, and its pods to not Ready."""
        ready = find_condition(node, "Ready")
        if ready is not None and ready["status"] == "Unknown":
            return
        now, conditions = self.api.now(), node["status"].get("conditions")
        for kind in _CONDITIONS:
            conditions = with_condition(conditions, kind, "Unknown", "NodeStatusUnknown", _NO_HEARTBEAT, now)
        node["status"]["conditions"] = conditions
        node.update(self.api.update(NODES, node, subresource="status"))
        name = node["metadata"]["name"]
        self.events.normal(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        for pod in self.cluster.pods.on_node(name):
            self._mark_not_ready(pod)

    def _mark_not_ready(self, pod: Pod) -> None:
        if not is_ready(pod):
            return
        content = self.api.get(PODS, pod.name, pod.namespace)
        conditions = content["status"]["conditions"]
        for each in conditions:
            if each["type"] == "Ready":
                each["status"], each["lastTransitionTime"] = "False", self.api.now()
        self.api.update(PODS, content, subresource="status")
        self.events.warning(content, "NodeNotReady", "Node is not ready")


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


QUARANTINE_SECONDS: Final = 40.0
_NODE_GONE: Final = "PodGC: node no longer exists"


class OrphanedPods(Controller):
    """Deletes the pods of nodes that no longer exist. Its keys are names of nodes."""

    name: ClassVar = "pod-garbage-collector"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._missed_since: dict[str, float] = {}

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NODES: self._node, PODS: self._pod}

    def _node(self, change: ObjectChange) -> Iterable[str]:
        return (change.key,) if change.before is None or change.after is None else ()

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        node = change.after.record(Pod).spec.node_name if change.after is not None else ""
        return (node,) if node and self.api.store.find(NODES, node) is None else ()

    def reconcile(self, key: str) -> float | None:
        if self.api.store.find(NODES, key) is not None:
            self._missed_since.pop(key, None)
            return None
        pods = list(self.cluster.pods.on_node(key))
        left = self._missed_since.setdefault(key, self.api.time()) + QUARANTINE_SECONDS - self.api.time()
        if not pods:
            del self._missed_since[key]
            return None
        if left > 0:
            return left
        for pod in pods:
            self._end(pod)
        return None

    def _end(self, pod: Pod) -> None:
        with suppress(NotFoundError):
            content = self.api.get(PODS, pod.name, pod.namespace)
            if not pod.is_finished:
                mark_disrupted(content, "DeletionByPodGC", _NODE_GONE, self.api.now())
                content["status"]["phase"] = "Failed"
                self.api.update(PODS, content, subresource="status")
            options = DeleteOptions(grace_period_seconds=0, uid=pod.uid)
            self.api.delete(PODS, pod.name, pod.namespace, options)
