"""Defaults are those of an API server, and objects that have them stay as they are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bayplan.api.decode import decode_object
from bayplan.api.defaults import with_defaults
from bayplan.api.meta import Object, Quantity, ResourceList
from bayplan.api.node import Namespace, Node, NodeStatus
from bayplan.api.pod import (
    Container,
    ContainerPort,
    Pod,
    PodSpec,
    RBDVolumeSource,
    ResourceRequirements,
    Volume,
)
from bayplan.api.pod_defaults import round_up
from bayplan.api.requests import fit_requests
from bayplan.api.storage import CSIDriver, PersistentVolume, PersistentVolumeClaim, StorageClass
from bayplan.api.workloads import PriorityClass
from bayplan.errors import DecodeError
from bayplan.testing.builders import make_container, make_namespace, make_node, make_pod, make_pv, make_pvc

# Objects as a server hands them out, one a line, cut to the fields that are read here.
FROM_A_SERVER = """
{"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": {"kubernetes.io/metadata.name": "team-a", "team": "a"}, "name": "team-a", "resourceVersion": "1", "uid": "1"}, "status": {"phase": "Active"}}
{"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"kubernetes.io/hostname": "n2"}, "name": "n2", "resourceVersion": "1", "uid": "2"}, "spec": {"taints": [{"effect": "PreferNoSchedule", "key": "dedicated"}]}, "status": {"allocatable": {"cpu": "64", "memory": "2Gi", "pods": "110"}, "capacity": {"cpu": "64", "memory": "2Gi", "pods": "110"}}}
{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "svc-batch", "namespace": "default", "resourceVersion": "1", "uid": "3"}, "spec": {"selector": {"app": "batch"}, "type": "ClusterIP"}}
{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs-cache", "namespace": "default", "resourceVersion": "1", "uid": "4"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "cache"}}}}
{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["z0", "z1"]}]}], "metadata": {"name": "late", "resourceVersion": "1", "uid": "5"}, "provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
{"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.com", "resourceVersion": "1", "uid": "6"}, "spec": {"storageCapacity": false}}
{"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n11", "resourceVersion": "1", "uid": "7"}, "spec": {"drivers": [{"allocatable": {"count": 30}, "name": "csi.example.com", "nodeID": "n11"}]}}
{"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "capacity": "50Gi", "metadata": {"name": "cap-z0", "namespace": "default", "resourceVersion": "1", "uid": "8"}, "nodeTopology": {"matchLabels": {"zone": "z0"}}, "storageClassName": "late"}
{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}, "name": "claim11", "namespace": "team-b", "resourceVersion": "1", "uid": "9"}, "spec": {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "20Gi"}}, "storageClassName": "immediate", "volumeMode": "Filesystem", "volumeName": "pv11"}, "status": {"phase": "Bound"}}
{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv11", "resourceVersion": "1", "uid": "10"}, "spec": {"accessModes": ["ReadWriteOncePod"], "capacity": {"storage": "100Gi"}, "csi": {"driver": "csi.example.com", "volumeHandle": "h12"}, "storageClassName": "immediate", "volumeMode": "Filesystem"}, "status": {"phase": "Bound"}}
{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb0", "namespace": "default", "resourceVersion": "1", "uid": "11"}, "spec": {"selector": {"matchLabels": {"app": "batch"}}}, "status": {"disruptionsAllowed": 2}}
{"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "db", "tier": "gold"}, "name": "limits", "namespace": "prod", "resourceVersion": "1", "uid": "12"}, "spec": {"containers": [{"name": "c0", "resources": {"limits": {"example.com/foo": "4"}, "requests": {"cpu": "2", "example.com/foo": "4"}}}], "priority": 0, "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Pending"}}
{"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "log"}, "name": "ports", "namespace": "default", "resourceVersion": "1", "uid": "13"}, "spec": {"containers": [{"name": "c0", "ports": [{"containerPort": 80, "hostPort": 443, "protocol": "TCP"}], "resources": {}}], "priority": 0, "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Pending"}}
{"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "web", "rev": "1"}, "name": "spread", "namespace": "team-b", "resourceVersion": "1", "uid": "14"}, "spec": {"containers": [{"name": "c0"}], "priority": 0, "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30, "topologySpreadConstraints": [{"labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "rev", "operator": "In", "values": ["1"]}]}, "matchLabelKeys": ["rev"], "maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]}, "status": {"phase": "Pending"}}
{"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "batch"}, "name": "whole", "namespace": "default", "resourceVersion": "1", "uid": "15"}, "spec": {"containers": [{"name": "c0", "resources": {"requests": {"ephemeral-storage": "10Gi", "memory": "512Mi"}}}], "initContainers": [{"name": "i0", "resources": {"limits": {"hugepages-2Mi": "64Mi"}, "requests": {"cpu": "1500m", "hugepages-2Mi": "64Mi", "memory": "2Gi"}}, "restartPolicy": "Always"}], "nodeName": "n6", "priority": 0, "resources": {"limits": {"hugepages-2Mi": "64Mi"}, "requests": {"cpu": "20", "hugepages-2Mi": "64Mi", "memory": "2560Mi"}}, "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running", "startTime": "2026-01-11T07:00:00Z"}}
"""  # noqa: E501


def objects_from_a_server() -> list[Object]:
    decoded = [decode_object(json.loads(line)) for line in FROM_A_SERVER.strip().splitlines()]
    return [obj for obj in decoded if obj is not None]


def defaulted(obj: Object) -> Object:
    (result,) = with_defaults([obj])
    return result


def container_of(pod: Pod) -> Container:
    result = defaulted(pod)
    assert isinstance(result, Pod)
    return result.spec.containers[0]


@pytest.mark.parametrize("obj", objects_from_a_server(), ids=lambda obj: f"{type(obj).__name__} {obj.name}")
def test_what_a_server_handed_out_stays_as_it_is(obj: Object) -> None:
    assert defaulted(obj) is obj


@pytest.mark.parametrize(
    "obj",
    [
        Pod(
            spec=PodSpec(
                host_network=True,
                containers=(
                    Container(
                        resources=ResourceRequirements(limits={"cpu": "100u", "hugepages-2Mi": "2Mi"}),
                        ports=(ContainerPort(container_port=80),),
                    ),
                ),
                resources=ResourceRequirements(limits={"memory": "1Gi"}),
                overhead={"cpu": "1n"},
            )
        ),
        Node(status=NodeStatus(capacity={"cpu": "0.0001"})),
        Namespace(),
        PersistentVolumeClaim(),
        PersistentVolume(),
        StorageClass(),
        CSIDriver(),
        PriorityClass(),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_doing_it_twice_changes_nothing(obj: Object) -> None:
    once = defaulted(obj)
    assert once != obj
    assert defaulted(once) is once


def test_a_pod_has_a_scheduler_and_a_grace_period() -> None:
    pod = defaulted(Pod())
    assert isinstance(pod, Pod)
    assert (pod.spec.scheduler_name, pod.spec.termination_grace_period_seconds) == ("default-scheduler", 30)


def test_fields_that_are_set_stay() -> None:
    pod = make_pod(scheduler_name="mine", termination_grace_period_seconds=0)
    assert defaulted(pod) is pod


@pytest.mark.parametrize(
    ("requests", "limits", "filled"),
    [
        pytest.param({}, {"cpu": "1"}, {"cpu": "1"}, id="what is limited is requested"),
        pytest.param({"cpu": "0"}, {"cpu": "1"}, {"cpu": "0"}, id="unless something else is"),
        pytest.param({"cpu": "1"}, {}, {"cpu": "1"}, id="requests do not become limits"),
        pytest.param({"cpu": "100u"}, {}, {"cpu": "1m"}, id="a trace of cpu is rounded up to a thousandth"),
        pytest.param({"memory": "0.1"}, {}, {"memory": "0.1"}, id="thousandths are kept"),
        pytest.param({}, {"memory": 0.0001}, {"memory": "1m"}, id="limits are rounded too"),
    ],
)
def test_container_requests(
    requests: ResourceList, limits: ResourceList, filled: dict[str, Quantity]
) -> None:
    assert container_of(make_pod(requests=requests, limits=limits)).resources.requests == filled


@pytest.mark.parametrize(
    ("host_network", "host_port", "expected"),
    [
        pytest.param(True, 0, 80, id="in the node's network the port is the node's"),
        pytest.param(True, 81, 81, id="unless it is set"),
        pytest.param(False, 0, 0, id="elsewhere it is not"),
    ],
)
def test_host_ports(host_network: bool, host_port: int, expected: int) -> None:
    port = ContainerPort(container_port=80, host_port=host_port)
    (result,) = container_of(make_pod(host_ports=[port], host_network=host_network)).ports
    assert (result.host_port, result.protocol) == (expected, "TCP")


@pytest.mark.parametrize(
    ("pod", "cpu", "memory"),
    [
        pytest.param(
            make_pod(resources=ResourceRequirements(limits={"cpu": "2"})),
            2000,
            None,
            id="the limit, if there is no request",
        ),
        pytest.param(
            make_pod(cpu="1", memory="1Ki", resources=ResourceRequirements(limits={"cpu": "2"})),
            1000,
            1024,
            id="what the containers request",
        ),
        pytest.param(
            make_pod(cpu="1", resources=ResourceRequirements(requests={"cpu": "3"}, limits={"cpu": "4"})),
            3000,
            None,
            id="what the pod requests",
        ),
        pytest.param(
            make_pod(
                containers=[make_container(cpu="100u"), make_container(cpu="1")],
                resources=ResourceRequirements(limits={"cpu": "2"}),
            ),
            1001,
            None,
            id="the containers' amounts, rounded",
        ),
    ],
)
def test_requests_of_a_pod_with_limits_of_its_own(pod: Pod, cpu: int, memory: int | None) -> None:
    result = defaulted(pod)
    assert isinstance(result, Pod)
    assert result.spec.resources is not None
    without_containers = make_pod(resources=result.spec.resources)
    expected = {"cpu": cpu} if memory is None else {"cpu": cpu, "memory": memory}
    assert fit_requests(without_containers) == expected


def test_huge_pages_of_the_pod_follow_from_its_containers() -> None:
    pages = {"hugepages-2Mi": "64Mi"}
    pod = make_pod(
        containers=[
            make_container(requests=pages, limits=pages),
            make_container(requests=pages, limits=pages),
        ],
        resources=ResourceRequirements(requests={"cpu": "1"}),
    )
    result = defaulted(pod)
    assert isinstance(result, Pod)
    assert result.spec.resources is not None
    assert fit_requests(make_pod(resources=result.spec.resources)) == {
        "cpu": 1000,
        "hugepages-2Mi": 128 * 2**20,
    }


def test_an_rbd_volume_is_in_the_pool_rbd() -> None:
    pod = make_pod(volumes=[Volume(name="v", rbd=RBDVolumeSource(image="i")), Volume(name="w")])
    result = defaulted(pod)
    assert isinstance(result, Pod)
    assert result.spec.volumes[0].rbd == RBDVolumeSource(image="i", pool="rbd")


def test_a_node_without_allocatable_offers_its_capacity() -> None:
    node = defaulted(Node(status=NodeStatus(capacity={"cpu": "4", "memory": "1.0001"})))
    assert isinstance(node, Node)
    assert node.status.allocatable == {"cpu": "4", "memory": "1001m"}


def test_a_node_gets_no_labels_or_taints() -> None:
    """Those are the kubelet's and the controllers' work."""
    node = make_node("n", labels={})
    assert defaulted(node) is node


def test_a_namespace_carries_its_name() -> None:
    namespace = make_namespace("a", labels={"x": "y", "kubernetes.io/metadata.name": "b"})
    assert defaulted(namespace).labels == {"x": "y", "kubernetes.io/metadata.name": "a"}


@pytest.mark.parametrize(
    ("obj", "filled"),
    [
        pytest.param(make_pvc("c", volume_mode=None), make_pvc("c"), id="a claim's mode"),
        pytest.param(make_pvc("c", storage="0.0001"), make_pvc("c", storage="1m"), id="a claim's size"),
        pytest.param(make_pv("v", volume_mode=None), make_pv("v"), id="a volume's mode"),
        pytest.param(
            make_pv("v", volume_mode="Block"), make_pv("v", volume_mode="Block"), id="or what is set"
        ),
    ],
)
def test_volumes(obj: Object, filled: Object) -> None:
    assert defaulted(obj) == filled


def test_phases_binding_mode_and_capacity_checks() -> None:
    claim, volume, storage_class, driver, priority = with_defaults(
        [PersistentVolumeClaim(), PersistentVolume(), StorageClass(), CSIDriver(), PriorityClass()]
    )
    assert isinstance(claim, PersistentVolumeClaim)
    assert isinstance(volume, PersistentVolume)
    assert isinstance(storage_class, StorageClass)
    assert isinstance(driver, CSIDriver)
    assert isinstance(priority, PriorityClass)
    assert (claim.status.phase, volume.status.phase) == ("Pending", "Pending")
    assert storage_class.volume_binding_mode == "Immediate"
    assert driver.spec.storage_capacity is False
    assert priority.preemption_policy == "PreemptLowerPriority"


def test_requests_that_are_no_map_are_left_to_the_reader() -> None:
    """Which names the field; defaults must not fail before."""
    resources: dict[str, Any] = {"requests": "1"}
    round_up(resources, "requests")
    assert resources == {"requests": "1"}


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        (
            "StatefulSet",
            {"template": {"spec": {"containers": [{"name": "c", "resources": 1.5}]}}},
            "spec.template.spec.containers[0].resources: expected a mapping, got a number",
        ),
        ("Deployment", {"template": {"spec": {"containers": ["c"]}}}, "spec.template.spec.containers[0]: "),
        ("DaemonSet", {"updateStrategy": {"rollingUpdate": 7}}, "a field has the wrong type"),
        ("Deployment", {"template": 7}, "a field has the wrong type"),
    ],
)
def test_malformed_parts_of_workloads_are_named(kind: str, spec: dict[str, Any], problem: str) -> None:
    """Records have templates and strategies as they are written, so reading them has not checked them."""
    meta = {"name": "web", "namespace": "default"}
    item = decode_object({"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec})
    assert item is not None
    with pytest.raises(DecodeError, match=re.escape(f"{kind} default/web: {problem}")):
        defaulted(item)
