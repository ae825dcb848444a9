"""Builders make objects that could have come from a server."""

from __future__ import annotations

import pytest

from bayplan.api.check import check_object
from bayplan.api.defaults import with_defaults
from bayplan.api.meta import Object
from bayplan.api.node import Taint
from bayplan.api.pod import ContainerPort, Pod, Toleration
from bayplan.api.requests import fit_requests
from bayplan.testing.builders import (
    make_container,
    make_csi_capacity,
    make_csi_driver,
    make_csi_node,
    make_namespace,
    make_node,
    make_owner,
    make_pdb,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_priority_class,
    make_pv,
    make_pvc,
    make_replica_set,
    make_service,
    make_spread,
    make_storage_class,
    make_taint,
    make_toleration,
    make_volume_attachment,
)

ONE_OF_EACH: list[Object] = [
    make_pod("a", claims=["c"], host_ports=[80], gates=["wait"], tolerations=[make_toleration()]),
    make_node("a", taints=["x:NoSchedule"], images={"i": 5}, ephemeral_storage="1Gi"),
    make_namespace("a"),
    make_pvc("a", volume="v"),
    make_pv("a", on_nodes_with={"zone": ["z"]}, driver="d"),
    make_storage_class("a", allowed=[{"zone": ["z"]}]),
    make_csi_node("a", {"d": 3, "e": None}),
    make_csi_driver("a"),
    make_csi_capacity("a", "s"),
    make_volume_attachment("a", driver="d", node="n", volume="v"),
    make_pdb("a", {"x": "y"}),
    make_priority_class("a", 3),
    make_service("a", {"x": "y"}),
    make_replica_set("a", {"x": "y"}),
]


@pytest.mark.parametrize("obj", ONE_OF_EACH, ids=lambda obj: type(obj).__name__)
def test_objects_are_sound(obj: Object) -> None:
    """They pass the checks, carry a uid, and defaults find only trifles to add."""
    check_object(obj)
    (defaulted,) = with_defaults([obj])
    assert (defaulted.key, defaulted.uid) == (obj.key, obj.uid)
    assert obj.uid


def test_uids_differ_between_objects() -> None:
    assert len({obj.uid for obj in ONE_OF_EACH}) == len(ONE_OF_EACH)
    assert make_pod("a").uid == make_pod("a").uid
    assert make_pod("a").uid != make_pod("a", namespace="b").uid
    assert make_pod("a", uid="7").uid == "7"


def test_a_plain_pod_requests_nothing() -> None:
    pod = make_pod()
    assert fit_requests(pod) == {}
    assert pod.key == "default/p"
    assert pod.spec.scheduler_name == "default-scheduler"


def test_a_pod_with_a_node_runs() -> None:
    assert (make_pod(node="n").status.phase, make_pod().status.phase) == ("Running", "Pending")


def test_cpu_and_memory_join_the_requests() -> None:
    pod = make_pod(cpu="1", memory="1Ki", requests={"example.com/gpu": 2})
    assert fit_requests(pod) == {"cpu": 1000, "memory": 1024, "example.com/gpu": 2}


def test_containers_replace_the_one() -> None:
    pod = make_pod(cpu="9", containers=[make_container("x", cpu="1"), make_container("y", cpu="2")])
    assert fit_requests(pod) == {"cpu": 3000}


def test_ports_may_be_numbers() -> None:
    port = ContainerPort(container_port=80, host_port=80, protocol="TCP")
    assert make_pod(host_ports=[80]).spec.containers[0].ports == (port,)
    assert make_pod(host_ports=[port]).spec.containers[0].ports == (port,)


def test_claims_become_volumes() -> None:
    (volume,) = make_pod(claims=["data"]).spec.volumes
    assert volume.persistent_volume_claim is not None
    assert volume.persistent_volume_claim.claim_name == "data"


def test_resources_of_a_node() -> None:
    node = make_node("n", cpu=8, resources={"example.com/gpu": 2}, ephemeral_storage="1Gi")
    assert node.status.allocatable == {
        "cpu": 8,
        "memory": "32Gi",
        "pods": 110,
        "example.com/gpu": 2,
        "ephemeral-storage": "1Gi",
    }
    assert node.labels == {}


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        pytest.param("a=b:NoSchedule", Taint(key="a", value="b", effect="NoSchedule"), id="with a value"),
        pytest.param("a:NoExecute", Taint(key="a", effect="NoExecute"), id="without"),
        pytest.param(
            "a=b:c:NoSchedule", Taint(key="a", value="b:c", effect="NoSchedule"), id="a colon inside"
        ),
    ],
)
def test_taints_may_be_text(text: str, taint: Taint) -> None:
    assert make_taint(text) == taint
    assert make_node("n", taints=[text, taint]).spec.taints == (taint, taint)


def test_tolerations() -> None:
    assert make_toleration("a") == Toleration(key="a", operator="Exists")
    assert make_toleration("a", "", "NoExecute") == Toleration(key="a", operator="Equal", effect="NoExecute")


def test_a_bound_claim_and_volume_point_at_each_other() -> None:
    claim = make_pvc("c", volume="v")
    volume = make_pv("v", claim=claim)
    assert claim.annotations == {"pv.kubernetes.io/bind-completed": "yes"}
    assert volume.spec.claim_ref is not None
    assert (volume.spec.claim_ref.name, volume.spec.claim_ref.uid) == (claim.name, claim.uid)
    assert (claim.status.phase, volume.status.phase) == ("Bound", "Bound")


def test_terms_without_labels_have_no_selector() -> None:
    """Absent matches nothing, empty everything: the difference must survive."""
    assert make_pod_term("zone").label_selector is None
    assert make_pod_term("zone", {}).label_selector is not None
    assert make_spread("zone").label_selector is None


def test_an_affinity_without_terms_is_absent() -> None:
    affinity = make_pod_affinity(anti_required=[make_pod_term("zone", {})])
    assert affinity.pod_affinity is None
    assert affinity.pod_anti_affinity is not None


def test_owners_are_controllers() -> None:
    pod: Pod = make_pod(owner=make_owner("ReplicaSet", "rs"))
    owner = pod.metadata.controller()
    assert owner is not None
    assert (owner.kind, owner.name, owner.api_version) == ("ReplicaSet", "rs", "apps/v1")
