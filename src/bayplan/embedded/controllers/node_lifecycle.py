"""Node lifecycle: conditions of nodes become taints, which scheduling and eviction use.

The conditions of a node without a heartbeat for 50 seconds become Unknown, and its pods are no longer Ready.
Conditions and `kubectl cordon` become taints: NoSchedule keeps new pods away; a node that is not ready also
gets NoExecute, which evicts pods that do not tolerate it (`taint_eviction.py`).

https://kubernetes.io/docs/reference/node/node-status/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper
from bayplan.embedded.controllers.node_health import is_down
from bayplan.embedded.controllers.pod_index import is_ready
from bayplan.embedded.controllers.status import find_condition, with_condition
from bayplan.embedded.server.documents import Content
from bayplan.embedded.server.kinds import NODES, PODS, Resource

GRACE_SECONDS: Final = 50.0
"""node-monitor-grace-period: how long a node may be without a heartbeat."""

_PREFIX: Final = "node.kubernetes.io/"
NOT_READY: Final = f"{_PREFIX}not-ready"
UNREACHABLE: Final = f"{_PREFIX}unreachable"
UNSCHEDULABLE: Final = f"{_PREFIX}unschedulable"
_BY_CONDITION: Final = (
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", f"{_PREFIX}memory-pressure"),
    ("DiskPressure", "True", f"{_PREFIX}disk-pressure"),
    ("PIDPressure", "True", f"{_PREFIX}pid-pressure"),
    ("NetworkUnavailable", "True", f"{_PREFIX}network-unavailable"),
)
_EVICTING: Final = (NOT_READY, UNREACHABLE)
_OWN_KEYS: Final = frozenset({UNSCHEDULABLE, *(key for _, _, key in _BY_CONDITION)})
"""Keys of taints that this controller alone sets and removes."""
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


def wanted_taints(node: Content, now: str) -> list[Content]:
    """The taints that a node should have. Others' taints stay, and ours keep their timeAdded."""
    known = node["spec"].get("taints") or []
    wanted: list[tuple[str, str]] = []
    for kind, status, key in _BY_CONDITION:
        condition = find_condition(node, kind)
        if condition is not None and condition["status"] == status:
            wanted.append((key, "NoSchedule"))
            if key in _EVICTING:
                wanted.append((key, "NoExecute"))
    if node["spec"].get("unschedulable"):
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    kept = [each for each in known if each["key"] not in _OWN_KEYS or (each["key"], each["effect"]) in wanted]
    there = {(each["key"], each["effect"]) for each in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": now}
        for key, effect in wanted
        if (key, effect) not in there
    ]
    return kept + added
