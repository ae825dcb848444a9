"""Identifies the volumes of pods and claims by driver and handle.

A volume that two pods share counts once. A claim that has no volume yet counts under its own name. An in-tree
volume of a pod or a PersistentVolume counts as its CSI driver's (`api/in_tree_volumes.py`), on every node
that has a CSINode. On the others it does not count, but they have no limits either. `VolumeUses` (volumes.py)
counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from bayplan.api.in_tree_volumes import (
    IN_TREE_PLUGINS,
    TranslationError,
    in_tree_plugin,
    inline_handle,
    volume_handle,
)
from bayplan.api.pod import Pod
from bayplan.api.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    not_found,
    not_made_for,
)
from bayplan.state.objects import Objects

NO_CLAIM_NAME: Final = "PersistentVolumeClaim had no name"
CLAIM_LOOKUP: Final = "looking up PVC {namespace}/{name}: {problem}"
INLINE_TRANSLATION: Final = "converting volume({name}) from inline to csi: {problem}"


class VolumeId(NamedTuple):
    """One volume, whichever pod uses it."""

    driver: str
    handle: str
    claim: str = ""
    """Instead of a handle: `namespace/name` of a claim without a volume yet."""


@dataclass(frozen=True, slots=True)
class ClaimedVolume:
    """A volume of a pod that refers to a claim."""

    name: str
    """The claim's, in the pod's namespace."""
    is_ephemeral: bool


@dataclass(frozen=True, slots=True)
class InlineVolume:
    """An inline volume of an in-tree plugin."""

    id: VolumeId | None
    """None if it does not count."""
    problem: str = ""
    """Why the volume cannot be identified; nodes with a CSINode cannot take such a pod."""


@dataclass(frozen=True, slots=True)
class VolumeProblem:
    """The volumes of a pod cannot be identified."""

    text: str
    is_missing_claim: bool = False


PodVolumes = tuple[ClaimedVolume | InlineVolume, ...]


def limited_volumes(pod: Pod) -> PodVolumes:
    """The volumes of a pod that may count against a driver's limit, in order."""
    found: list[ClaimedVolume | InlineVolume] = []
    for volume in pod.spec.volumes:
        claim_name = pod.claim_name(volume)
        plugin = in_tree_plugin(volume)
        if claim_name is not None:
            found.append(ClaimedVolume(claim_name, volume.persistent_volume_claim is None))
        elif plugin is not None and not plugin.is_counted:
            found.append(InlineVolume(None))
        elif plugin is not None:
            try:
                found.append(InlineVolume(VolumeId(plugin.driver, inline_handle(plugin, volume))))
            except TranslationError as error:
                found.append(InlineVolume(None, INLINE_TRANSLATION.format(name=volume.name, problem=error)))
    return tuple(found)


def wanted_volumes(
    objects: Objects, pod: Pod, volumes: PodVolumes, *, has_csi_node: bool
) -> frozenset[VolumeId] | VolumeProblem:
    """The volumes that a pending pod would use on a node with, or without, a CSINode."""
    found: set[VolumeId | None] = set()
    for volume in volumes:
        if isinstance(volume, InlineVolume):
            if has_csi_node and volume.problem:
                return VolumeProblem(volume.problem)
            found.add(volume.id if has_csi_node else None)
            continue
        if not volume.name:
            return VolumeProblem(NO_CLAIM_NAME)
        claim = objects.of(PersistentVolumeClaim).get(volume.name, pod.namespace)
        if claim is None:
            problem = not_found(PersistentVolumeClaim, volume.name)
            text = CLAIM_LOOKUP.format(namespace=pod.namespace, name=volume.name, problem=problem)
            return VolumeProblem(text, is_missing_claim=True)
        if volume.is_ephemeral and not claim.was_made_for(pod):
            return VolumeProblem(not_made_for(claim, pod))
        found.add(volume_of_claim(objects, claim))
    return frozenset(volume_id for volume_id in found if volume_id is not None)


def used_volume(
    objects: Objects, pod: Pod, volume: ClaimedVolume | InlineVolume
) -> tuple[VolumeId | None, str]:
    """The volume that a pod on a node with a CSINode uses, or why it cannot be identified."""
    if isinstance(volume, InlineVolume):
        return volume.id, volume.problem
    if not volume.name:
        return None, NO_CLAIM_NAME
    claim = objects.of(PersistentVolumeClaim).get(volume.name, pod.namespace)
    if claim is None:
        # A running pod has had its claim; what happened to it does not matter to the incoming pod.
        return None, ""
    if volume.is_ephemeral and not claim.was_made_for(pod):
        return None, not_made_for(claim, pod)
    return volume_of_claim(objects, claim), ""


def volume_of_claim(objects: Objects, claim: PersistentVolumeClaim) -> VolumeId | None:
    """The volume of a claim, or None if it does not count."""
    volume = objects.of(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return _id_of(volume)
    storage_class = objects.of(StorageClass).get(claim.class_name)
    driver = "" if storage_class is None else storage_class.provisioner
    plugin = IN_TREE_PLUGINS.get(driver)
    if plugin is not None:
        driver = plugin.driver if plugin.is_counted else ""
    return VolumeId(driver, "", claim.key) if driver else None


def _id_of(volume: PersistentVolume) -> VolumeId | None:
    csi = volume.spec.csi
    if csi is not None:
        return VolumeId(csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
    plugin = in_tree_plugin(volume.spec)
    if plugin is None or not plugin.is_counted:
        return None
    try:
        handle = volume_handle(plugin, volume)
    except TranslationError:
        return None
    return VolumeId(plugin.driver, handle) if handle else None
