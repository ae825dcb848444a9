"""ResourceQuotas: what is charged to them, and what they reject."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server import kinds
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
)
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError


def with_quota(hard: Content, **spec: Any) -> ObjectAPI:
    """A namespace with a quota."""
    api = open_api(clock=lambda: 1.8e9, seed=1)
    api.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}, "default")
    return api


def used(api: ObjectAPI) -> Content:
    found: Content = api.get(RESOURCE_QUOTAS, "q", "default")["status"]["used"]
    return found


def pod(name: str, *, requests: Content | None = None, limits: Content | None = None, **spec: Any) -> Content:
    resources: Content = {"requests": requests or {}, "limits": limits or {}}
    containers = [{"name": "c", "image": "web", "resources": resources}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def test_pods_are_charged_until_the_quota_is_exhausted() -> None:
    api = with_quota({"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"})
    for name in ("a", "b"):
        api.create(PODS, pod(name, requests={"cpu": "300m"}, limits={"memory": "256Mi"}), "default")
    assert used(api) == {"pods": "2", "requests.cpu": "600m", "limits.memory": "512Mi"}
    message = 'pods "c" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
    with pytest.raises(StatusError, match=re.escape(message)) as rejected:
        api.create(PODS, pod("c", requests={"cpu": "1m"}, limits={"memory": "1Mi"}), "default")
    assert rejected.value.code == 403
    assert used(api)["pods"] == "2"


def test_all_that_is_exceeded_is_named() -> None:
    api = with_quota({"cpu": "1", "memory": "1Gi"})
    message = (
        "exceeded quota: q, requested: cpu=2,memory=2Gi, used: cpu=0,memory=0, limited: cpu=1,memory=1Gi"
    )
    with pytest.raises(StatusError, match=re.escape(message)):
        api.create(PODS, pod("a", requests={"cpu": "2", "memory": "2Gi"}), "default")


def test_where_cpu_is_limited_containers_have_to_set_it() -> None:
    api = with_quota({"requests.cpu": "1", "limits.cpu": "2"})
    message = "failed quota: q: must specify limits.cpu for: c; requests.cpu for: c"
    with pytest.raises(StatusError, match=re.escape(message)):
        api.create(PODS, pod("a"), "default")


def test_what_is_rejected_otherwise_or_only_tried_is_not_charged() -> None:
    api = with_quota({"pods": "5"})
    api.create(PODS, pod("a"), "default", dry_run=True)
    api.create(PODS, pod("a"), "default")
    with pytest.raises(StatusError, match="already exists"):
        api.create(PODS, pod("a"), "default")
    assert used(api) == {"pods": "1"}


def test_what_was_there_before_the_quota_counts() -> None:
    api = open_api(clock=lambda: 1.8e9, seed=1)
    api.create(PODS, pod("a"), "default")
    api.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}, "default")
    with pytest.raises(StatusError, match="used: pods=1"):
        api.create(PODS, pod("b"), "default")


@pytest.mark.parametrize(
    ("spec", "inside", "outside"),
    [
        pytest.param({"scopes": ["BestEffort"]}, {}, {"requests": {"cpu": "1"}}, id="best effort"),
        pytest.param({"scopes": ["NotBestEffort"]}, {"requests": {"cpu": "1"}}, {}, id="not best effort"),
        pytest.param({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, {}, id="terminating"),
        pytest.param({"scopes": ["NotTerminating"]}, {}, {"activeDeadlineSeconds": 5}, id="not terminating"),
        pytest.param(
            {
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
                    ]
                }
            },
            {"priorityClassName": "system-node-critical"},
            {"priorityClassName": "system-cluster-critical"},
            id="a priority class",
        ),
        pytest.param(
            {"scopes": ["CrossNamespacePodAffinity"]},
            {
                "affinity": {
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "labelSelector": {},
                                "topologyKey": "kubernetes.io/hostname",
                                "namespaceSelector": {},
                            }
                        ]
                    }
                }
            },
            {},
            id="affinity across namespaces",
        ),
    ],
)
def test_scopes(spec: Content, inside: Content, outside: Content) -> None:
    api = with_quota({"pods": "1"}, **spec)
    api.create(PODS, pod("a", **outside), "default")
    api.create(PODS, pod("b", **inside), "default")
    assert used(api) == {"pods": "1"}
    api.create(PODS, pod("c", **outside), "default")
    with pytest.raises(StatusError, match="exceeded quota"):
        api.create(PODS, pod("d", **inside), "default")


def claim(name: str, storage: str, storage_class: str) -> Content:
    resources = {"requests": {"storage": storage}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": storage_class}
    return {"metadata": {"name": name}, "spec": spec}


def test_storage_is_counted_by_class() -> None:
    gold = "gold.storageclass.storage.k8s.io/"
    api = with_quota(
        {"requests.storage": "10Gi", f"{gold}requests.storage": "5Gi", f"{gold}persistentvolumeclaims": "2"}
    )
    api.create(PERSISTENT_VOLUME_CLAIMS, claim("a", "3Gi", "gold"), "default")
    api.create(PERSISTENT_VOLUME_CLAIMS, claim("b", "4Gi", "iron"), "default")
    assert used(api) == {
        "requests.storage": "7Gi",
        f"{gold}requests.storage": "3Gi",
        f"{gold}persistentvolumeclaims": "1",
    }
    with pytest.raises(StatusError, match=re.escape(f"requested: {gold}requests.storage=3Gi")):
        api.create(PERSISTENT_VOLUME_CLAIMS, claim("c", "3Gi", "gold"), "default")


def service(kind: str, ports: int) -> Content:
    listed = [{"name": f"p{number}", "port": 80 + number} for number in range(ports)]
    return {"metadata": {"name": "s"}, "spec": {"type": kind, "ports": listed}}


def test_a_service_is_charged_for_what_it_becomes() -> None:
    api = with_quota({"services": "5", "services.nodeports": "2", "services.loadbalancers": "0"})
    api.create(SERVICES, service("ClusterIP", 2), "default")
    assert used(api) == {"services": "1", "services.nodeports": "0", "services.loadbalancers": "0"}
    api.patch(SERVICES, "s", "default", {"spec": {"type": "NodePort"}})
    assert used(api)["services.nodeports"] == "2"
    with pytest.raises(StatusError, match=r"services\.loadbalancers=1"):
        api.patch(SERVICES, "s", "default", {"spec": {"type": "LoadBalancer"}})


@pytest.mark.parametrize(
    ("hard", "resource"),
    [
        ("configmaps", CONFIG_MAPS),
        ("count/configmaps", CONFIG_MAPS),
        ("count/leases.coordination.k8s.io", kinds.LEASES),
        ("secrets", kinds.SECRETS),
    ],
)
def test_objects_of_any_kind_can_be_counted(hard: str, resource: kinds.Resource) -> None:
    api = with_quota({hard: "1"})
    api.create(resource, {"metadata": {"name": "a"}}, "default")
    with pytest.raises(StatusError, match="exceeded quota"):
        api.create(resource, {"metadata": {"name": "b"}}, "default")
    api.create(resource, {"metadata": {"name": "b"}}, "kube-system")


def test_devices_count_as_requests_and_overhead_counts() -> None:
    api = with_quota({"requests.example.com/gpu": "2", "requests.cpu": "1"})
    api.create(
        kinds.RUNTIME_CLASSES,
        {"metadata": {"name": "box"}, "handler": "box", "overhead": {"podFixed": {"cpu": "100m"}}},
    )
    gpu = {"example.com/gpu": "1"}
    api.create(PODS, pod("a", requests={"cpu": "1m", **gpu}, limits=gpu, runtimeClassName="box"), "default")
    assert used(api) == {"requests.example.com/gpu": "1", "requests.cpu": "101m"}


def test_overhead_may_be_a_device() -> None:
    """Kubernetes' own tests have a class like that."""
    api = open_api(clock=lambda: 1.8e9, seed=1)
    overhead = {"podFixed": {"example.com/beardsecond": "250"}}
    box = {"metadata": {"name": "box"}, "handler": "box", "overhead": overhead}
    api.create(kinds.RUNTIME_CLASSES, box)
    created = api.create(PODS, pod("a", runtimeClassName="box"), "default")
    assert created["spec"]["overhead"] == overhead["podFixed"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"runtimeClassName": "nope"}, 'pod rejected: RuntimeClass "nope" not found'),
        (
            {"overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            {"runtimeClassName": "box", "overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"runtimeClassName": "box", "nodeSelector": {"box": "no"}},
            "conflict: runtimeClass.scheduling.nodeSelector[box] = yes; pod.spec.nodeSelector[box] = no",
        ),
    ],
)
def test_a_runtime_class_has_to_agree_with_the_pod(given: Content, message: str) -> None:
    api = open_api(clock=lambda: 1.8e9, seed=1)
    toleration = {"key": "box", "operator": "Exists"}
    box = {
        "metadata": {"name": "box"},
        "handler": "box",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"box": "yes"}, "tolerations": [toleration]},
    }
    api.create(kinds.RUNTIME_CLASSES, box)
    with pytest.raises(StatusError, match=re.escape(message)):
        api.create(PODS, pod("a", **given), "default")
    spec = api.create(PODS, pod("b", runtimeClassName="box"), "default")["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "250m"}, {"box": "yes"})
    assert toleration in spec["tolerations"]


def test_devices_of_claims_are_counted_by_class() -> None:
    devices = "{}.deviceclass.resource.k8s.io/devices"
    gpus, nics = devices.format("gpu"), devices.format("nic")
    api = with_quota({gpus: "40", nics: "3", "count/resourceclaims.resource.k8s.io": "9"})

    def claim(name: str, *requests: Content) -> None:
        spec = {"devices": {"requests": [{"name": f"r{i}", **each} for i, each in enumerate(requests)]}}
        api.create(kinds.RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": spec}, "default")

    claim("two", {"exactly": {"deviceClassName": "gpu"}}, {"exactly": {"deviceClassName": "gpu"}})
    alternatives = [
        {"name": "a", "deviceClassName": "gpu", "count": 4},
        {"name": "b", "deviceClassName": "gpu"},
        {"name": "c", "deviceClassName": "nic", "count": 2},
    ]
    claim("largest", {"firstAvailable": alternatives})
    assert used(api) == {gpus: "6", nics: "2", "count/resourceclaims.resource.k8s.io": "2"}
    claim("all", {"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}})
    assert used(api)[gpus] == "38"
    with pytest.raises(
        StatusError, match=re.escape(f"exceeded quota: q, requested: {nics}=2, used: {nics}=2")
    ):
        claim("more", {"exactly": {"deviceClassName": "nic", "count": 2}})
