"""Pods by controller and by node, with the counts that controllers need.

A ReplicaSet of 20,000 pods changes 20,000 times while it starts. Counting all pods after each change would
take minutes, so the counts are updated incrementally.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from bayplan.api.meta import Condition, OwnerReference
from bayplan.api.pod import Pod
from bayplan.embedded.server.documents import Document


class OwnedPods:
    """The pods of one controller, by key."""

    __slots__ = ("active", "pods", "ready", "terminating")

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.active = 0
        """Neither finished nor being deleted."""
        self.ready = 0
        """Of these, those that are ready."""
        self.terminating = 0
        """Being deleted, and not finished."""

    def all_active(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if is_active(pod)]

    def count(self, pod: Pod, sign: int) -> None:
        if is_active(pod):
            self.active += sign
            if is_ready(pod):
                self.ready += sign
        elif not pod.is_finished:
            self.terminating += sign


NO_PODS = OwnedPods()


class PodIndex:
    """All pods that a `Cluster` has change."""

    def __init__(self) -> None:
        self._all: dict[str, Pod] = {}
        self._by_owner: dict[str, OwnedPods] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._bare: dict[str, dict[str, Pod]] = {}

    def get(self, key: str) -> Pod | None:
        return self._all.get(key)

    def owned_by(self, uid: str) -> OwnedPods:
        """The pods whose controller has this uid. Callers must not modify it."""
        return self._by_owner.get(uid, NO_PODS)

    def on_node(self, name: str) -> Iterable[Pod]:
        return list(self._by_node.get(name, {}).values())

    def bare(self, namespace: str) -> Iterable[Pod]:
        """The unmanaged pods of a namespace."""
        return list(self._bare.get(namespace, {}).values())

    def update(self, key: str, document: Document | None) -> None:
        """Updates the indexes for a pod that was changed or, with None, deleted."""
        self._remove(key)
        if document is not None:
            self._add(document.record(Pod))

    def _add(self, pod: Pod) -> None:
        key = pod.key
        self._all[key] = pod
        owner = pod.metadata.controller()
        if owner is None:
            self._bare.setdefault(pod.namespace, {})[key] = pod
        else:
            owned = self._by_owner.get(owner.uid)
            if owned is None:
                owned = self._by_owner[owner.uid] = OwnedPods()
            owned.pods[key] = pod
            owned.count(pod, 1)
        if pod.spec.node_name:
            self._by_node.setdefault(pod.spec.node_name, {})[key] = pod

    def _remove(self, key: str) -> None:
        pod = self._all.pop(key, None)
        if pod is None:
            return
        owner = pod.metadata.controller()
        if owner is None:
            _drop(self._bare, pod.namespace, key)
        else:
            owned = self._by_owner[owner.uid]
            del owned.pods[key]
            owned.count(pod, -1)
            if not owned.pods:
                del self._by_owner[owner.uid]
        if pod.spec.node_name:
            _drop(self._by_node, pod.spec.node_name, key)


def _drop(index: dict[str, dict[str, Pod]], name: str, key: str) -> None:
    pods = index[name]
    del pods[key]
    if not pods:
        del index[name]


def is_active(pod: Pod) -> bool:
    """Whether a pod is neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")


def condition(pod: Pod, kind: str) -> Condition | None:
    return next((known for known in pod.status.conditions if known.type == kind), None)


def is_ready(pod: Pod) -> bool:
    ready = condition(pod, "Ready")
    return ready is not None and ready.status == "True"


def ready_since(pod: Pod) -> datetime | None:
    ready = condition(pod, "Ready")
    return ready.last_transition_time if ready is not None and ready.status == "True" else None


def available_in(pod: Pod, min_ready_seconds: int, now: float) -> float | None:
    """Seconds until a pod counts as available: 0 for now, None if it is not ready."""
    since = ready_since(pod)
    if since is None:
        return 0.0 if is_ready(pod) and not min_ready_seconds else None
    return max(since.timestamp() + min_ready_seconds - now, 0.0) if min_ready_seconds else 0.0


def controller_of(pod: Pod | None) -> OwnerReference | None:
    return None if pod is None else pod.metadata.controller()
