"""The table of kinds: every kind that bayplan reads, watches or writes, one entry each.

Decoding, the client, the informers and their handlers, cluster events, RBAC rules and the embedded API server
read this table, so adding a kind is one entry here (and its record in this folder). A plugin's own kind needs
no entry: its record names the resource, in the form in which kube-scheduler registers custom resources, and
the plugin lists it in `kinds`.

    class Widget(Object, frozen=True):
        api_resource: ClassVar[str] = "widgets.v1.example.com"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final
from urllib.parse import quote

from bayplan.api.cluster_api import Event, Lease
from bayplan.api.devices import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from bayplan.api.groups import CompositePodGroup, PodGroup
from bayplan.api.meta import Object
from bayplan.api.node import Namespace, Node, NodeResourceTopology
from bayplan.api.pod import Pod
from bayplan.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from bayplan.api.volcano import PodGroup as VolcanoPodGroup
from bayplan.api.volcano import Queue as VolcanoQueue
from bayplan.api.workloads import (
    DaemonSet,
    Deployment,
    ElasticQuota,
    HorizontalPodAutoscaler,
    Job,
    LimitRange,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    ResourceQuota,
    RuntimeClass,
    Service,
    StatefulSet,
)
from bayplan.api.workloads import PodGroup as CoschedulingPodGroup
from bayplan.errors import APIError

UNFINISHED_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"


class Watch(Enum):
    """Whether the scheduler watches a kind."""

    NO = "no"
    """Only if a plugin registers it (`Plugin.kinds`)."""
    REQUIRED = "required"
    """Always. Every API server serves it: scheduling begins when it is synced."""
    OPTIONAL = "optional"
    """Always, but an API server may not serve it: scheduling waits for it unless the server says that it does
    not know the kind."""


_PLAIN: Final = re.compile("[A-Za-z0-9._-]+").fullmatch


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its record, its place in the API, and what the scheduler does with it."""

    record: type[Object]
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    watch: Watch = Watch.NO
    gate: str = ""
    """The feature gate that must be on for the scheduler to watch it; empty: it is always watched."""
    event: str = ""
    """The resource of its cluster events, by which plugins register them; empty where its changes make no pod
    schedulable."""
    in_files: bool = True
    """Whether it is read from files of objects (`bayplan decide`, `bayplan up`)."""
    custom: bool = False
    """Whether a CustomResourceDefinition defines it: API servers do not have it by themselves."""
    field_selector: str = ""
    """Which of its objects are listed and watched."""
    written_whole: bool = False
    """Whether an update replaces the object, because the record has all its fields. Otherwise it is a patch
    of the fields that differ, so that fields which the record does not have are kept."""

    def __str__(self) -> str:
        return f"{self.plural} ({self.api_version})"

    @property
    def name(self) -> str:
        """The name of the kind, which is the name of its record."""
        return self.record.__name__

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def collection(self, namespace: str = "") -> str:
        """The path of all objects, or of those of a namespace."""
        if namespace:
            return f"{self.root}/namespaces/{_quoted(namespace)}/{self.plural}"
        return f"{self.root}/{self.plural}"

    def item(self, name: str, namespace: str = "") -> str:
        """The path of one object."""
        return f"{self.collection(namespace)}/{_quoted(name)}"


def _quoted(name: str) -> str:
    """As part of a path. Names of objects seldom have anything to quote, and checking that is cheaper."""
    return name if _PLAIN(name) else quote(name, safe="")


class KindTable:
    """Kinds by record and by name. Groups may have kinds of the same name."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._by_record: dict[type[Object], Kind] = {}
        self._by_name: dict[str, list[Kind]] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._by_record.values()))

    def add(self, kind: Kind) -> None:
        """Adds a kind. Schedulers and servers that are made from now on know it."""
        self._by_record[kind.record] = kind
        same_name = self._by_name.setdefault(kind.name, [])
        same_name[:] = [*(other for other in same_name if other.group != kind.group), kind]

    def remove(self, kind: Kind) -> None:
        del self._by_record[kind.record]
        self._by_name[kind.name].remove(kind)
        if not self._by_name[kind.name]:
            del self._by_name[kind.name]

    def __getitem__(self, name: str) -> Kind:
        """The kind of this name, the first if several groups have one; KeyError where there is none."""
        return self._by_name[name][0]

    def get(self, name: str, group: str | None = None) -> Kind | None:
        """The kind of this name and group; without a group, the first of this name."""
        same_name = self._by_name.get(name, ())
        return next((kind for kind in same_name if group is None or kind.group == group), None)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._by_name)

    def find(self, record: type[Object]) -> Kind | None:
        """The kind of a record: its entry, or what the record itself says (`api_resource`)."""
        return self._by_record.get(record) or _of_plugin(record)

    def of(self, record: type[Object]) -> Kind:
        """The kind of a record.

        Raises:
            APIError: it has no entry and does not say it itself.
        """
        found = self.find(record)
        if found is None:
            raise APIError(
                f"{record.__name__}: where the API server keeps this kind is not known; "
                'its record can say so: api_resource = "<plural>.<version>.<group>"'
            )
        return found

    def watched(self) -> tuple[Kind, ...]:
        """The kinds that schedulers watch, those of feature gates included."""
        return tuple(kind for kind in self if kind.watch is not Watch.NO)


@cache
def _of_plugin(record: type[Object]) -> Kind | None:
    named = getattr(record, "api_resource", "")
    if not named:
        return None
    plural, _, rest = named.partition(".")
    version, _, group = rest.partition(".")
    return Kind(record, plural, group, version, event=named, in_files=False, custom=True)


_STORAGE: Final = "storage.k8s.io"
_DEVICES: Final = "resource.k8s.io"
_SCHEDULING: Final = "scheduling.k8s.io"
_ALWAYS: Final = Watch.REQUIRED

KINDS: Final = KindTable(
    (
        Kind(Pod, "pods", watch=_ALWAYS, event="Pod", field_selector=UNFINISHED_PODS),
        Kind(Node, "nodes", namespaced=False, watch=_ALWAYS, event="Node"),
        Kind(Namespace, "namespaces", namespaced=False, watch=_ALWAYS),
        Kind(
            PersistentVolume, "persistentvolumes", namespaced=False, watch=_ALWAYS, event="PersistentVolume"
        ),
        Kind(
            PersistentVolumeClaim, "persistentvolumeclaims", watch=_ALWAYS, event="PersistentVolumeClaim"
        ),
        Kind(
            StorageClass, "storageclasses", _STORAGE, namespaced=False, watch=_ALWAYS,
            event="storage.k8s.io/StorageClass",
        ),
        Kind(
            CSINode, "csinodes", _STORAGE, namespaced=False, watch=_ALWAYS, event="storage.k8s.io/CSINode"
        ),
        Kind(
            CSIDriver, "csidrivers", _STORAGE, namespaced=False, watch=_ALWAYS,
            event="storage.k8s.io/CSIDriver",
        ),
        Kind(
            CSIStorageCapacity, "csistoragecapacities", _STORAGE, watch=_ALWAYS,
            event="storage.k8s.io/CSIStorageCapacity",
        ),
        Kind(
            VolumeAttachment, "volumeattachments", _STORAGE, namespaced=False, watch=_ALWAYS,
            event="storage.k8s.io/VolumeAttachment",
        ),
        Kind(PodDisruptionBudget, "poddisruptionbudgets", "policy", watch=_ALWAYS),
        Kind(Service, "services", watch=_ALWAYS),
        Kind(ReplicationController, "replicationcontrollers", watch=_ALWAYS),
        Kind(ReplicaSet, "replicasets", "apps", watch=_ALWAYS),
        Kind(StatefulSet, "statefulsets", "apps", watch=_ALWAYS),
        # API servers before v1.34 do not serve this version of the group.
        Kind(
            ResourceClaim, "resourceclaims", _DEVICES, watch=Watch.OPTIONAL,
            event="resource.k8s.io/ResourceClaim", written_whole=True,
        ),
        Kind(
            ResourceSlice, "resourceslices", _DEVICES, namespaced=False, watch=Watch.OPTIONAL,
            event="resource.k8s.io/ResourceSlice",
        ),
        Kind(
            DeviceClass, "deviceclasses", _DEVICES, namespaced=False, watch=Watch.OPTIONAL,
            event="resource.k8s.io/DeviceClass",
        ),
        # Its changes are events of the ResourceSlices whose devices it taints.
        Kind(
            DeviceTaintRule, "devicetaintrules", _DEVICES, namespaced=False, watch=Watch.OPTIONAL,
            gate="DRADeviceTaintRules",
        ),
        # Behind these gates, API servers do not serve them by default.
        Kind(
            PodGroup, "podgroups", _SCHEDULING, "v1beta1", watch=Watch.OPTIONAL, gate="GenericWorkload",
            event="scheduling.k8s.io/PodGroup",
        ),
        Kind(
            CompositePodGroup, "compositepodgroups", _SCHEDULING, "v1alpha3", watch=Watch.OPTIONAL,
            gate="CompositePodGroup", event="scheduling.k8s.io/CompositePodGroup",
        ),
        Kind(ResourceClaimTemplate, "resourceclaimtemplates", _DEVICES),
        Kind(
            CoschedulingPodGroup, "podgroups", "scheduling.x-k8s.io", "v1alpha1", custom=True,
            event="scheduling.x-k8s.io/PodGroup",
        ),
        Kind(VolcanoPodGroup, "podgroups", "scheduling.volcano.sh", "v1beta1", custom=True),
        Kind(VolcanoQueue, "queues", "scheduling.volcano.sh", "v1beta1", namespaced=False, custom=True),
        Kind(
            ElasticQuota, "elasticquotas", "scheduling.x-k8s.io", "v1alpha1", custom=True,
            event="scheduling.x-k8s.io/ElasticQuota",
        ),
        Kind(
            NodeResourceTopology, "noderesourcetopologies", "topology.node.k8s.io", "v1alpha2",
            namespaced=False, custom=True, event="topology.node.k8s.io/NodeResourceTopology",
        ),
        Kind(PriorityClass, "priorityclasses", _SCHEDULING, namespaced=False),
        # Read for pods that do not exist yet.
        Kind(Deployment, "deployments", "apps"),
        Kind(DaemonSet, "daemonsets", "apps"),
        Kind(Job, "jobs", "batch"),
        Kind(HorizontalPodAutoscaler, "horizontalpodautoscalers", "autoscaling", "v2"),
        Kind(RuntimeClass, "runtimeclasses", "node.k8s.io", namespaced=False),
        Kind(LimitRange, "limitranges"),
        Kind(ResourceQuota, "resourcequotas"),
        Kind(Lease, "leases", "coordination.k8s.io", in_files=False, written_whole=True),
        Kind(Event, "events", "events.k8s.io", in_files=False),
    )
)  # fmt: skip
"""In the order in which they are watched."""
