"""Objects that cannot be read are quarantined: logged once, counted, and what they occupy stays occupied."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from bayplan.api.cluster_api import Change, WatchEvent
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.quantity import MAX_REQUEST
from bayplan.api.reading import read_object
from bayplan.api.releases import V1_36
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.client.informer import Informer
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.testing.builders import make_pdb, make_pod

CPU = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
BROKEN = {"containers": [{"resources": {"requests": {"cpu": ["1"], "example.com/gpu": "1"}}}]}


class Copy:
    """The objects that the handler was called with."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}

    def added(self, item: Any) -> None:
        assert item.key not in self.items
        self.items[item.key] = item

    def updated(self, old: Any, new: Any) -> None:
        assert old.key in self.items
        self.items[new.key] = new

    def deleted(self, item: Any) -> None:
        del self.items[item.key]


def informer(kind: type[Object] = Pod) -> tuple[Informer[Any], Copy]:
    copy = Copy()
    return Informer(MemoryCluster(MemoryStore(clock=lambda: 0.0)), kind, copy), copy


def item(version: int, spec: Any = CPU, *, kind: type[Object] = Pod, uid: str = "u", **parts: Any) -> Any:
    meta = {"name": "p", "namespace": "x", "uid": uid, "resourceVersion": str(version)}
    return read_object(kind, json.dumps({"metadata": meta, "spec": spec, **parts}).encode())


def event(change: Change, received: Any) -> WatchEvent[Any]:
    return WatchEvent(change, received, received.metadata.resource_version)


@pytest.mark.parametrize("relist", [True, False], ids=["a list", "a watch"])
def test_the_last_version_that_could_be_read_stays(relist: bool) -> None:
    watched, copy = informer()
    watched.replace([item(1, {**CPU, "nodeName": "n"})], "1")
    broken = item(2, {**BROKEN, "nodeName": "n"})
    if relist:
        watched.replace([broken], "2")
    else:
        watched.apply([event(Change.MODIFIED, broken)])
    assert V1_36.accounting.assigned_requests(copy.items["x/p"]) == {"cpu": 1000}
    assert copy.items["x/p"].spec.node_name == "n"
    assert list(watched.unreadable) == [("x", "p")]


def test_a_pod_that_is_bound_and_cannot_be_read_any_more_counts_on_its_node() -> None:
    watched, copy = informer()
    watched.replace([item(1)], "1")
    watched.apply([event(Change.MODIFIED, item(2, {**BROKEN, "nodeName": "n"}))])
    assert copy.items["x/p"].spec.node_name == "n"
    assert V1_36.accounting.assigned_requests(copy.items["x/p"]) == {"cpu": 1000}


def test_an_unknown_pod_on_a_node_fills_it() -> None:
    watched, copy = informer()
    watched.replace([item(1, {**BROKEN, "nodeName": "n"})], "1")
    pod = copy.items["x/p"]
    assert type(pod) is Pod
    assert (pod.spec.node_name, pod.uid, pod.priority) == ("n", "u", 2**31 - 1)
    requests = V1_36.accounting.assigned_requests(pod)
    assert requests == dict.fromkeys(("cpu", "memory", "ephemeral-storage"), MAX_REQUEST)


def test_a_pod_with_a_quantity_that_is_none_fills_its_node() -> None:
    watched, copy = informer()
    watched.replace([make_pod("p", cpu="1x", requests={"example.com/gpu": "1"}, node="n")], "1")
    requests = V1_36.accounting.assigned_requests(copy.items["default/p"])
    assert requests["cpu"] == requests["example.com/gpu"] == MAX_REQUEST


def test_a_pod_whose_spec_can_be_read_counts_with_its_requests() -> None:
    watched, copy = informer()
    received = item(1, {**CPU, "nodeName": "n"}, status={"phase": "Running", "conditions": 7})
    watched.replace([received], "1")
    assert V1_36.accounting.assigned_requests(copy.items["x/p"]) == {"cpu": 1000}
    assert copy.items["x/p"].status.phase == "Running"


def test_an_object_of_which_only_a_time_cannot_be_read_is_used() -> None:
    watched, copy = informer()
    watched.replace([item(1, status={"startTime": "2025-02-29T00:00:00Z"})], "1")
    assert V1_36.accounting.assigned_requests(copy.items["x/p"]) == {"cpu": 1000}
    assert len(watched.unreadable) == 1


def test_an_unreadable_time_does_not_hide_an_unreadable_quantity() -> None:
    """The time alone would leave the object usable, and the quantity would then fail wherever it is read."""
    watched, copy = informer(Node)
    status = {
        "allocatable": {"cpu": "8", "example.com/gpu": "many"},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-02-29T00:00:00Z"}],
    }
    watched.replace([item(1, {}, kind=Node, status=status)], "1")
    assert copy.items == {}
    [found] = watched.unreadable.values()
    assert found.fields[0] == "status.allocatable[example.com/gpu]"
    assert "many" in found.problem


def test_a_quantity_in_the_status_does_not_hide_one_in_the_spec() -> None:
    watched, copy = informer()
    spec = {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "more"}}]}
    watched.replace([item(1, spec, status=status)], "1")
    assert V1_36.accounting.assigned_requests(copy.items["x/p"])["cpu"] == MAX_REQUEST


@pytest.mark.parametrize(
    ("kind", "received"),
    [
        (Pod, item(1, BROKEN)),
        (Node, item(1, {"taints": 5}, kind=Node)),
        (PodDisruptionBudget, item(1, {"selector": 5}, kind=PodDisruptionBudget)),
    ],
    ids=["a pod without a node", "a node", "a budget without its selector"],
)
def test_what_occupies_nothing_is_left_out(kind: type[Object], received: Any) -> None:
    watched, copy = informer(kind)
    watched.replace([received], "1")
    assert copy.items == {}
    watched.apply([event(Change.DELETED, kind(metadata=received.metadata))])
    assert watched.unreadable == {}


def test_a_budget_whose_status_cannot_be_read_allows_nothing() -> None:
    watched, copy = informer(PodDisruptionBudget)
    spec = {"selector": {"matchLabels": {"app": "web"}}}
    received = item(1, spec, kind=PodDisruptionBudget, status={"disruptionsAllowed": "1"})
    watched.replace([received], "1")
    assert copy.items["x/p"].status == make_pdb("p", {"app": "web"}, allowed=0).status
    assert copy.items["x/p"].spec.selector.match_labels == {"app": "web"}


def test_an_unreadable_namesake_removes_the_old_object() -> None:
    watched, copy = informer()
    watched.replace([item(1)], "1")
    watched.apply([event(Change.MODIFIED, item(2, BROKEN, uid="another"))])
    assert copy.items == {}


def test_it_is_logged_once_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    watched, copy = informer()
    broken = {**BROKEN, "nodeName": "n"}
    with caplog.at_level(logging.INFO):
        watched.replace([item(1, broken)], "1")
        watched.apply([event(Change.MODIFIED, item(2, broken))])
        watched.replace([item(3, broken)], "3")
        watched.apply([event(Change.MODIFIED, item(4, {**CPU, "nodeName": "n"}))])
    assert caplog.messages == [
        "Pod x/p cannot be read: spec.containers[0].resources.requests[...]: "
        "Expected `int | float | str`, got `array`; its node takes no other pods",
        "Pod x/p can be read again",
    ]
    assert V1_36.accounting.assigned_requests(copy.items["x/p"]) == {"cpu": 1000}
    assert watched.unreadable == {}


def test_what_is_gone_is_no_longer_counted() -> None:
    watched, copy = informer()
    watched.replace([item(1, {**BROKEN, "nodeName": "n"})], "1")
    watched.replace([], "2")
    assert (copy.items, watched.unreadable) == ({}, {})


@pytest.mark.parametrize("seen", [True, False], ids=["known to be unreadable", "unreadable only at the end"])
def test_a_pod_that_is_gone_is_taken_off_its_node(seen: bool) -> None:
    """The handler is notified of the pod in the version it has: the last version may not name the node."""
    watched, copy = informer()
    watched.replace([item(1, {**CPU, "nodeName": "n"})], "1")
    if seen:
        watched.apply([event(Change.MODIFIED, item(2, BROKEN))])
    gone: list[Pod] = []
    copy.deleted = gone.append  # type: ignore[assignment,method-assign]  # to record it
    watched.apply([event(Change.DELETED, item(3, {**BROKEN, "nodeName": 5}))])
    assert [(pod.spec.node_name, V1_36.accounting.assigned_requests(pod)) for pod in gone] == [
        ("n", {"cpu": 1000})
    ]


def test_versions_of_thousands_of_digits_are_no_numbers() -> None:
    watched, copy = informer()
    watched.replace([item(1)], "1")
    received = item(int("9" * 4000))
    watched.apply([event(Change.MODIFIED, received)])
    assert copy.items["x/p"] is received
