"""Volumes and claims as they are about to become."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.state.objects import Objects
from bayplan.state.volume_binding import (
    AssumedVolume,
    OutOfSyncError,
    assume_object,
    expected_claim,
    expected_volume,
    restore_object,
)
from bayplan.testing.builders import make_pv, make_pvc


def at(version: str, item: Any, **annotations: str) -> Any:
    meta = replace(item.metadata, resource_version=version, annotations=annotations)
    return replace(item, metadata=meta)


def volume(version: str, **annotations: str) -> PersistentVolume:
    return at(version, make_pv("v"), **annotations)  # type: ignore[no-any-return]  # at() keeps the type


def claim(version: str, **annotations: str) -> PersistentVolumeClaim:
    return at(version, make_pvc("c"), **annotations)  # type: ignore[no-any-return]  # at() keeps the type


@pytest.fixture
def objects() -> Objects:
    made = Objects()
    made.put(volume("1"))
    made.put(claim("7"))
    return made


def test_a_decision_is_seen_instead_of_the_object(objects: Objects) -> None:
    assume_object(objects, volume("1", decided="yes"))
    assume_object(objects, claim("7", decided="yes"))
    assert expected_volume(objects, "v") == volume("1", decided="yes")
    assert expected_claim(objects, "c", "default") == claim("7", decided="yes")
    assert objects.of(PersistentVolume).get("v") == volume("1")


def test_without_a_decision_the_object_is_seen(objects: Objects) -> None:
    assert expected_volume(objects, "v") == volume("1")
    assert expected_claim(objects, "c", "default") == claim("7")
    assert expected_volume(objects, "x") is None


def test_a_decision_that_was_taken_back_is_not_seen(objects: Objects) -> None:
    assume_object(objects, volume("1", decided="yes"))
    restore_object(objects, volume("1"))
    restore_object(objects, claim("7"))
    assert expected_volume(objects, "v") == volume("1")


def test_taking_back_an_old_decision_leaves_a_newer_one(objects: Objects) -> None:
    """Two pods may use one claim: the first that fails does not undo what the second has decided since."""
    first, second = claim("7", decided="first"), claim("8", decided="second")
    assume_object(objects, first)
    objects.put(claim("8"))
    assume_object(objects, second)
    restore_object(objects, first)
    assert expected_claim(objects, "c", "default") == second


@pytest.mark.parametrize("version", ["2", "0", "01"])
def test_any_other_version_ends_a_decision(objects: Objects, version: str) -> None:
    """Versions are compared as texts."""
    assume_object(objects, volume("1", decided="yes"))
    objects.put(volume(version))
    assert expected_volume(objects, "v") == volume(version)


def test_an_assumed_object_is_dropped_with_its_object(objects: Objects) -> None:
    assume_object(objects, volume("1", decided="yes"))
    objects.remove(volume("1"))
    assert expected_volume(objects, "v") is None


def test_a_decision_has_to_rest_on_the_current_version(objects: Objects) -> None:
    with pytest.raises(OutOfSyncError) as raised:
        assume_object(objects, claim("6"))
    assert str(raised.value) == '"default/c" is out of sync (stored: 7, assume: 6)'


def test_a_decision_needs_an_object(objects: Objects) -> None:
    with pytest.raises(OutOfSyncError) as raised:
        assume_object(objects, make_pv("x"))
    assert str(raised.value) == 'persistentvolumes "x" not found'


def test_deciding_and_taking_back_are_changes_of_a_kind(objects: Objects) -> None:
    before = objects.of(AssumedVolume).changes.changed_at
    assume_object(objects, volume("1"))
    decided = objects.of(AssumedVolume).changes.changed_at
    restore_object(objects, volume("1"))
    assert before < decided < objects.of(AssumedVolume).changes.changed_at


def test_decisions_that_were_carried_out_do_not_pile_up(objects: Objects) -> None:
    for i in range(1000):
        item = at("1", make_pv(f"v{i}"))
        objects.put(item)
        assume_object(objects, item)
        objects.put(at("2", item))
    assert len(objects.of(AssumedVolume)) < 10
