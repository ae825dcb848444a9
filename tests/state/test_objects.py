"""Other API objects, by kind and name, with versions."""

from __future__ import annotations

from bayplan.api.node import Namespace
from bayplan.api.workloads import Service
from bayplan.clock import Changes
from bayplan.state.objects import Objects
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


def test_an_updated_object_replaces_the_old_one() -> None:
    objects = Objects()
    first, second = make_service("a"), make_service("b")
    changed = make_service("a", {"x": "y"})
    for item in (first, second, changed):
        objects.put(item)
    assert list(objects.of(Service)) == [changed, second]


def test_every_change_is_recorded_in_the_topic_of_its_kind() -> None:
    changes = Changes()
    objects = Objects(changes)
    first, second = make_service("a"), make_service("a", {"x": "y"})
    objects.put(first)
    objects.put(second)
    objects.remove(second)
    assert changes.kind(Service).since(0) == [(None, first), (first, second), (second, None)]
    assert changes.kind(Namespace).since(0) == []
    assert changes.objects.changed_at > changes.kind(Service).changed_at


def test_removing_what_is_not_there_is_no_change() -> None:
    changes = Changes()
    objects = Objects(changes)
    objects.put(make_service("a"))
    before = changes.clock.now
    objects.remove(make_service("b"))
    assert changes.clock.now == before
    objects.remove(make_service("a"))
    assert changes.clock.now > before
    assert len(objects.of(Service)) == 0


def test_reading_an_unknown_kind_changes_nothing() -> None:
    changes = Changes()
    assert (len(Objects(changes).of(Service)), changes.clock.now) == (0, 0)
