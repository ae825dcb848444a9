"""Volumes and related objects: claims, volumes, classes, CSI.

Volumes of plugins that were part of Kubernetes are translated for the CSI drivers that replaced them. Old
manifests still use `awsElasticBlockStore`, but the EBS driver serves it. So such a volume counts against that
driver's limit, under the driver's handle, and if a node reports a migrated plugin, the volume's zones are
looked up under the driver's own label. Only what scheduling reads is translated: driver, handle and node
affinity.

https://kubernetes.io/docs/concepts/storage/volumes/#csi-migration
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from msgspec import field
from msgspec.structs import replace

from bayplan.api.meta import (
    Int32,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
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
    Volume,
    VsphereVolumeSource,
)
from bayplan.errors import BayplanError

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


ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"

ZONE_DELIMITER: Final = "__"
"""Separates the zones in the label of a volume with several zones."""

UNSPECIFIED: Final = "UNSPECIFIED"
"""The placeholder in a handle for a project or zone that only the driver knows."""

EBS_PROBLEM: Final = (
    "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({text})"
)
GCE_ZONE_PROBLEM: Final = (
    "failed to get region from zones: "
    "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
)
GCE_REGION_PROBLEM: Final = (
    "failed to get region from zones: multiple or no regions gotten from zones, got: {regions}"
)

Terms = tuple[NodeSelectorTerm, ...]

_is_ebs_volume = re.compile(r"vol-[^/]*").fullmatch


class TranslationError(BayplanError):
    """A volume of an in-tree plugin is invalid and cannot be translated to CSI."""


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    """A migrated plugin, and the driver that replaced it."""

    name: str
    driver: str
    source: str
    """The field, of a pod's volume and of a PersistentVolume's spec, of such a volume."""
    id_field: str = ""
    """The field with the driver's name of the volume; "" if scheduling never needs it."""
    zone_key: str = ""
    """The driver's label for zones; "" if it does not change a volume's node affinity."""
    region_key: str = ""
    """The same for regions; "" if the driver uses Kubernetes' own label."""

    @property
    def is_counted(self) -> bool:
        """Whether its volumes count against the driver's limit, on every node that has a CSINode."""
        return bool(self.id_field)


GCE_PD: Final = InTreePlugin(
    "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce_persistent_disk", "pd_name", "topology.gke.io/zone"
)
AWS_EBS: Final = InTreePlugin(
    "kubernetes.io/aws-ebs",
    "ebs.csi.aws.com",
    "aws_elastic_block_store",
    "volume_id",
    "topology.ebs.csi.aws.com/zone",
)
AZURE_DISK: Final = InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk", "disk_uri")
AZURE_FILE: Final = InTreePlugin("kubernetes.io/azure-file", "file.csi.azure.com", "azure_file")
CINDER: Final = InTreePlugin(
    "kubernetes.io/cinder",
    "cinder.csi.openstack.org",
    "cinder",
    "volume_id",
    "topology.cinder.csi.openstack.org/zone",
)
VSPHERE: Final = InTreePlugin(
    "kubernetes.io/vsphere-volume",
    "csi.vsphere.vmware.com",
    "vsphere_volume",
    zone_key="topology.csi.vmware.com/zone",
    region_key="topology.csi.vmware.com/region",
)
PORTWORX: Final = InTreePlugin(
    "kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume", "volume_id"
)

IN_TREE_PLUGINS: Final = {
    plugin.name: plugin for plugin in (GCE_PD, AWS_EBS, AZURE_DISK, AZURE_FILE, CINDER, VSPHERE, PORTWORX)
}
"""By name, which is also what a storage class calls the plugin."""


def in_tree_plugin(described: Volume | PersistentVolumeSpec) -> InTreePlugin | None:
    """The migrated plugin that a pod's volume or a PersistentVolume uses, if any."""
    for plugin in IN_TREE_PLUGINS.values():
        if getattr(described, plugin.source) is not None:
            return plugin
    return None


def migrated_plugins(csi_node: CSINode) -> frozenset[str]:
    """The plugins that are migrated on this node."""
    listed = csi_node.annotations.get(MIGRATED_PLUGINS_ANNOTATION, "")
    return frozenset(listed.split(",")) if listed else frozenset()


def inline_handle(plugin: InTreePlugin, volume: Volume) -> str:
    """The driver's handle of an inline volume.

    Raises:
        TranslationError: the volume is invalid.
    """
    return _handle(plugin, getattr(volume, plugin.source), zones=("",))


def volume_handle(plugin: InTreePlugin, volume: PersistentVolume) -> str:
    """The driver's handle of a PersistentVolume.

    Raises:
        TranslationError: the volume is invalid.
    """
    zones = (volume.labels.get(BETA_ZONE) or volume.labels.get(ZONE, "")).split(ZONE_DELIMITER)
    return _handle(plugin, getattr(volume.spec, plugin.source), zones)


def migrated_affinity(plugin: InTreePlugin, volume: PersistentVolume) -> NodeSelector | None:
    """The volume's node affinity in the driver's terms.

    Zones are taken from the affinity or, if it has none, from the volume's labels.

    Raises:
        TranslationError: the volume is invalid, so that the driver would not know it.
    """
    volume_handle(plugin, volume)
    affinity, labels = volume.spec.node_affinity, volume.labels
    required = affinity.required if affinity is not None else None
    if not plugin.zone_key:
        return required
    terms = required.node_selector_terms if required is not None else ()
    zone, region = _labels_used(terms, labels)
    if plugin.region_key:
        terms = _moved(terms, zone, plugin.zone_key, (labels.get(zone, ""),))
        terms = _moved(terms, region, plugin.region_key, (labels.get(region, ""),))
    else:
        terms = _moved(terms, zone, plugin.zone_key, labels.get(zone, "").split(ZONE_DELIMITER))
        if region == BETA_REGION:
            terms = _moved(terms, BETA_REGION, REGION, ())
    return NodeSelector(node_selector_terms=terms) if terms or required is not None else None


def _labels_used(terms: Terms, labels: Mapping[str, str]) -> tuple[str, str]:
    """The labels for zone and region that the volume uses: the current ones, or the deprecated ones."""
    keys = {expression.key for term in terms for expression in term.match_expressions}
    for known in (keys, labels):
        if ZONE in known:
            return ZONE, REGION
        if BETA_ZONE in known:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _moved(terms: Terms, old: str, new: str, otherwise: Iterable[str]) -> Terms:
    """The terms with the new label in place of the old one.

    If the old one has no values in any term, every term requires one of the values of `otherwise` instead,
    unless there are none.
    """
    if any(
        expression.values for term in terms for expression in term.match_expressions if expression.key == old
    ):
        return tuple(replace(term, match_expressions=_renamed(term, old, new)) for term in terms)
    values = sorted({value.strip() for value in otherwise} - {""})
    if not values:
        return terms
    demand = LabelSelectorRequirement(key=new, operator="In", values=tuple(values))
    return tuple(
        replace(term, match_expressions=(*term.match_expressions, demand))
        for term in terms or (NodeSelectorTerm(),)
    )


def _renamed(term: NodeSelectorTerm, old: str, new: str) -> tuple[LabelSelectorRequirement, ...]:
    return tuple(replace(e, key=new) if e.key == old else e for e in term.match_expressions)


def _handle(plugin: InTreePlugin, description: Any, zones: Sequence[str]) -> str:
    found: str = getattr(description, plugin.id_field) if plugin.id_field else ""
    if plugin is AWS_EBS:
        return _ebs_volume(found)
    if plugin is not GCE_PD:
        return found
    if len(zones) > 1:
        return f"projects/{UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{found}"
    return f"projects/{UNSPECIFIED}/zones/{zones[0] or UNSPECIFIED}/disks/{found}"


def _ebs_volume(text: str) -> str:
    """`aws://<zone>/<volume>` and `aws:///<volume>` are other spellings of `<volume>`."""
    if not text.startswith("aws://"):
        return text
    try:
        name = unquote(urlsplit(text).path).strip("/")
    except ValueError:
        name = ""
    if not _is_ebs_volume(name):
        raise TranslationError(EBS_PROBLEM.format(text=text))
    return name


def _gce_region(zones: Sequence[str]) -> str:
    """The region of zones such as `us-central1-a`."""
    regions = set()
    for zone in zones:
        locale, *rest = zone.split("-")
        if len(rest) != 2:
            raise TranslationError(GCE_ZONE_PROBLEM.format(zone=zone))
        regions.add(f"{locale}-{rest[0]}")
    if len(regions) != 1:
        listed = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(GCE_REGION_PROBLEM.format(regions=f"map[{listed}]"))
    return regions.pop()
