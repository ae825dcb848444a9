"""Cluster events, and which of them may make a rejected pod schedulable.

A plugin that rejects pods registers the events after which they are worth another attempt: a list of
`ClusterEventWithHint`, each an event and an optional hint function that examines the object itself. Without a
hint every such event requeues the pod. The bits are those of v1.37, because "does this event match that
registration" is decided on them; earlier releases have fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from typing import Any, Final

from bayplan.api.pod import Pod


class Resource(StrEnum):
    POD = "Pod"
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    COMPOSITE_POD_GROUP = "scheduling.k8s.io/CompositePodGroup"
    COSCHEDULING_POD_GROUP = "scheduling.x-k8s.io/PodGroup"
    NODE_RESOURCE_TOPOLOGY = "topology.node.k8s.io/NodeResourceTopology"
    ELASTIC_QUOTA = "scheduling.x-k8s.io/ElasticQuota"
    ASSIGNED_POD = "AssignedPod"
    """A pod with a node. Registrations for POD match it too."""
    UNSCHEDULABLE_POD = "UnschedulablePod"
    """A pod without a node, until v1.36. Registrations for POD match it too."""
    UNSCHEDULED_POD = "UnscheduledPod"
    """A pod without a node, from v1.37 on. Registrations for POD match it too."""
    TARGET_POD = "TargetPod"
    """The waiting pod itself, from v1.37 on. Registrations for POD match it too."""
    ANY = "*"


class Action(IntFlag):
    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_DECLARED_FEATURE = 128
    UPDATE_NODE_PREEMPTION_POLICY = 256
    UPDATE_POD_LABEL = 512
    UPDATE_POD_SCALE_DOWN = 1024
    UPDATE_POD_SCALE_UP = 2048
    UPDATE_POD_TOLERATION = 4096
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 8192
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 16384
    UPDATE = 32764
    ALL = 32767


_ACTION_LABELS: Final = {
    Action.ADD: "Add",
    Action.DELETE: "Delete",
    Action.UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    Action.UPDATE_NODE_LABEL: "UpdateNodeLabel",
    Action.UPDATE_NODE_TAINT: "UpdateNodeTaint",
    Action.UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    Action.UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    Action.UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    Action.UPDATE_NODE_PREEMPTION_POLICY: "UpdateNodePreemptionPolicy",
    Action.UPDATE_POD_LABEL: "UpdatePodLabel",
    Action.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.UPDATE_POD_SCALE_UP: "UpdatePodScaleUp",
    Action.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    Action.UPDATE: "Update",
    Action.ALL: "All",
}


_POD_RESOURCES: Final = (
    Resource.ASSIGNED_POD,
    Resource.UNSCHEDULABLE_POD,
    Resource.UNSCHEDULED_POD,
    Resource.TARGET_POD,
)


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A kind of change of objects of one kind."""

    resource: str
    """One of `Resource`, or the `event` of another kind (`api/kinds.py`)."""
    action: Action
    custom_label: str = ""
    label: str = field(init=False, repr=False, compare=False)
    """The name in metrics, e.g. `AssignedPodDelete`. Every event that is handled is counted under it."""

    def __post_init__(self) -> None:
        label = self.custom_label or f"{self.resource}{''.join(self.action_labels)}"
        object.__setattr__(self, "label", label)

    @property
    def action_labels(self) -> tuple[str, ...]:
        """The names of the single actions of a registration, e.g. `Add`, `UpdateNodeLabel`."""
        if self.action in _ACTION_LABELS:
            return (_ACTION_LABELS[self.action],)
        whole = [action for action in (Action.UPDATE,) if action in self.action]
        rest = self.action & ~Action.UPDATE if whole else self.action
        return tuple(_ACTION_LABELS[one] for one in (*Action(rest), *whole))

    @property
    def is_wildcard(self) -> bool:
        return self.resource == Resource.ANY and self.action == Action.ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """Whether a registration for this event matches an incoming event."""
        if self.is_wildcard:
            return True
        same = self.resource in (Resource.ANY, incoming.resource) or (
            self.resource == Resource.POD and incoming.resource in _POD_RESOURCES
        )
        return same and bool(self.action & incoming.action) and incoming.action <= self.action


Hint = Callable[[Pod, Any, Any], bool]
"""`hint(waiting pod, old object or None, new object or None)`: True if the event requeues the pod."""


EventKeys = Callable[[Any, Any], Collection[str] | None]
"""`keys(old object or None, new object or None)`: the keys of the event; None if it may affect any pod."""


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """An event that may make a pod schedulable which this plugin rejected.

    With `keys` the hint is called only for pods that wait for one of these keys (`WaitingKeysPlugin`).
    """

    event: ClusterEvent
    hint: Hint | None = None
    keys: EventKeys | None = None


def event_with_hint(
    resource: str, action: Action, hint: Hint | None = None, keys: EventKeys | None = None
) -> ClusterEventWithHint:
    return ClusterEventWithHint(ClusterEvent(resource, action), hint, keys)
