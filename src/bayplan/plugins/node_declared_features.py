"""NodeDeclaredFeatures: a pod that needs a feature of the kubelet runs only where the kubelet has it.

While a cluster is being upgraded its nodes run different versions. Nodes declare what their kubelet supports
beyond what every supported version does, and a pod requires the features that its fields use.

https://kubernetes.io/docs/concepts/scheduling-eviction/node-declared-features/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bayplan.plugin import (
    SKIP,
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
    Status,
    event_with_hint,
    unresolvable,
)

REASON: Final = "node(s) didn't match Pod's required features"

RESTART_ALL_CONTAINERS: Final = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_ON_HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"


class NodeDeclaredFeatures(Plugin, PreFilterPlugin, FilterPlugin):
    """Rejects nodes that lack a feature which the pod uses."""

    depends_on = Dependencies.of("host", "restart_rules")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, self.node_change_helps
            ),
            event_with_hint(Resource.TARGET_POD, Action.UPDATE, self.pod_change_helps),
        ]

    def node_change_helps(self, pod: Pod, old: Node | None, new: Node) -> bool:
        return old is None or old.status.declared_features != new.status.declared_features

    def pod_change_helps(self, pod: Pod, old: Pod | None, new: Pod) -> bool:
        if new.uid != pod.uid:
            return False
        return old is None or required_features(old) != required_features(new)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        required = required_features(pod)
        if not required:
            return SKIP
        state.write(self.name, nodes.feature_lookup(required.issubset))
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        # Evicting pods does not upgrade a kubelet.
        yield Reject(nodes.features(state.read(self.name)) == 0, unresolvable(REASON))


def required_features(pod: Pod) -> frozenset[str]:
    """The features that the pod's fields use."""
    spec = pod.spec
    required = set()
    if any(
        rule.action == "RestartAllContainers"
        for container in (*spec.init_containers, *spec.containers)
        for rule in container.restart_policy_rules
    ):
        required.add(RESTART_ALL_CONTAINERS)
    if spec.host_network and spec.host_users is False:
        required.add(USER_NAMESPACES_ON_HOST_NETWORK)
    return frozenset(required)
