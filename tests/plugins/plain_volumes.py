"""The rules about volumes for one node at a time, as plainly as they can be written.

The plugins compute all nodes at once and keep indexes; here every question is answered from the objects
themselves, by loops. Both must agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.api.meta import LabelSelector, NodeSelector
from bayplan.api.pod import Volume
from bayplan.api.storage import (
    IN_TREE_PLUGINS,
    TranslationError,
    in_tree_plugin,
    inline_handle,
    migrated_affinity,
    migrated_plugins,
    volume_handle,
)
from bayplan.plugin import Code, Node, Pod, SelectorError, compile_selector
from bayplan.plugin.objects import Objects, compile_terms, parse_quantity, terms_match, value
from bayplan.plugin.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from bayplan.plugins import node_volume_limits, volume_binding, volume_restrictions, volume_zone

Rejection = tuple[Code, frozenset[str]]


def rejected(code: Code, *reasons: str) -> Rejection:
    return code, frozenset(reasons)


# VolumeRestrictions


def disks_clash(volume: Volume, other: Volume) -> bool:
    if volume.gce_persistent_disk and other.gce_persistent_disk:
        one, two = volume.gce_persistent_disk, other.gce_persistent_disk
        return one.pd_name == two.pd_name and not (one.read_only and two.read_only)
    if volume.aws_elastic_block_store and other.aws_elastic_block_store:
        return volume.aws_elastic_block_store.volume_id == other.aws_elastic_block_store.volume_id
    if volume.iscsi and other.iscsi:
        return volume.iscsi.iqn == other.iscsi.iqn and not (volume.iscsi.read_only and other.iscsi.read_only)
    if volume.rbd and other.rbd:
        return (
            any(monitor in other.rbd.monitors for monitor in volume.rbd.monitors)
            and (volume.rbd.pool, volume.rbd.image) == (other.rbd.pool, other.rbd.image)
            and not (volume.rbd.read_only and other.rbd.read_only)
        )
    return False


def restrictions(
    objects: Objects, pod: Pod, here: Sequence[Pod], everywhere: Sequence[Pod]
) -> Rejection | None:
    """Assumes that the pod's claims exist. `everywhere` includes the pods that are `here`."""
    for other in here:
        if any(disks_clash(v, w) for v in pod.spec.volumes for w in other.spec.volumes):
            return rejected(Code.UNSCHEDULABLE, volume_restrictions.REASON_DISK)
    used = {
        (other.namespace, volume.persistent_volume_claim.claim_name)
        for other in everywhere
        for volume in other.spec.volumes
        if volume.persistent_volume_claim
    }
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim:
            name = volume.persistent_volume_claim.claim_name
            claim = objects.of(PersistentVolumeClaim).get(name, pod.namespace)
            assert claim is not None
            if "ReadWriteOncePod" in claim.spec.access_modes and (pod.namespace, name) in used:
                return rejected(Code.UNSCHEDULABLE, volume_restrictions.REASON_CLAIM)
    return None


# NodeVolumeLimits


class PodVolumeError(Exception):
    def __init__(self, text: str, missing: bool = False) -> None:
        super().__init__(text)
        self.rejection = rejected(Code.UNRESOLVABLE if missing else Code.ERROR, text)


def driver_and_handle(objects: Objects, claim: PersistentVolumeClaim, on_csi: bool) -> tuple[str, str] | None:
    volume = objects.of(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        storage_class = objects.of(StorageClass).get(claim.class_name) if claim.class_name else None
        if storage_class is None:
            return None
        moved = IN_TREE_PLUGINS.get(storage_class.provisioner)
        if moved is None:
            return storage_class.provisioner, f"to be made for {claim.key}"
        return (moved.driver, f"to be made for {claim.key}") if on_csi and moved.is_counted else None
    if volume.spec.csi is not None:
        return volume.spec.csi.driver, volume.spec.csi.volume_handle
    plugin = in_tree_plugin(volume.spec)
    if plugin is None or not plugin.is_counted or not on_csi:
        return None
    try:
        return plugin.driver, volume_handle(plugin, volume)
    except TranslationError:
        return None


def attachable(objects: Objects, pod: Pod, on_csi: bool, is_new: bool) -> set[tuple[str, str]]:
    found = set()
    for volume in pod.spec.volumes:
        name = pod.claim_name(volume)
        if name is None:
            plugin = in_tree_plugin(volume)
            if plugin is not None and plugin.is_counted and on_csi:
                try:
                    found.add((plugin.driver, inline_handle(plugin, volume)))
                except TranslationError as error:
                    raise PodVolumeError(
                        f"converting volume({volume.name}) from inline to csi: {error}"
                    ) from error
            continue
        claim = objects.of(PersistentVolumeClaim).get(name, pod.namespace)
        if claim is None:
            if is_new:
                text = f'looking up PVC {pod.namespace}/{name}: persistentvolumeclaim "{name}" not found'
                raise PodVolumeError(text, missing=True)
            continue
        owner = claim.metadata.controller()
        if volume.ephemeral is not None and (owner is None or owner.uid != pod.uid):
            raise PodVolumeError(f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)")
        identity = driver_and_handle(objects, claim, on_csi)
        if identity is not None and all(identity):
            found.add(identity)
    return found


def limits(objects: Objects, pod: Pod, node: Node, here: Sequence[Pod]) -> Rejection | None:
    csi_node = objects.of(CSINode).get(node.name)
    try:
        new = attachable(objects, pod, csi_node is not None, True)
        if not new or csi_node is None:
            return None
        limits = {
            driver.name: driver.allocatable.count
            for driver in csi_node.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        if not limits:
            return None
        used: set[tuple[str, str]] = set()
        for other in here:
            used |= attachable(objects, other, True, False)
    except PodVolumeError as problem:
        return problem.rejection
    attached = set(used)
    for attachment in objects.of(VolumeAttachment):
        volume = objects.of(PersistentVolume).get(attachment.spec.source.persistent_volume_name or "")
        csi = volume.spec.csi if volume is not None else None
        if attachment.spec.node_name == node.name and attachment.spec.attacher and csi is not None:
            attached.add((attachment.spec.attacher, csi.volume_handle))
    for driver, limit in limits.items():
        further = sum(identity[0] == driver for identity in new - used)
        if further and sum(identity[0] == driver for identity in attached) + further > limit:
            return rejected(Code.UNSCHEDULABLE, node_volume_limits.REASON)
    return None


# VolumeBinding


def reaches(affinity: NodeSelector | None, node: Node) -> bool:
    return affinity is None or terms_match(compile_terms(affinity.node_selector_terms), node.labels, "")


def required(volume: PersistentVolume) -> NodeSelector | None:
    return volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None


def size(claim: PersistentVolumeClaim) -> int:
    return parse_quantity(claim.spec.resources.requests.get("storage"))


def find_volume(
    claim: PersistentVolumeClaim, volumes: Sequence[PersistentVolume], node: Node, taken: set[str]
) -> PersistentVolume | None:
    best: PersistentVolume | None = None
    selector = compile_selector(claim.spec.selector) if claim.spec.selector is not None else None
    for volume in volumes:
        reference, capacity = volume.spec.claim_ref, parse_quantity(volume.spec.capacity.get("storage"))
        is_reserved = (
            reference is not None
            and (reference.namespace, reference.name) == (claim.namespace, claim.name)
            and (not reference.uid or reference.uid == claim.uid)
        )
        if volume.name in taken or volume.class_name != claim.class_name:
            continue
        if reference is not None and not is_reserved:
            continue
        if capacity < size(claim) or volume.metadata.deletion_timestamp is not None:
            continue
        if (volume.spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
            continue
        if volume.spec.volume_attributes_class_name != claim.spec.volume_attributes_class_name:
            continue
        fits = reaches(required(volume), node)
        if is_reserved:
            return volume if fits else None
        if volume.status.phase != "Available" or not fits:
            continue
        if selector is not None and not selector.matches(volume.labels):
            continue
        if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
            continue
        if best is None or capacity < parse_quantity(best.spec.capacity.get("storage")):
            best = volume
    return best


def provisioning_problem(objects: Objects, claim: PersistentVolumeClaim, node: Node) -> str | None:
    storage_class = objects.of(StorageClass).get(claim.class_name)
    assert storage_class is not None
    if storage_class.provisioner in ("", "kubernetes.io/no-provisioner"):
        return volume_binding.REASON_NO_VOLUME
    topologies = storage_class.allowed_topologies
    if topologies and not any(
        term.match_label_expressions
        and all(node.labels.get(e.key) in e.values for e in term.match_label_expressions)
        for term in topologies
    ):
        return volume_binding.REASON_NO_VOLUME
    driver = objects.of(CSIDriver).get(storage_class.provisioner)
    wanted = claim.spec.resources.requests.get("storage")
    if driver is None or not driver.spec.storage_capacity or wanted is None:
        return None
    for capacity in objects.of(CSIStorageCapacity):
        limit = (
            capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
        )
        if (
            capacity.storage_class_name == storage_class.name
            and limit is not None
            and value(limit) >= value(wanted)
            and has_access(capacity.node_topology, node)
        ):
            return None
    return volume_binding.REASON_NO_ROOM


def has_access(topology: LabelSelector | None, node: Node) -> bool:
    return topology is not None and compile_selector(topology).matches(node.labels)


def binding(objects: Objects, pod: Pod, node: Node) -> Rejection | None:
    """Assumes that PreFilter let the pod pass."""
    reasons: list[str] = []
    names = [name for volume in pod.spec.volumes if (name := pod.claim_name(volume)) is not None]
    claims = [objects.of(PersistentVolumeClaim).get(name, pod.namespace) for name in names]
    delayed = [c for c in claims if c is not None and not c.is_fully_bound]
    for claim in claims:
        if claim is None or not claim.is_fully_bound:
            continue
        volume = objects.of(PersistentVolume).get(claim.spec.volume_name)
        if volume is None:
            reasons.append(volume_binding.REASON_LOST_VOLUME)
            break
        affinity, plugin = required(volume), in_tree_plugin(volume.spec)
        csi_node = objects.of(CSINode).get(node.name)
        if plugin is not None and csi_node is not None and plugin.name in migrated_plugins(csi_node):
            try:
                affinity = migrated_affinity(plugin, volume)
            except TranslationError as error:
                return rejected(Code.ERROR, f"could not translate pv: {error}")
        if not reaches(affinity, node):
            reasons.append(volume_binding.REASON_AFFINITY)
            break
    selected = [c for c in delayed if "volume.kubernetes.io/selected-node" in c.annotations]
    if any(c.annotations["volume.kubernetes.io/selected-node"] != node.name for c in selected):
        return rejected(Code.UNRESOLVABLE, *reasons, volume_binding.REASON_NO_VOLUME)
    to_provision = list(selected)
    taken: set[str] = set()
    volumes = sorted(objects.of(PersistentVolume), key=lambda volume: volume.name)
    for claim in sorted((c for c in delayed if c not in selected), key=size):
        try:
            found = find_volume(claim, volumes, node, taken)
        except SelectorError as error:
            text = f"error creating internal label selector for claim: {claim.key}: {error.problem}"
            return rejected(Code.ERROR, text)
        if found is None:
            to_provision.append(claim)
        else:
            taken.add(found.name)
    for claim in to_provision:
        problem = provisioning_problem(objects, claim, node)
        if problem is not None:
            reasons.append(problem)
            break
    return rejected(Code.UNRESOLVABLE, *reasons) if reasons else None


# VolumeZone


def zone(objects: Objects, pod: Pod, node: Node) -> Rejection | None:
    """Assumes that PreFilter let the pod pass."""
    old, new = "failure-domain.beta.kubernetes.io/", "topology.kubernetes.io/"
    keys = [prefix + part for prefix in (old, new) for part in ("zone", "region")]
    if not any(key in node.labels for key in keys):
        return None
    for pod_volume in pod.spec.volumes:
        if pod_volume.persistent_volume_claim is None:
            continue
        name = pod_volume.persistent_volume_claim.claim_name
        claim = objects.of(PersistentVolumeClaim).get(name, pod.namespace)
        assert claim is not None
        volume = objects.of(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
        for key in keys if volume is not None else ():
            assert volume is not None
            allowed = [part.strip() for part in volume.labels.get(key, "").split("__")]
            actual = node.labels.get(key, node.labels.get(key.replace(old, new)))
            if "" not in allowed and actual not in allowed:
                return rejected(Code.UNRESOLVABLE, volume_zone.REASON)
    return None
