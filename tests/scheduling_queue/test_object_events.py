"""The events of an update of a pod or node."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.meta import Condition
from bayplan.api.node import Node
from bayplan.api.pod import ContainerStatus, Pod, PodResourceClaimStatus, ResourceRequirements, Toleration
from bayplan.api.releases import V1_36
from bayplan.framework.events import ClusterEvent
from bayplan.scheduling_queue.object_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    FORCE_ACTIVATE,
    NODE_ADD,
    UNSCHEDULABLE_TIMEOUT,
    PodEvents,
    node_update_events,
)
from bayplan.testing.builders import make_container, make_node, make_pod


def with_status(pod: Pod, **fields: Any) -> Pod:
    return replace(pod, status=replace(pod.status, **fields))


def resized(pod: Pod, cpu: str) -> Pod:
    """The kubelet reports that the pod's one container has this much."""
    resources = ResourceRequirements(requests={"cpu": cpu})
    return with_status(pod, container_statuses=(ContainerStatus(name="main", resources=resources),))


def with_claims(*claims: tuple[str, str | None]) -> Pod:
    statuses = tuple(PodResourceClaimStatus(name=name, resource_claim_name=claim) for name, claim in claims)
    return with_status(make_pod(), resource_claim_statuses=statuses)


def as_a_whole(cpu: str) -> ResourceRequirements:
    return ResourceRequirements(requests={"cpu": cpu})


def with_sidecar(cpu: str, reported: str) -> Pod:
    """A pod with a sidecar that requests this much, and has as much as the kubelet reports."""
    pod = make_pod(init_containers=[make_container("side", cpu=cpu, sidecar=True)])
    status = ContainerStatus(name="side", resources=as_a_whole(reported))
    return with_status(pod, init_container_statuses=(status,))


def allocated(cpu: str) -> Pod:
    """A pod that requests 1 cpu as a whole, of which the kubelet reports this much as allocated."""
    pod = make_pod(resources=as_a_whole("1"))
    return with_status(pod, resources=as_a_whole("1"), allocated_resources={"cpu": cpu})


INFEASIBLE = Condition(type="PodResizePending", status="True", reason="Infeasible")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(make_pod(), make_pod(labels={"a": "b"}), ["UpdatePodLabel"], id="a label was added"),
        pytest.param(make_pod(), make_pod(annotations={"a": "b"}), ["Update"], id="an annotation was added"),
        pytest.param(make_pod(), make_pod(), ["Update"], id="nothing that scheduling reads"),
        pytest.param(make_pod(cpu="2"), make_pod(cpu="1"), ["UpdatePodScaleDown"], id="less cpu"),
        pytest.param(make_pod(cpu="1"), make_pod(cpu="2"), ["Update"], id="more cpu"),
        pytest.param(make_pod(cpu="1"), make_pod(cpu="1000m"), ["Update"], id="the same cpu in other words"),
        pytest.param(make_pod(cpu="1"), make_pod(), ["UpdatePodScaleDown"], id="no cpu any more"),
        pytest.param(
            make_pod(cpu="0"), make_pod(), ["UpdatePodScaleDown"], id="a request for zero was removed"
        ),
        pytest.param(
            make_pod(cpu="2", memory="1Gi"),
            make_pod(cpu="1", memory="2Gi"),
            ["UpdatePodScaleDown"],
            id="one less",
        ),
        pytest.param(
            make_pod(cpu="2"), resized(make_pod(cpu="1"), "2"), ["Update"], id="not yet carried out"
        ),
        pytest.param(
            resized(make_pod(cpu="1"), "2"),
            resized(make_pod(cpu="1"), "1"),
            ["UpdatePodScaleDown"],
            id="carried out",
        ),
        pytest.param(
            resized(make_pod(cpu="2"), "1"),
            resized(make_pod(cpu="2", conditions=[INFEASIBLE]), "1"),
            ["UpdatePodScaleDown"],
            id="found infeasible",
        ),
        pytest.param(
            make_pod(gates=["a", "b"]),
            make_pod(),
            ["UpdatePodSchedulingGatesEliminated"],
            id="all gates were removed",
        ),
        pytest.param(
            make_pod(gates=["a", "b"]), make_pod(gates=["a"]), ["Update"], id="not all gates were removed"
        ),
        pytest.param(
            make_pod(),
            make_pod(tolerations=[Toleration(key="a")]),
            ["UpdatePodToleration"],
            id="a toleration was added",
        ),
        pytest.param(
            make_pod(tolerations=[Toleration(key="a")]),
            make_pod(tolerations=[Toleration(key="b")]),
            ["Update"],
            id="as many tolerations as before",
        ),
        pytest.param(
            with_claims(),
            with_claims(("c", "p-c")),
            ["UpdatePodGeneratedResourceClaim"],
            id="a claim was made",
        ),
        pytest.param(
            with_claims(("c", None)),
            with_claims(("c", "p-c")),
            ["UpdatePodGeneratedResourceClaim"],
            id="named",
        ),
        pytest.param(with_claims(("c", "x")), with_claims(("c", "x")), ["Update"], id="the same claims"),
        pytest.param(
            make_pod(cpu="2", gates=["a"]),
            make_pod(cpu="1", labels={"a": "b"}, tolerations=[Toleration(key="a")]),
            [
                "UpdatePodLabel",
                "UpdatePodScaleDown",
                "UpdatePodSchedulingGatesEliminated",
                "UpdatePodToleration",
            ],
            id="several at once, in order",
        ),
    ],
)
def test_pod_updates(old: Pod, new: Pod, expected: list[str]) -> None:
    labels = [event.label for event in PodEvents(V1_36).updates(old, new)]
    assert labels == [f"UnschedulablePod{change}" for change in expected]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(with_sidecar("2", "1"), with_sidecar("1", "1"), id="a sidecar requests less"),
        pytest.param(with_sidecar("1", "2"), with_sidecar("1", "1"), id="a sidecar has less"),
        pytest.param(make_pod(overhead={"cpu": "2"}), make_pod(overhead={"cpu": "1"}), id="less overhead"),
        pytest.param(
            make_pod(resources=as_a_whole("2")), make_pod(resources=as_a_whole("1")), id="less as a whole"
        ),
        pytest.param(
            with_status(make_pod(resources=as_a_whole("1")), resources=as_a_whole("2")),
            with_status(make_pod(resources=as_a_whole("1")), resources=as_a_whole("1")),
            id="the kubelet reports less as a whole",
        ),
        pytest.param(allocated("2"), allocated("1"), id="the kubelet has allocated less"),
    ],
)
def test_whatever_a_pod_takes_less_of_is_a_scale_down(old: Pod, new: Pod) -> None:
    events = [[event.label for event in PodEvents(V1_36).updates(*pair)] for pair in ((old, new), (new, old))]
    assert events == [["UnschedulablePodUpdatePodScaleDown"], ["UnschedulablePodUpdate"]]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(make_pod(), make_pod(node="n"), "AssignedPodUpdate", id="the new version decides"),
        pytest.param(
            make_pod(node="n"),
            make_pod(node="n", labels={"a": "b"}),
            "AssignedPodUpdatePodLabel",
            id="on a node",
        ),
    ],
)
def test_pods_on_nodes(old: Pod, new: Pod, expected: str) -> None:
    assert [event.label for event in PodEvents(V1_36).updates(old, new)] == [expected]


def with_conditions(*conditions: Condition) -> Node:
    node = make_node("n")
    return replace(node, status=replace(node.status, conditions=conditions))


def ready(status: str, reason: str = "") -> Condition:
    return Condition(type="Ready", status=status, reason=reason)


PRESSURE = Condition(type="DiskPressure", status="False")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(make_node("n"), make_node("n"), [], id="a heartbeat"),
        pytest.param(make_node("n"), make_node("n", images={"a": 1}), [], id="an image"),
        pytest.param(
            make_node("n", unschedulable=True), make_node("n"), ["UpdateNodeTaint"], id="it is uncordoned"
        ),
        pytest.param(make_node("n"), make_node("n", unschedulable=True), [], id="it is cordoned"),
        pytest.param(
            make_node("n", cpu="1"), make_node("n", cpu="2"), ["UpdateNodeAllocatable"], id="more cpu"
        ),
        pytest.param(
            make_node("n", cpu="1"), make_node("n", cpu="1000m"), [], id="the same cpu in other words"
        ),
        pytest.param(
            make_node("n"),
            make_node("n", resources={"a.b/c": 0}),
            ["UpdateNodeAllocatable"],
            id="zero of a resource",
        ),
        pytest.param(make_node("n"), make_node("n", labels={"a": "b"}), ["UpdateNodeLabel"], id="a label"),
        pytest.param(
            make_node("n"), make_node("n", taints=["a:NoSchedule"]), ["UpdateNodeTaint"], id="a taint"
        ),
        pytest.param(
            make_node("n"),
            make_node("n", annotations={"a": "b"}),
            ["UpdateNodeAnnotation"],
            id="an annotation",
        ),
        pytest.param(
            make_node("n"),
            make_node("n", declared_features=["F"]),
            ["UpdateNodeDeclaredFeature"],
            id="a feature",
        ),
        pytest.param(
            with_conditions(ready("False")),
            with_conditions(ready("True")),
            ["UpdateNodeCondition"],
            id="ready",
        ),
        pytest.param(
            with_conditions(ready("True", "A")),
            with_conditions(ready("True", "B")),
            [],
            id="ready, with reasons",
        ),
        pytest.param(
            with_conditions(ready("True"), PRESSURE),
            with_conditions(PRESSURE, ready("True")),
            [],
            id="in any order",
        ),
        pytest.param(
            make_node("n", unschedulable=True, taints=["a:NoSchedule"]),
            make_node("n", cpu="9", labels={"a": "b"}, annotations={"a": "b"}, declared_features=["F"]),
            [
                "UpdateNodeTaint",
                "UpdateNodeAllocatable",
                "UpdateNodeLabel",
                "UpdateNodeTaint",
                "UpdateNodeAnnotation",
                "UpdateNodeDeclaredFeature",
            ],
            id="several at once, in order, each for itself",
        ),
    ],
)
def test_node_updates(old: Node, new: Node, expected: list[str]) -> None:
    assert [event.label for event in node_update_events(old, new)] == [f"Node{change}" for change in expected]


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ASSIGNED_POD_ADD, "AssignedPodAdd"),
        (ASSIGNED_POD_DELETE, "AssignedPodDelete"),
        (PodEvents(V1_36).add, "UnschedulablePodAdd"),
        (NODE_ADD, "NodeAdd"),
        (FORCE_ACTIVATE, "ForceActivate"),
        (UNSCHEDULABLE_TIMEOUT, "UnschedulableTimeout"),
    ],
)
def test_labels(event: ClusterEvent, label: str) -> None:
    assert event.label == label
