"""What is known about all pods of one template."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.pod import ContainerStatus, Pod, PodStatus, ResourceRequirements
from bayplan.plugin import Cluster
from bayplan.snapshot import facts as module
from bayplan.snapshot.facts import same_template, template_key
from bayplan.testing.builders import make_owner, make_pod

REPORT = ContainerStatus(name="c", resources=ResourceRequirements(requests={"cpu": "2"}))


def test_pods_of_one_template_share_their_facts() -> None:
    templates = Cluster().templates
    first = templates.facts(make_pod("a", cpu=1, labels={"app": "x"}))
    assert templates.facts(make_pod("b", cpu=1, labels={"app": "x"}, node="n")) is first
    assert templates.facts(make_pod("c", cpu=2, labels={"app": "x"})) is not first


@pytest.mark.parametrize(
    ("after", "alike"),
    [
        pytest.param(make_pod("p", cpu=1, node="n"), True, id="it has been bound"),
        pytest.param(make_pod("p", cpu=1, annotations={"a": "b"}), True, id="its annotations"),
        pytest.param(
            replace(make_pod("p", cpu=1), status=PodStatus(phase="Running", nominated_node_name="n")),
            True,
            id="its phase and nomination",
        ),
        pytest.param(make_pod("p", cpu=2), False, id="what it asks for"),
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
def test_versions_of_a_pod_that_are_seen_to_be_alike_have_one_template(after: Pod, alike: bool) -> None:
    before = make_pod("p", cpu=1)
    assert (same_template(before, after), same_template(after, before)) == (alike, alike)
    assert (template_key(before) == template_key(after)) is alike


def test_what_is_known() -> None:
    facts = Cluster().templates.facts(make_pod(cpu=1, host_ports=[80], claims=["data"], namespace="other"))
    assert facts.requests["cpu"] == 1000
    assert (facts.nonzero_cpu_milli, facts.nonzero_memory_bytes) == (1000, 200 * 2**20)
    assert [port.port for port in facts.host_ports] == [80]
    assert facts.claims == ("other/data",)
    assert (facts.terms.carried, facts.terms.id) == ((), 0)


def test_templates_that_were_not_used_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that stand on a node keep their facts, and a template that comes back is known by the same ids."""
    monkeypatch.setattr(module, "MOST_TEMPLATES", 4)
    cluster = Cluster()
    pod = make_pod("first", cpu=1, labels={"app": "x"})
    slot = cluster.add_pod(pod, "n")
    before = cluster.pods.facts[slot]
    for number in range(10):
        cluster.templates.facts(make_pod("p", labels={"number": str(number)}))
    again = cluster.templates.facts(pod)
    assert again is not before
    assert before is not None
    assert (again.label_set, again.terms, again.requests) == (
        before.label_set,
        before.terms,
        before.requests,
    )
    cluster.remove_pod(pod.uid)
    assert cluster.nodes.resource("cpu").requested.read.tolist() == [0]
