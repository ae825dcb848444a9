"""Pods of nodes that are gone: nobody else would ever say that they do not run any more.

A node that is deleted may be there again in a moment, so its pods have 40 seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import Cluster, Seen
from bayplan.embedded.controllers.controller import Concerns, Controller
from bayplan.embedded.controllers.taint_eviction import mark_disrupted
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import NODES, PODS, Resource
from bayplan.errors import NotFoundError

QUARANTINE_SECONDS: Final = 40.0
_WHY: Final = "PodGC: node no longer exists"


class OrphanedPods(Controller):
    """Deletes the pods of nodes that no longer exist. Its keys are names of nodes."""

    name: ClassVar = "pod-garbage-collector"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._missed_since: dict[str, float] = {}

    def watches(self) -> dict[Resource, Concerns]:
        return {NODES: self._node, PODS: self._pod}

    def _node(self, seen: Seen) -> Iterable[str]:
        return (seen.key,) if seen.before is None or seen.after is None else ()

    def _pod(self, seen: Seen) -> Iterable[str]:
        node = seen.after.record(Pod).spec.node_name if seen.after is not None else ""
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
                mark_disrupted(content, "DeletionByPodGC", _WHY, self.api.now())
                content["status"]["phase"] = "Failed"
                self.api.update(PODS, content, subresource="status")
            options = DeleteOptions(grace_period_seconds=0, uid=pod.uid)
            self.api.delete(PODS, pod.name, pod.namespace, options)
