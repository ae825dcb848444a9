"""The table of pods, and what is known of all pods with one signature."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec.structs import replace

from bayplan.api.pod import ContainerStatus, Pod, PodStatus, ResourceRequirements
from bayplan.plugin import Cluster
from bayplan.state import pods as module
from bayplan.state.pods import NOT_STARTED, pod_signature, same_signature, start_nanos
from bayplan.testing.builders import make_owner, make_pod


@pytest.mark.parametrize(
    ("started", "nanos"),
    [
        (None, NOT_STARTED),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), 1_000_005_000),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), -1_000_000_000),
        (datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC), 1767225600_123456_000),
    ],
)
def test_when_a_pod_started(started: datetime | None, nanos: int) -> None:
    """Exactly: floats would lose the last digits."""
    assert start_nanos(make_pod(started=started)) == nanos


def test_a_slot_that_is_used_again_holds_nothing_of_the_pod_before() -> None:
    cluster = Cluster()
    gpu = "example.com/gpu"
    old = make_pod(
        "old", requests={gpu: 2}, priority=9, labels={"a": "b"}, deleted=datetime(2026, 1, 1, tzinfo=UTC)
    )
    slot = cluster.add_pod(old, "n")
    cluster.remove_pod(old.uid)
    assert cluster.add_pod(make_pod("new", cpu=1), "n") == slot
    pods = cluster.pods
    assert (pods.requests(gpu).cell[slot], pods.requests("cpu").cell[slot]) == (0, 1000)
    assert (pods.priority.cell[slot], pods.terminating.cell[slot]) == (0, False)


def test_a_resource_that_is_seen_late() -> None:
    """Pods that came before it take none of it."""
    cluster = Cluster()
    first = cluster.add_pod(make_pod("first", cpu=1), "n")
    second = cluster.add_pod(make_pod("second", requests={"example.com/gpu": 2}), "n")
    column = cluster.pods.requests("example.com/gpu")
    assert (column.cell[first], column.cell[second]) == (0, 2)


def test_assigned_and_nominated_pods_are_distinguished() -> None:
    cluster = Cluster()
    cluster.add_pod(make_pod("there"), "n")
    cluster.nominate(make_pod("expected"), "n")
    assert cluster.pods.assigned.read.tolist() == [True, False]
    assert cluster.pods.nominated.read.tolist() == [False, True]


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
