"""Node lifecycle: what is wrong with a node becomes taints, by which the scheduler and evictions go.

A node from which nothing has been heard for 50 seconds is no longer Ready, but Unknown, and so are its pods.
What its conditions and `kubectl cordon` say becomes taints: no new pods come (NoSchedule), and where the node
is not ready at all, pods that do not tolerate that have to go (NoExecute, `taint_eviction.py`).

https://kubernetes.io/docs/reference/node/node-status/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from bayplan.api.pod import Pod
from bayplan.embedded.controllers.cluster import Cluster, Seen
from bayplan.embedded.controllers.controller import Concerns, Controller
from bayplan.embedded.controllers.node_health import is_down
from bayplan.embedded.controllers.pod_index import is_ready
from bayplan.embedded.controllers.status import find_condition, with_condition
from bayplan.embedded.server.documents import Content
from bayplan.embedded.server.kinds import NODES, PODS, Resource

GRACE_SECONDS: Final = 50.0
"""node-monitor-grace-period: how long a node may be silent."""

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
_OURS: Final = frozenset({UNSCHEDULABLE, *(key for _, _, key in _BY_CONDITION)})
"""Keys of taints that this controller alone sets and removes."""
_SILENT: Final = "Kubelet stopped posting node status."
_CONDITIONS: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


class NodeLifecycle(Controller):
    """Reconciles nodes."""

    name: ClassVar = "node-controller"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._silent_since: dict[str, float] = {}

    def watches(self) -> dict[Resource, Concerns]:
        return {NODES: self._node}

    def _node(self, seen: Seen) -> Iterable[str]:
        if seen.after is None or not is_down(seen.after):
            self._silent_since.pop(seen.key, None)
        return () if seen.after is None else (seen.key,)

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
                self._give_up(node)
        taints = wanted_taints(node, self.api.now())
        if taints != (node["spec"].get("taints") or []):
            node["spec"]["taints"] = taints
            self.api.update(NODES, node)
        return left

    def _give_up(self, node: Content) -> None:
        """The state of the node and of its pods is unknown."""
        ready = find_condition(node, "Ready")
        if ready is not None and ready["status"] == "Unknown":
            return
        now, conditions = self.api.now(), node["status"].get("conditions")
        for kind in _CONDITIONS:
            conditions = with_condition(conditions, kind, "Unknown", "NodeStatusUnknown", _SILENT, now)
        node["status"]["conditions"] = conditions
        node.update(self.api.update(NODES, node, subresource="status"))
        name = node["metadata"]["name"]
        self.events.normal(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        for pod in self.cluster.pods.on_node(name):
            self._call_unready(pod)

    def _call_unready(self, pod: Pod) -> None:
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
    """The taints that a node should have. Those of others stay, and ours keep the time they were added."""
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
    kept = [each for each in known if each["key"] not in _OURS or (each["key"], each["effect"]) in wanted]
    there = {(each["key"], each["effect"]) for each in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": now}
        for key, effect in wanted
        if (key, effect) not in there
    ]
    return kept + added
