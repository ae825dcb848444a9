"""Pod: the fields that scheduling and descheduling read, and what they mean: host ports, tolerations, images.

https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import field

from bayplan.api.meta import (
    Condition,
    Int32,
    Int64,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Object,
    Record,
    ResourceList,
    Time,
)
from bayplan.api.node import Taint

if TYPE_CHECKING:
    from bayplan.api.devices import DeviceTaint, DeviceToleration


class ResourceRequirements(Record, frozen=True):
    requests: ResourceList = {}
    limits: ResourceList = {}


class ContainerPort(Record, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class ContainerRestartRule(Record, frozen=True):
    action: str = ""


class Container(Record, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class Toleration(Record, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class PreferredSchedulingTerm(Record, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Record, frozen=True):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Record, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Record, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Record, frozen=True):
    """Terms of podAffinity and, with the same shape, of podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Record, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Record, frozen=True):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class PersistentVolumeClaimVolumeSource(Record, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(Record, frozen=True):
    """Only its presence matters: the claim is named `<pod>-<volume>` and made by a controller."""


class GCEPersistentDiskVolumeSource(Record, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(Record, frozen=True):
    volume_id: str = field(default="", name="volumeID")
    read_only: bool = False


class RBDVolumeSource(Record, frozen=True):
    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class ISCSIVolumeSource(Record, frozen=True):
    target_portal: str = ""
    iqn: str = ""
    lun: Int32 = 0
    read_only: bool = False


class AzureDiskVolumeSource(Record, frozen=True):
    disk_name: str = ""
    disk_uri: str = field(default="", name="diskURI")


class AzureFileVolumeSource(Record, frozen=True):
    secret_name: str = ""
    share_name: str = ""


class CinderVolumeSource(Record, frozen=True):
    volume_id: str = field(default="", name="volumeID")


class VsphereVolumeSource(Record, frozen=True):
    volume_path: str = ""


class PortworxVolumeSource(Record, frozen=True):
    volume_id: str = field(default="", name="volumeID")


class CSIVolumeSource(Record, frozen=True):
    driver: str = ""


class ImageVolumeSource(Record, frozen=True):
    reference: str = ""


class LocalVolumeSource(Record, frozen=True):
    """A hostPath or an emptyDir. Only its presence matters: the pod loses the data when it is moved."""


class Volume(Record, frozen=True):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    vsphere_volume: VsphereVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    image: ImageVolumeSource | None = None
    host_path: LocalVolumeSource | None = None
    empty_dir: LocalVolumeSource | None = None


class PodSchedulingGate(Record, frozen=True):
    name: str = ""


class PodResourceClaim(Record, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(Record, frozen=True):
    """The group that the pod is a member of: a PodGroup of its namespace, which need not exist yet."""

    pod_group_name: str | None = None


class PodSpec(Record, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    runtime_class_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None
    volumes: tuple[Volume, ...] = ()
    host_network: bool = False
    host_users: bool | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    termination_grace_period_seconds: Int64 | None = None


class ContainerStateWaiting(Record, frozen=True):
    reason: str = ""


class ContainerStateTerminated(Record, frozen=True):
    reason: str = ""
    exit_code: Int32 = 0


class ContainerState(Record, frozen=True):
    """Why a container waits or ended. No scheduler reads it; descheduling does."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Record, frozen=True):
    name: str = ""
    restart_count: Int32 = 0
    state: ContainerState | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}


class PodResourceClaimStatus(Record, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Record, frozen=True):
    """Which request of the claim serves an extended resource of a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Record, frozen=True):
    """The claim that the scheduler created for the pod's extended resources."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class PodStatus(Record, frozen=True):
    phase: str = ""
    reason: str = ""
    qos_class: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: Time | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def priority(self) -> int:
        """spec.priority; a pod without one counts as 0."""
        return self.spec.priority or 0

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    def claim_name(self, volume: Volume) -> str | None:
        """The claim that one of the pod's volumes refers to, or None.

        The claim of a generic ephemeral volume is made by a controller and named `<pod>-<volume>`.
        """
        if volume.persistent_volume_claim is not None:
            return volume.persistent_volume_claim.claim_name
        return f"{self.name}-{volume.name}" if volume.ephemeral is not None else None


ANY_IP: Final = "0.0.0.0"
"""All IPv4 addresses of the node. `::` has no such meaning here: it is an address like any other."""
TCP: Final = "TCP"


class HostPort(NamedTuple):
    ip: str
    protocol: str
    port: int


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports of a running pod: of its sidecars, then of its containers.

    Init containers end before the containers start, and Kubernetes does not count their ports.
    """
    spec = pod.spec
    sidecars = (
        [c for c in spec.init_containers if c.restart_policy == "Always"] if spec.init_containers else []
    )
    return tuple(
        HostPort(port.host_ip or ANY_IP, port.protocol or TCP, port.host_port)
        for container in (*sidecars, *spec.containers)
        for port in container.ports
        if port.host_port > 0
    )


def conflicts(wanted: Iterable[HostPort], used: Collection[HostPort]) -> bool:
    """Whether one of the wanted ports is in use: same protocol and port, and the addresses overlap."""
    if not used:
        return False
    on_any_address: set[tuple[str, int]] | None = None
    if len(used) > 1:
        used = used if isinstance(used, Set) else frozenset(used)
    for want in wanted:
        if want.ip == ANY_IP:
            if on_any_address is None:
                on_any_address = {(use.protocol, use.port) for use in used}
            if (want.protocol, want.port) in on_any_address:
                return True
        elif want in used or HostPort(ANY_IP, want.protocol, want.port) in used:
            return True
    return False


NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"

EQUAL: Final = "Equal"
EXISTS: Final = "Exists"

FEW_TOLERATIONS: Final = 16
"""So many are compared one by one."""


def tolerates(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    """Whether this toleration covers this taint, of a node or of a device.

    An empty key or effect matches all. The operators Gt and Lt exist upstream behind a feature
    gate that is off by default; like every unknown operator they tolerate nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", EQUAL):
        # Also with an empty key: then only the values are compared.
        return toleration.value == taint.value
    return toleration.operator == EXISTS


def any_tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers this taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


class Tolerations:
    """Many tolerations, compared with many taints: `any_tolerates` by lookups."""

    __slots__ = ("_covered", "_few")

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._few = tuple(tolerations)
        self._covered: set[tuple[str, str, str | None]] | None = None
        """Effect, key and value (None: every value) of each; "" is every effect or key."""
        if len(self._few) > FEW_TOLERATIONS:
            self._covered = {
                (one.effect, one.key, one.value if one.operator in ("", EQUAL) else None)
                for one in self._few
                if one.operator in ("", EQUAL, EXISTS)
            }

    def cover(self, taint: Taint) -> bool:
        if self._covered is None:
            return any_tolerates(self._few, taint)
        return any(
            (effect, key, value) in self._covered
            for effect in (taint.effect, "")
            for key in (taint.key, "")
            for value in (taint.value, None)
        )


def untolerated_taint(
    taints: Iterable[Taint], tolerations: Tolerations | Iterable[Toleration]
) -> Taint | None:
    """The first taint that keeps a pod with these tolerations off the node."""
    known = tolerations if isinstance(tolerations, Tolerations) else Tolerations(tolerations)
    for taint in taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not known.cover(taint):
            return taint
    return None


def count_untolerated_preferences(
    taints: Iterable[Taint], tolerations: Tolerations | Iterable[Toleration]
) -> int:
    """The number of PreferNoSchedule taints that no toleration covers: the fewer, the better the node."""
    known = tolerations if isinstance(tolerations, Tolerations) else Tolerations(tolerations)
    return sum(taint.effect == PREFER_NO_SCHEDULE and not known.cover(taint) for taint in taints)


def normalized_image_name(name: str) -> str:
    """The name with `:latest` if it has neither tag nor digest.

    A colon before the last slash belongs to the registry's port. Registries are not filled in
    (`docker.io/library`): nodes report full names, and upstream compares them as they are.
    """
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def pod_images(pod: Pod) -> tuple[str, ...]:
    """The images the pod needs, as often as it names them: of init containers, containers and volumes."""
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers)
    volumes = tuple(volume.image.reference for volume in spec.volumes if volume.image is not None)
    return tuple(map(normalized_image_name, (*(container.image for container in containers), *volumes)))
