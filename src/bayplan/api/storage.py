"""Volumes and related objects: claims, volumes, classes, CSI."""

from __future__ import annotations

from typing import Final

from msgspec import field

from bayplan.api.meta import (
    Int32,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    Object,
    ObjectReference,
    Quantity,
    Record,
    ResourceList,
)
from bayplan.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CinderVolumeSource,
    GCEPersistentDiskVolumeSource,
    Pod,
    PortworxVolumeSource,
    ResourceRequirements,
    VsphereVolumeSource,
)

STORAGE: Final = "storage"
"""The only resource that claims request and volumes have."""

CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
"""Where the class was before there was a field; it still takes precedence."""
BIND_COMPLETED_ANNOTATION: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER_ANNOTATION: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE_ANNOTATION: Final = "volume.kubernetes.io/selected-node"
"""On a claim: the node for which a volume is to be provisioned."""
MIGRATED_PLUGINS_ANNOTATION: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""On a CSINode: the migrated in-tree plugins of that node."""

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""The provisioner of a class whose volumes are created by hand."""
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"


class PersistentVolumeClaimSpec(Record, frozen=True):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Record, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def class_name(self) -> str:
        """Its storage class; "" if it has none."""
        found = self.metadata.annotations.get(CLASS_ANNOTATION)
        return (self.spec.storage_class_name or "") if found is None else found

    @property
    def is_fully_bound(self) -> bool:
        """Whether it has its volume, and both sides refer to each other."""
        return bool(self.spec.volume_name) and BIND_COMPLETED_ANNOTATION in self.metadata.annotations

    def was_made_for(self, pod: Pod) -> bool:
        """Whether it is the claim of one of the pod's ephemeral volumes, not another claim of the same
        name."""
        owner = self.metadata.controller()
        return self.namespace == pod.namespace and owner is not None and owner.uid == pod.uid


class CSIPersistentVolumeSource(Record, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Record, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Record, frozen=True):
    capacity: ResourceList = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    csi: CSIPersistentVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    vsphere_volume: VsphereVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None


class PersistentVolumeStatus(Record, frozen=True):
    phase: str = ""


class PersistentVolume(Object, frozen=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def class_name(self) -> str:
        """Its storage class; "" if it has none."""
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name)

    def is_for(self, claim: PersistentVolumeClaim) -> bool:
        """Whether it is bound to the claim, or reserved for it (by a user, who need not know the uid)."""
        reference = self.spec.claim_ref
        return (
            reference is not None
            and reference.name == claim.name
            and reference.namespace == claim.namespace
            and reference.uid in ("", claim.uid)
        )


class TopologySelectorTerm(Record, frozen=True):
    """One entry of allowedTopologies; its requirements have only key and values (In)."""

    match_label_expressions: tuple[LabelSelectorRequirement, ...] = ()


class StorageClass(Object, frozen=True):
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Record, frozen=True):
    count: Int32 | None = None


class CSINodeDriver(Record, frozen=True):
    name: str = ""
    node_id: str = field(default="", name="nodeID")
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Record, frozen=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object, frozen=True):
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Record, frozen=True):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None
    """Whether pods with volumes of the driver may only run on nodes where it is installed (v1.37)."""


class CSIDriver(Object, frozen=True):
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object, frozen=True):
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Record, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Record, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Object, frozen=True):
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


_NAMES_IN_ERRORS: Final[dict[type[Object], str]] = {
    PersistentVolumeClaim: "persistentvolumeclaim",
    PersistentVolume: "persistentvolume",
    StorageClass: "storageclass.storage.k8s.io",
}


def not_found(kind: type[Object], name: str) -> str:
    """The message for a pod if an object that it needs does not exist."""
    return f'{_NAMES_IN_ERRORS[kind]} "{name}" not found'


def not_made_for(claim: PersistentVolumeClaim, pod: Pod) -> str:
    """The message for a pod if another owner's claim has the name of its ephemeral volume's claim."""
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
