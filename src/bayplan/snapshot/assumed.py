"""Volumes and claims as they are about to become.

When a pod is given a node, the volumes it will have there are decided too, but to write that down in the API
server takes a while. Until then the next pod must not be promised the same volume: so the decision is laid
over the object, and the next pod sees the object with it. It is seen only as long as the API server still
has the version of the object on which the decision rests; what comes after that, the server knows best.

Decisions stand among the cluster's objects, as kinds of their own. So whoever reads volumes as they will be
names these kinds among those it reads, and is asked again when a decision is made or taken back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bayplan.api.meta import Object
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.errors import BayplanError
from bayplan.snapshot.objects import Objects


class AssumedVolume(Object, frozen=True):
    """A decision on a volume. It has the volume's metadata."""

    item: PersistentVolume = PersistentVolume()


class AssumedClaim(Object, frozen=True):
    """A decision on a claim. It has the claim's metadata."""

    item: PersistentVolumeClaim = PersistentVolumeClaim()


ASSUMED_KINDS: Final[tuple[type[Object], ...]] = (AssumedVolume, AssumedClaim)


class OutOfSyncError(BayplanError):
    """A decision rests on a version of an object that is no longer the current one."""


def expected_volume(objects: Objects, name: str) -> PersistentVolume | None:
    """A volume as it will be."""
    actual = objects.of(PersistentVolume).get(name)
    assumed = objects.of(AssumedVolume).get(name)
    return assumed.item if actual and assumed and _is_current(assumed.item, actual) else actual


def expected_claim(objects: Objects, name: str, namespace: str) -> PersistentVolumeClaim | None:
    """A claim as it will be."""
    actual = objects.of(PersistentVolumeClaim).get(name, namespace)
    assumed = objects.of(AssumedClaim).get(name, namespace)
    return assumed.item if actual and assumed and _is_current(assumed.item, actual) else actual


def expected_volumes(objects: Objects) -> Iterator[PersistentVolume]:
    """All volumes as they will be."""
    volumes = objects.of(PersistentVolume)
    if not len(objects.of(AssumedVolume)):
        yield from volumes
        return
    for volume in volumes:
        yield expected_volume(objects, volume.name) or volume


def assume_object(objects: Objects, item: PersistentVolume | PersistentVolumeClaim) -> None:
    """Lays a decision over an object.

    Raises:
        OutOfSyncError: the object has changed since the decision was made, or has gone.
    """
    stored = objects.of(type(item)).get(item.name, item.namespace)
    if stored is None:
        raise OutOfSyncError(f'{type(item).__name__.lower()}s "{item.key}" not found')
    if not _is_current(item, stored):
        raise OutOfSyncError(
            f'"{item.key}" is out of sync (stored: {stored.metadata.resource_version}, '
            f"assume: {item.metadata.resource_version})"
        )
    decision = _decision(item)
    made = objects.of(type(decision))
    made.put(decision)
    if len(made) & (len(made) - 1) == 0:
        # Nobody takes back a decision that was carried out. Looking for those now and then is enough.
        _forget_outdated(objects, type(decision))


def restore_object(objects: Objects, item: PersistentVolume | PersistentVolumeClaim) -> None:
    """Takes back the decision on an object, if there is one and nobody has decided anew since."""
    decision = _decision(item)
    made = objects.of(type(decision)).get(item.name, item.namespace)
    if made is not None and _is_current(item, made.item):
        objects.remove(decision)


def _decision(item: PersistentVolume | PersistentVolumeClaim) -> AssumedVolume | AssumedClaim:
    if isinstance(item, PersistentVolume):
        return AssumedVolume(metadata=item.metadata, item=item)
    return AssumedClaim(metadata=item.metadata, item=item)


def _is_current(assumed: Object, actual: Object) -> bool:
    return assumed.metadata.resource_version == actual.metadata.resource_version


def _forget_outdated(objects: Objects, kind: type[AssumedVolume] | type[AssumedClaim]) -> None:
    made = objects.of(kind)
    for decision in list(made):
        actual = objects.of(type(decision.item)).get(decision.name, decision.namespace)
        if actual is None or not _is_current(decision.item, actual):
            made.remove(decision)
