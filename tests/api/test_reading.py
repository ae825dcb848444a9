"""What can be read of an object is read, and the rest is named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.reading import Unreadable, read_object, readable, with_readable_quantities
from bayplan.api.storage import CSINode, PersistentVolume
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.testing.builders import make_container, make_node, make_pod, make_pv

NAMED = {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7"}


def read(kind: type[Object], **parts: Any) -> Object:
    return read_object(kind, json.dumps({"metadata": NAMED, **parts}).encode())


@pytest.mark.parametrize(
    ("kind", "parts", "fields"),
    [
        pytest.param(Pod, {"status": {"startTime": "2025-02-29T00:00:00Z"}}, "status.startTime", id="a day"),
        pytest.param(Pod, {"status": {"startTime": "2025-01-01T00:00:00"}}, "status.startTime", id="no zone"),
        pytest.param(
            Node,
            {"status": {"conditions": [{"type": "Ready", "lastTransitionTime": "yesterday"}]}},
            "status.conditions[0].lastTransitionTime",
            id="of a condition",
        ),
        pytest.param(
            PodDisruptionBudget,
            {"status": {"disruptedPods": {"p": "2025-02-29T00:00:00Z"}}},
            "status.disruptedPods[...]",
            id="of a disrupted pod",
        ),
    ],
)
def test_a_time_that_cannot_be_read_leaves_the_rest_usable(
    kind: type[Object], parts: dict[str, Any], fields: str
) -> None:
    item = read(kind, **parts)
    assert isinstance(item, Unreadable)
    assert (item.fields, item.is_usable, item.key) == ((fields,), True, "b/a")


def test_a_time_that_cannot_be_read_counts_as_1970() -> None:
    item = read(Pod, status={"startTime": "0000-01-01T00:00:00Z"})
    assert isinstance(item, Unreadable)
    partial: Object = readable(item)
    assert partial == read(Pod, status={"startTime": "1970-01-01T00:00:00Z"})
    assert isinstance(partial, Pod)
    assert partial.status.start_time == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param({"priority": "high"}, ["spec.priority"], id="the wrong type"),
        pytest.param({"priority": 2**31}, ["spec.priority"], id="out of range"),
        pytest.param({"containers": [{}, 5]}, ["spec.containers[1]"], id="an entry of a list"),
        pytest.param({"nodeSelector": {"a": 1}}, ["spec.nodeSelector[...]"], id="an entry of a map"),
        pytest.param([], ["spec"], id="all of it"),
        pytest.param(
            {"tolerations": [{"tolerationSeconds": 2**63}], "priority": {}},
            ["spec.tolerations[0].tolerationSeconds", "spec.priority"],
            id="several",
        ),
    ],
)
def test_everything_but_the_fields_that_cannot_be_read(spec: Any, fields: list[str]) -> None:
    item = read(Pod, spec=spec)
    assert isinstance(item, Unreadable)
    assert (sorted(item.fields), item.is_usable) == (sorted(fields), False)
    assert item.partial.metadata == item.metadata
    assert (item.name, item.uid) == ("a", "u")


def test_numbers_of_thousands_of_digits() -> None:
    """Neither Python nor msgspec converts them."""
    for number in (b"1" * 5000, b"1e999"):
        body = b'{"metadata":{"name":"a"},"spec":{"nodeName":"n","priority":%s}}' % number
        item = read_object(Pod, body)
        assert isinstance(item, Unreadable)
        assert item.fields == ("spec.priority",)
        assert isinstance(item.partial, Pod)
        assert item.partial.spec.node_name == "n"


def test_nulls_are_absent_fields() -> None:
    assert read(CSINode, spec={"drivers": None}) == read(CSINode)


@pytest.mark.parametrize("body", [b"", b"7", b"[]", b"{", b"\xff", b'{"spec":' + b"[" * 100_000])
def test_what_is_no_object(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_object(Pod, body)


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (make_pod("p", cpu="1x"), "spec.containers[0].resources.requests[cpu]"),
        (make_pod("p", init_containers=[make_container(memory="")]), "spec.initContainers[0].resources"),
        (make_pod("p", overhead={"cpu": "e"}), "spec.overhead[cpu]"),
        (make_node("n", cpu="much"), "status.allocatable[cpu]"),
        (make_pv("v", capacity="1Zi"), "spec.capacity[storage]"),
    ],
)
def test_quantities_that_cannot_be_read(item: Object, field: str) -> None:
    found = with_readable_quantities(item)
    assert isinstance(found, Unreadable)
    assert found.fields[0].startswith(field)


@pytest.mark.parametrize("item", [make_pod("p", cpu="100m"), make_node("n"), PersistentVolume()])
def test_objects_with_quantities_that_can_be_read(item: Object) -> None:
    assert with_readable_quantities(item) is item
