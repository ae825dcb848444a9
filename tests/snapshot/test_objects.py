"""Other API objects, by kind and name, with versions."""

from __future__ import annotations

from bayplan.api.node import Namespace
from bayplan.api.workloads import Service
from bayplan.snapshot.objects import Objects
from bayplan.testing.builders import make_namespace, make_service


def test_by_kind_name_and_namespace() -> None:
    objects = Objects()
    here, there = make_service("web", {"a": "b"}), make_service("web", namespace="other")
    for item in (here, there, make_namespace("web")):
        objects.put(item)
    services = objects.of(Service)
    assert services.get("web", "default") is here
    assert services.get("web", "other") is there
    assert services.get("web", "nowhere") is None
    assert objects.of(Namespace).get("web") is not None
    assert list(services) == [here, there]
    assert len(services) == 2


def test_an_object_that_changed_takes_the_place_of_the_old_one() -> None:
    objects = Objects()
    first, second = make_service("a"), make_service("b")
    changed = make_service("a", {"x": "y"})
    for item in (first, second, changed):
        objects.put(item)
    assert list(objects.of(Service)) == [changed, second]


def test_versions_grow_with_every_change_of_their_kind() -> None:
    objects = Objects()
    before = objects.versions((Service, Namespace))
    objects.put(make_service("a"))
    objects.put(make_service("a"))
    after = objects.versions((Service, Namespace))
    assert after[0] > before[0]
    assert after[1] == before[1]
    assert objects.version > 0


def test_removing_what_is_not_there_is_no_change() -> None:
    objects = Objects()
    objects.put(make_service("a"))
    version = objects.version
    objects.remove(make_service("b"))
    assert objects.version == version
    objects.remove(make_service("a"))
    assert (objects.version, len(objects.of(Service))) == (version + 1, 0)


def test_asking_for_a_kind_that_nobody_has_seen_changes_nothing() -> None:
    objects = Objects()
    assert (len(objects.of(Service)), objects.version) == (0, 0)
