"""Where the API server keeps each kind: group, version and the name in the URL.

A kind of a plugin's own says it in its record, in the form in which kube-scheduler registers custom
resources:

    class Widget(Object, frozen=True):
        api_resource: ClassVar[str] = "widgets.v1.example.com"
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import quote

from bayplan.api.meta import Object
from bayplan.errors import APIError

UNFINISHED_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API server offers it."""

    plural: str
    group: str = ""
    version: str = "v1"
    field_selector: str = ""
    """Which objects of the kind are listed and watched at all."""
    whole: bool = False
    """Our records hold all fields, so that writing one back loses nothing."""

    def __str__(self) -> str:
        return f"{self.plural} ({self.api_version})"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def collection(self, namespace: str = "") -> str:
        """The path of all objects, or of those of a namespace."""
        if namespace:
            return f"{self.root}/namespaces/{quote(namespace, safe='')}/{self.plural}"
        return f"{self.root}/{self.plural}"

    def item(self, name: str, namespace: str = "") -> str:
        """The path of one object. Objects without a namespace are those of kinds that have none."""
        return f"{self.collection(namespace)}/{quote(name, safe='')}"


_STORAGE: Final = "storage.k8s.io"

RESOURCES: Final[dict[str, Resource]] = {
    "Event": Resource("events", "events.k8s.io"),
    "Lease": Resource("leases", "coordination.k8s.io", whole=True),
    "Namespace": Resource("namespaces"),
    "Node": Resource("nodes"),
    "PersistentVolume": Resource("persistentvolumes"),
    "PersistentVolumeClaim": Resource("persistentvolumeclaims"),
    "Pod": Resource("pods", field_selector=UNFINISHED_PODS),
    "ReplicationController": Resource("replicationcontrollers"),
    "Service": Resource("services"),
    "ReplicaSet": Resource("replicasets", "apps"),
    "StatefulSet": Resource("statefulsets", "apps"),
    "PodDisruptionBudget": Resource("poddisruptionbudgets", "policy"),
    "PodGroup": Resource("podgroups", "scheduling.x-k8s.io", "v1alpha1"),
    "PriorityClass": Resource("priorityclasses", "scheduling.k8s.io"),
    "CSIDriver": Resource("csidrivers", _STORAGE),
    "CSINode": Resource("csinodes", _STORAGE),
    "CSIStorageCapacity": Resource("csistoragecapacities", _STORAGE),
    "StorageClass": Resource("storageclasses", _STORAGE),
    "VolumeAttachment": Resource("volumeattachments", _STORAGE),
}
"""By the name of the kind, which is the name of its record."""


@cache
def resource_of(kind: type[Object]) -> Resource:
    """Where objects of a kind are.

    Raises:
        APIError: nobody has said so.
    """
    told = getattr(kind, "api_resource", "")
    if told:
        plural, _, rest = told.partition(".")
        version, _, group = rest.partition(".")
        return Resource(plural, group, version)
    try:
        return RESOURCES[kind.__name__]
    except KeyError:
        raise APIError(
            f"{kind.__name__}: where the API server keeps this kind is not known; "
            'its record can say so: api_resource = "<plural>.<version>.<group>"'
        ) from None
