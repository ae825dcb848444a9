"""A dump without a kind: a warning names it, and no other answer changes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.answers.sources.warnings import selects_namespaces
from bayplan.answers.whatif import Cluster, Outcome
from bayplan.api.devices import ResourceClaim
from bayplan.api.meta import LabelSelector, Object
from bayplan.api.node import Namespace
from bayplan.api.pod import Pod, PodResourceClaim
from bayplan.api.storage import PersistentVolumeClaim, StorageClass
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.testing.builders import (
    make_device_class,
    make_device_request,
    make_namespace,
    make_node,
    make_pdb,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_pvc,
    make_resource_claim,
    make_storage_class,
)
from tests.answers.whatif.test_cluster import owned

HOSTNAME = "kubernetes.io/hostname"


def quiet() -> Pod:
    """It has anti-affinity to noisy pods of the namespaces of a team."""
    term = replace(
        make_pod_term(HOSTNAME, {"app": "noisy"}),
        namespace_selector=LabelSelector(match_labels={"team": "a"}),
    )
    pod = make_pod("quiet", cpu="100m")
    return replace(pod, spec=replace(pod.spec, affinity=make_pod_affinity(anti_required=[term])))


def objects() -> list[Object]:
    other = make_namespace("other", labels={"team": "a"})
    noisy = (make_pod(f"noisy-{i}", namespace="other", node=f"n{i}", labels={"app": "noisy"}) for i in (0, 1))
    return [
        *(make_node(f"n{i}", cpu="4", memory="8Gi", labels={HOSTNAME: f"n{i}"}) for i in range(3)),
        other,
        *noisy,
        make_storage_class("disk"),
        make_pvc("data", storage_class="disk"),
        make_pdb("web", {"app": "web"}),
        owned(make_pod("web-0", cpu="1", node="n0", labels={"app": "web"})),
        make_pod("plain", cpu="100m"),
        quiet(),
        make_pod("stores", cpu="100m", claims=["data"]),
    ]


CASES = [
    pytest.param(PersistentVolumeClaim, "stores", "PersistentVolumeClaim default/data", id="claims"),
    pytest.param(StorageClass, "stores", "StorageClass disk", id="classes"),
    pytest.param(Namespace, "quiet", "namespaces", id="namespaces"),
]


@pytest.mark.parametrize(("kind", "affected", "named"), CASES)
def test_whatif_and_capacity_name_what_is_missing(kind: type[Object], affected: str, named: str) -> None:
    complete = Cluster.from_objects(objects())
    incomplete = Cluster.from_objects(item for item in objects() if type(item) is not kind)
    expected, found = complete.branch().schedule(), incomplete.branch().schedule()
    assert expected.fits
    assert named not in [one.object for one in expected.warnings]
    assert named in [one.object for one in found.warnings if one.pod == f"default/{affected}"]
    others = [one.pod for one in expected if one.pod != f"default/{affected}"]
    assert [found[pod].outcome for pod in others] == [Outcome.SCHEDULED] * len(others)
    incomplete = Cluster.from_objects(item for item in objects() if type(item) is not kind)
    complete = Cluster.from_objects(objects())
    assert named in [one.object for one in incomplete.capacity(complete.pod(affected), at_most=1).warnings]
    plain = complete.pod("plain")
    assert incomplete.capacity(plain).by_node == complete.capacity(plain).by_node


def test_terms_of_running_pods_need_namespaces_too() -> None:
    """Without them, a pod could be scheduled beside one with anti-affinity to it."""
    running = replace(quiet(), spec=replace(quiet().spec, node_name="n2"))
    nodes = [make_node(f"n{i}", labels={HOSTNAME: f"n{i}"}) for i in (2, 3)]
    pod = make_pod("new", namespace="other", labels={"app": "noisy"}, node_selector={HOSTNAME: "n2"})
    complete = Cluster.from_objects([*nodes, running, make_namespace("other", labels={"team": "a"})])
    assert not complete.can_schedule(pod)
    answer = Cluster.from_objects([*nodes, running]).can_schedule(pod)
    assert answer
    assert "namespaces" in [one.object for one in answer.warnings]


def test_an_answer_without_namespaces_does_not_look_at_every_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[Pod] = []

    def look(pod: Pod) -> bool:
        examined.append(pod)
        return selects_namespaces(pod)

    monkeypatch.setattr("bayplan.answers.whatif.scheduling.selects_namespaces", look)
    running = [make_pod(f"running-{i}", node="n0") for i in range(20)]
    assert Cluster.from_objects([make_node("n0"), *running]).can_schedule(make_pod("new"))
    assert {pod.name for pod in examined} == {"new"}


@pytest.mark.parametrize("has_budgets", [True, False])
def test_a_drain_needs_budgets(has_budgets: bool) -> None:
    kept = (item for item in objects() if has_budgets or not isinstance(item, PodDisruptionBudget))
    cluster = Cluster.from_objects(kept)
    cluster.drain("n0")
    found = [warning.object for warning in cluster.drain_warnings()]
    assert found == ["Pod other/noisy-0", "default/web"] if has_budgets else "poddisruptionbudgets" in found
    assert cluster.schedule()["web-0"].was_on == "n0"


@pytest.mark.parametrize("kind", ["ResourceClaim", "DeviceClass"])
def test_devices_need_claims_and_classes(kind: str) -> None:
    claim: ResourceClaim = make_resource_claim("gpu", make_device_request("r", "gpus"))
    reference = PodResourceClaim(name="gpu", resource_claim_name="gpu")
    pod = make_pod("train", cpu="1", resource_claims=(reference,))
    items: list[Object] = [
        make_node("n0"),
        claim,
        make_device_class("gpus"),
        pod,
        make_pod("plain", cpu="1"),
    ]
    result = Cluster.from_objects(item for item in items if type(item).__name__ != kind).schedule()
    named = {"ResourceClaim": "ResourceClaim default/gpu", "DeviceClass": "DeviceClass gpus"}[kind]
    assert named in [one.object for one in result.warnings if one.pod == "default/train"]
    assert result["plain"].node == "n0"
