"""Assumed volumes and claims: decisions that are not written to the API server yet.

When a pod gets a node, its volumes there are decided too, but writing that to the API server takes a while.
Until then the next pod must not get the same volume: so the decision is an overlay over the object, which the
next pod sees. It is valid only while the API server still has the version of the object that the decision is
based on.

Decisions are objects of the cluster with kinds of their own. So a plugin that reads assumed volumes declares
these kinds, and its results are stale when a decision is made or reverted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bayplan.api.meta import Object
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.errors import BayplanError
from bayplan.state.objects import Objects


class AssumedVolume(Object, frozen=True):
    """A decision about a volume. It has the volume's metadata."""

    item: PersistentVolume = PersistentVolume()


class AssumedClaim(Object, frozen=True):
    """A decision about a claim. It has the claim's metadata."""

    item: PersistentVolumeClaim = PersistentVolumeClaim()


ASSUMED_KINDS: Final[tuple[type[Object], ...]] = (AssumedVolume, AssumedClaim)


class OutOfSyncError(BayplanError):
    """A decision is based on a version of an object that is no longer the current one."""


def expected_volume(objects: Objects, name: str) -> PersistentVolume | None:
    """A volume with its decision."""
    actual = objects.of(PersistentVolume).get(name)
    assumed = objects.of(AssumedVolume).get(name)
    return assumed.item if actual and assumed and _is_current(assumed.item, actual) else actual


def expected_claim(objects: Objects, name: str, namespace: str) -> PersistentVolumeClaim | None:
    """A claim with its decision."""
    actual = objects.of(PersistentVolumeClaim).get(name, namespace)
    assumed = objects.of(AssumedClaim).get(name, namespace)
    return assumed.item if actual and assumed and _is_current(assumed.item, actual) else actual


def expected_volumes(objects: Objects) -> Iterator[PersistentVolume]:
    """All volumes with their decisions."""
    volumes = objects.of(PersistentVolume)
    if not len(objects.of(AssumedVolume)):
        yield from volumes
        return
    for volume in volumes:
        yield expected_volume(objects, volume.name) or volume


def assume_object(objects: Objects, item: PersistentVolume | PersistentVolumeClaim) -> None:
    """Adds a decision about an object.

    Raises:
        OutOfSyncError: the object has changed since the decision was made, or was deleted.
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
        # Decisions that were executed are never reverted. Removing those now and then is enough.
        _forget_outdated(objects, type(decision))


def restore_object(objects: Objects, item: PersistentVolume | PersistentVolumeClaim) -> None:
    """Reverts the decision about an object, if there is one and no newer one."""
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
