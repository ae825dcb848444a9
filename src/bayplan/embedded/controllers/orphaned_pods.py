"""Deletes the pods of deleted nodes, which no kubelet reports as ended.

A deleted node may be registered again soon, so its pods stay for 40 seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.controllers.taint_eviction import mark_disrupted
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import NODES, PODS, Resource
from bayplan.errors import NotFoundError

QUARANTINE_SECONDS: Final = 40.0
_MESSAGE: Final = "PodGC: node no longer exists"


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
                mark_disrupted(content, "DeletionByPodGC", _MESSAGE, self.api.now())
                content["status"]["phase"] = "Failed"
                self.api.update(PODS, content, subresource="status")
            options = DeleteOptions(grace_period_seconds=0, uid=pod.uid)
            self.api.delete(PODS, pod.name, pod.namespace, options)
