"""The properties of all pods of one template."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.pod import ContainerStatus, Pod, PodStatus, ResourceRequirements
from bayplan.plugin import Cluster
from bayplan.state import pods as module
from bayplan.state.pods import pod_signature, same_signature
from bayplan.testing.builders import make_owner, make_pod

REPORT = ContainerStatus(name="c", resources=ResourceRequirements(requests={"cpu": "2"}))


def test_pods_of_one_template_share_their_facts() -> None:
    pod_infos = Cluster().pod_infos
    first = pod_infos.of(make_pod("a", cpu=1, labels={"app": "x"}))
    assert pod_infos.of(make_pod("b", cpu=1, labels={"app": "x"}, node="n")) is first
    assert pod_infos.of(make_pod("c", cpu=2, labels={"app": "x"})) is not first


@pytest.mark.parametrize(
    ("after", "is_same"),
    [
        pytest.param(make_pod("p", cpu=1, node="n"), True, id="it has been bound"),
        pytest.param(make_pod("p", cpu=1, annotations={"a": "b"}), True, id="its annotations"),
        pytest.param(
            replace(make_pod("p", cpu=1), status=PodStatus(phase="Running", nominated_node_name="n")),
            True,
            id="its phase and nomination",
        ),
        pytest.param(make_pod("p", cpu=2), False, id="what it requests"),
        pytest.param(make_pod("p", cpu=1, labels={"a": "b"}), False, id="its labels"),
        pytest.param(make_pod("p", cpu=1, owner=make_owner("ReplicaSet", "rs")), False, id="its owner"),
        pytest.param(make_pod("p", cpu=1, claims=["data"]), False, id="its volumes"),
        pytest.param(
            replace(make_pod("p", cpu=1), status=PodStatus(container_statuses=(REPORT,))),
            False,
            id="what its kubelet reports",
        ),
        pytest.param(
            replace(make_pod("p", cpu=1), status=PodStatus(resources=REPORT.resources)),
            False,
            id="what its kubelet reports of the whole pod",
        ),
    ],
)
def test_versions_of_a_pod_that_are_seen_to_be_identical_have_one_template(after: Pod, is_same: bool) -> None:
    before = make_pod("p", cpu=1)
    assert (same_signature(before, after), same_signature(after, before)) == (is_same, is_same)
    assert (pod_signature(before) == pod_signature(after)) is is_same


def test_pod_info() -> None:
    info = Cluster().pod_infos.of(make_pod(cpu=1, host_ports=[80], claims=["data"], namespace="other"))
    assert info.requests["cpu"] == 1000
    assert (info.nonzero_cpu_milli, info.nonzero_memory_bytes) == (1000, 200 * 2**20)
    assert [port.port for port in info.host_ports] == [80]
    assert info.claims == ("other/data",)
    assert (info.terms.carried, info.terms.id) == ((), 0)


def test_templates_that_were_not_used_for_long_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that are assigned to a node keep their info, and a template that comes back gets the same ids."""
    monkeypatch.setattr(module, "MAX_SIGNATURES", 4)
    cluster = Cluster()
    pod = make_pod("first", cpu=1, labels={"app": "x"})
    slot = cluster.add_pod(pod, "n")
    before = cluster.pods.info[slot]
    for number in range(10):
        cluster.pod_infos.of(make_pod("p", labels={"number": str(number)}))
    again = cluster.pod_infos.of(pod)
    assert again is not before
    assert before is not None
    assert (again.label_set, again.terms, again.requests) == (
        before.label_set,
        before.terms,
        before.requests,
    )
    cluster.remove_pod(pod.uid)
    assert cluster.nodes.resource("cpu").requested.read.tolist() == [0]
