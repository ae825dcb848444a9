"""Where each kind is."""

from __future__ import annotations

from typing import ClassVar

import pytest

from bayplan.api.cluster_api import Event
from bayplan.api.groups import PodGroup
from bayplan.api.kinds import KINDS, Kind, KindTable
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.storage import CSIStorageCapacity
from bayplan.api.workloads import PodGroup as CoschedulingPodGroup
from bayplan.errors import APIError


class Widget(Object, frozen=True):
    api_resource: ClassVar[str] = "widgets.v1beta1.shop.example.com"


class Gadget(Object, frozen=True):
    pass


@pytest.mark.parametrize(
    ("kind", "name", "namespace", "expected"),
    [
        pytest.param(Pod, "a", "x", "/api/v1/namespaces/x/pods/a", id="the core group has no group"),
        pytest.param(
            Node, "n", "", "/api/v1/nodes/n", id="kinds without a namespace have none in their path"
        ),
        pytest.param(
            CoschedulingPodGroup,
            "g",
            "x",
            "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/x/podgroups/g",
            id="a group and its version",
        ),
        pytest.param(
            PodGroup,
            "g",
            "x",
            "/apis/scheduling.k8s.io/v1beta1/namespaces/x/podgroups/g",
            id="a kind of the same name in another group",
        ),
        pytest.param(
            Widget,
            "w",
            "x",
            "/apis/shop.example.com/v1beta1/namespaces/x/widgets/w",
            id="a record can name the group of its kind",
        ),
        pytest.param(
            Node, "a/b?\r\n", "", "/api/v1/nodes/a%2Fb%3F%0D%0A", id="special characters of names are escaped"
        ),
    ],
)
def test_the_path_of_an_object(kind: type[Object], name: str, namespace: str, expected: str) -> None:
    assert KINDS.of(kind).item(name, namespace) == expected


@pytest.mark.parametrize(
    ("kind", "namespace", "expected"),
    [
        pytest.param(Pod, "", "/api/v1/pods", id="all namespaces"),
        pytest.param(Event, "x", "/apis/events.k8s.io/v1/namespaces/x/events", id="one namespace"),
        pytest.param(
            CSIStorageCapacity, "", "/apis/storage.k8s.io/v1/csistoragecapacities", id="an odd plural"
        ),
    ],
)
def test_the_path_of_a_collection(kind: type[Object], namespace: str, expected: str) -> None:
    assert KINDS.of(kind).collection(namespace) == expected


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(APIError, match="Gadget: where the API server keeps this kind is not known"):
        KINDS.of(Gadget)


def test_kinds_of_the_same_name_differ_in_their_group() -> None:
    assert KINDS.get("PodGroup", "scheduling.k8s.io") is KINDS["PodGroup"] is KINDS.of(PodGroup)
    assert KINDS.get("PodGroup", "scheduling.x-k8s.io") is KINDS.of(CoschedulingPodGroup)
    assert KINDS.get("PodGroup", "example.com") is None


def test_a_kind_can_be_replaced_and_removed() -> None:
    first, second = Kind(PodGroup, "podgroups", "a", "v1"), Kind(CoschedulingPodGroup, "podgroups", "b", "v1")
    newer = Kind(PodGroup, "podgroups", "a", "v2")
    table = KindTable((first, second))
    table.add(newer)
    assert (table.get("PodGroup", "a"), table["PodGroup"], table.of(PodGroup)) == (newer, second, newer)
    table.remove(newer)
    table.remove(second)
    assert (table.names, list(table)) == (frozenset(), [])
