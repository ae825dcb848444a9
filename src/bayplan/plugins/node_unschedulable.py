"""NodeUnschedulable: a cordoned node takes no new pods.

Except pods that tolerate the cordon. DaemonSet pods have that toleration, so draining a node does not remove
its agents.

https://kubernetes.io/docs/concepts/architecture/nodes/#manual-node-administration
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bayplan.plugin import (
    Action,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    Node,
    NodeColumns,
    Plugin,
    Pod,
    PreFilterPlugin,
    Reject,
    Resource,
    Taint,
    event_with_hint,
    unresolvable,
)
from bayplan.plugin.objects import any_tolerates

REASON: Final = "node(s) were unschedulable"
CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(Plugin, PreFilterPlugin, FilterPlugin):
    """Rejects cordoned nodes."""

    depends_on = Dependencies.of("tolerations")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, self.node_change_helps),
            event_with_hint(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, self.toleration_helps),
        ]

    def node_change_helps(self, pod: Pod, old: Node | None, new: Node) -> bool:
        """A node was added that is not cordoned, or a cordon was removed."""
        return not new.spec.unschedulable and (old is None or old.spec.unschedulable)

    def toleration_helps(self, pod: Pod, old: Pod | None, new: Pod) -> bool:
        return new.uid == pod.uid and any_tolerates(new.spec.tolerations, CORDON)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        """An extension point of this plugin from v1.37 on, for pods that are being resized in place."""

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        if not any_tolerates(pod.spec.tolerations, CORDON):
            # Evicting pods does not uncordon a node, so preemption does not help.
            yield Reject(nodes.unschedulable, unresolvable(REASON))
