"""The pods of each node: confirmed by the API server, or assumed.

A pod that was given a node counts there at once, before the API server confirms it, so that the next pod does
not get the same resources.

    unknown ──assume──▶ assumed ──add──▶ confirmed ──remove──▶ unknown
       ▲                   │                 │ ▲
       └──────forget───────┘                 └─┘ update
       └──────────────────────────add────────▶

An assumption never expires: the binding cycle that made it either confirms or forgets it. If the cache and
the API server disagree on a pod's node, the API server is right; upstream ends the process in this case, this
cache corrects itself and logs it. The columns are changed in `cluster.py`.
"""

from __future__ import annotations

import logging

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.state.cluster import Cluster
from bayplan.state.nodes import NodeChange
from bayplan.state.pods import PodInfo

_log = logging.getLogger(__name__)


class CacheError(BayplanError):
    """An event contradicts the cache. `uid` is the pod's."""

    def __init__(self, message: str, uid: str = "") -> None:
        super().__init__(message)
        self.uid = uid


class Cache:
    """The pods of all nodes, assumed ones included."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.assumed: dict[str, Pod] = {}
        """Pods that count on a node before the API server has confirmed it, by uid."""

    @property
    def assumed_count(self) -> int:
        return len(self.assumed)

    @property
    def pod_count(self) -> int:
        """All pods on nodes, assumed ones included."""
        return self.cluster.pod_count

    @property
    def node_count(self) -> int:
        """All nodes, including those that only pods refer to."""
        return len(self.cluster.nodes.row_of)

    def sizes(self) -> dict[str, float]:
        """The gauges of `scheduler_cache_size`."""
        return {"nodes": self.node_count, "pods": self.pod_count, "assumed_pods": self.assumed_count}

    def is_assumed(self, uid: str) -> bool:
        return uid in self.assumed

    def knows(self, uid: str) -> bool:
        return self.cluster.has_pod(uid)

    def node_of(self, uid: str) -> str:
        """The node of the pod; empty if the cache does not know the pod."""
        return self.cluster.node_of(uid)

    def assumed_pods(self) -> list[Pod]:
        return list(self.assumed.values())

    # From the scheduling and binding cycles

    def assume(self, pod: Pod, node_name: str, info: PodInfo | None = None) -> None:
        """Counts the pod on a node before the API server confirms it."""
        uid = _uid(pod)
        if self.cluster.has_pod(uid):
            raise CacheError(f"pod {uid}({pod.key}) is in the cache, so can't be assumed", uid)
        self.cluster.add_pod(pod, node_name, info)
        self.assumed[uid] = pod

    def forget(self, pod: Pod, node_name: str) -> bool:
        """Reverts an assumption. False if there is none."""
        if not self.knows(pod.uid):
            return False
        known_node = self.node_of(pod.uid)
        if known_node != node_name:
            raise CacheError(
                f"pod {pod.uid}({pod.key}) was assumed on {node_name} but assigned to {known_node}", pod.uid
            )
        if pod.uid not in self.assumed:
            raise CacheError(f"pod {pod.uid}({pod.key}) wasn't assumed so cannot be forgotten", pod.uid)
        del self.assumed[pod.uid]
        self.cluster.remove_pod(pod.uid)
        return True

    # From the API server

    def add(self, pod: Pod) -> None:
        """A pod with a node was seen: an assumed one, now confirmed, or one that another scheduler bound."""
        if self.assumed.pop(pod.metadata.uid, None) is not None:
            self._move_or_update(pod)
        elif self.cluster.has_pod(_uid(pod)):
            raise CacheError(f"pod {pod.uid}({pod.key}) was already in added state", pod.uid)
        else:
            self.cluster.add_pod(pod, pod.spec.node_name)

    def update(self, pod: Pod) -> None:
        if pod.uid in self.assumed:
            raise CacheError(f"assumed pod {pod.uid}({pod.key}) should not be updated", pod.uid)
        if not self.knows(pod.uid):
            raise CacheError(
                f"pod {pod.uid}({pod.key}) is not added to scheduler cache, so cannot be updated", pod.uid
            )
        self._move_or_update(pod)

    def remove(self, pod: Pod) -> None:
        """The pod was removed, confirmed or not."""
        if not self.knows(pod.uid):
            raise CacheError(
                f"pod {pod.uid}({pod.key}) is not found in scheduler cache, so cannot be removed from it",
                pod.uid,
            )
        if pod.spec.node_name and self.node_of(pod.uid) != pod.spec.node_name:
            _log.warning(
                "pod %s was deleted on node %s but counted on %s",
                pod.key,
                pod.spec.node_name,
                self.node_of(pod.uid),
            )
        self.assumed.pop(pod.uid, None)
        self.cluster.remove_pod(pod.uid)

    def _move_or_update(self, pod: Pod) -> None:
        known_node = self.cluster.node_of(pod.metadata.uid)
        if known_node == pod.spec.node_name:
            self.cluster.update_pod(pod)
            return
        _log.warning("pod %s is on node %s, not on %s as assumed", pod.key, pod.spec.node_name, known_node)
        self.cluster.remove_pod(pod.uid)
        self.cluster.add_pod(pod, pod.spec.node_name)

    def set_node(self, node: Node) -> NodeChange:
        return self.cluster.set_node(node)

    def remove_node(self, name: str) -> None:
        row = self.cluster.nodes.row_of.get(name)
        if row is None or self.cluster.nodes.node[row] is None:
            raise CacheError(f"node {name} is not found")
        self.cluster.remove_node(name)


def _uid(pod: Pod) -> str:
    uid = pod.metadata.uid
    if not uid:
        raise CacheError("cannot get cache key for pod with empty UID")
    return uid
