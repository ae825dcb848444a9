"""What is known about all pods of one template."""

from __future__ import annotations

import pytest

from bayplan.plugin import Cluster
from bayplan.snapshot import facts as module
from bayplan.testing.builders import make_pod


def test_pods_of_one_template_share_their_facts() -> None:
    templates = Cluster().templates
    first = templates.facts(make_pod("a", cpu=1, labels={"app": "x"}))
    assert templates.facts(make_pod("b", cpu=1, labels={"app": "x"}, node="n")) is first
    assert templates.facts(make_pod("c", cpu=2, labels={"app": "x"})) is not first


def test_what_is_known() -> None:
    facts = Cluster().templates.facts(make_pod(cpu=1, host_ports=[80], claims=["data"], namespace="other"))
    assert facts.requests["cpu"] == 1000
    assert (facts.nonzero_cpu_milli, facts.nonzero_memory_bytes) == (1000, 200 * 2**20)
    assert [port.port for port in facts.host_ports] == [80]
    assert facts.claims == ("other/data",)
    assert (facts.carried, facts.terms_id) == ((), 0)


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
    assert (again.label_set, again.terms_id, again.requests) == (
        before.label_set,
        before.terms_id,
        before.requests,
    )
    cluster.remove_pod(pod.uid)
    assert cluster.nodes.resource("cpu").requested.read.tolist() == [0]
