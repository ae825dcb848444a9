"""`bayplan simulate run --deschedule`: the same scenario without and with descheduling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.meta import Object
from bayplan.config import Decision, DescheduleConfiguration, Mode, default_config
from bayplan.deschedule.simulating import SimulatedDescheduling
from bayplan.simulate.scenarios.result import Descheduling
from bayplan.simulate.scenarios.run import Finished, simulate
from bayplan.testing.builders import make_node, make_pdb
from tests.commands import bayplan
from tests.deschedule.situations import descheduler, replica
from tests.simulate.scenarios.building import load, nodes, template

DUPLICATES: dict[str, Any] = {"RemoveDuplicates": {}}
LOW: dict[str, Any] = {"LowNodeUtilization": {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 60}}}
OUTAGE = [{"at": "10m", "failNodes": {"names": ["n-0"], "duration": "15m"}}]
"""Its pods go to the other nodes and stay there."""
WEB = {"name": "web", "kind": "Deployment", "replicas": 4, "template": template(cpu="500m")}


def simulated(
    decision: Decision | None,
    plugins: dict[str, Any],
    *workloads: dict[str, Any],
    mode: Mode = Mode.EVICT,
    **fields: Any,
) -> tuple[Finished, Descheduling, list[str]]:
    settings = DescheduleConfiguration(mode=mode)
    companion = SimulatedDescheduling(descheduler(plugins), settings, default_config(), (), decision)
    finished = simulate(load(*workloads, **fields), companion=companion)
    return finished, companion.result(finished.figures), companion.notes()


@pytest.mark.parametrize("decision", [None, Decision.UPSTREAM, Decision.SCHEDULER])
def test_a_node_that_was_down_gets_its_pod_back(decision: Decision | None) -> None:
    """Both ways to decide repair it; without descheduling it stays empty."""
    finished, result, _ = simulated(decision, DUPLICATES, WEB, groups=[nodes(4)], events=OUTAGE)
    evictions = 0 if decision is None else 1
    assert (result.evictions, result.other_node, result.same_node, result.no_node) == (
        *(evictions, evictions),
        *(0, 0),
    )
    assert (result.candidates.max, result.candidates_at_end) == (1, 1 - evictions)
    assert (finished.figures.running, finished.figures.waiting) == (4, 0)
    assert result.times[-1] == 3600.0


def test_upstream_evicts_pods_that_come_right_back() -> None:
    """descheduler#994: only one node has the disks, and it is overutilized."""
    groups = [nodes(1, name="ssd", labels={"disk": "ssd"}), nodes(2)]
    pods = {**WEB, "template": template(cpu="1", nodeSelector={"disk": "ssd"}), "replicas": 4}
    _, upstream, _ = simulated(Decision.UPSTREAM, LOW, pods, groups=groups)
    _, ours, _ = simulated(Decision.SCHEDULER, LOW, pods, groups=groups)
    assert upstream.evictions > 10
    assert upstream.same_node == upstream.evictions - upstream.no_node
    assert (ours.evictions, ours.candidates_at_end) == (0, upstream.candidates_at_end)


def files(*more: Object) -> list[Object]:
    """Two pods of a ReplicaSet on a node that got a taint."""
    tainted = make_node("a", cpu=4, taints=["maintenance=true:NoSchedule"])
    return [tainted, make_node("b", cpu=4), replica("p", "a"), replica("q", "a"), *more]


@pytest.mark.parametrize("decision", [Decision.UPSTREAM, Decision.SCHEDULER])
def test_pods_of_files_are_replaced_if_they_have_a_controller(decision: Decision) -> None:
    plugins: dict[str, Any] = {"RemovePodsViolatingNodeTaints": {}}
    finished, result, _ = simulated(decision, plugins, groups=[], objects=files())
    assert (result.evictions, result.other_node) == (2, 2)
    assert finished.figures.running == 2


@pytest.mark.parametrize("decision", [Decision.UPSTREAM, Decision.SCHEDULER])
def test_budgets_are_respected(decision: Decision) -> None:
    plugins: dict[str, Any] = {"RemovePodsViolatingNodeTaints": {}}
    budget = make_pdb("web", {"app": "web"}, allowed=0)
    _, result, _ = simulated(decision, plugins, groups=[], objects=files(budget))
    assert (result.evictions, result.candidates_at_end) == (0, 2)


def test_what_is_not_simulated_is_a_note() -> None:
    args = {**LOW["LowNodeUtilization"], "metricsUtilization": {"source": "KubernetesMetrics"}}
    measured = {"LowNodeUtilization": args}
    settings = {"metricsProviders": [{"source": "KubernetesMetrics"}]}
    companion = SimulatedDescheduling(
        descheduler(measured, **settings),
        DescheduleConfiguration(mode=Mode.SURGE),
        default_config(),
        (),
        Decision.SCHEDULER,
    )
    simulate(load(WEB, groups=[nodes(4)]), companion=companion)
    assert companion.notes() == [
        "Descheduling: mode surge is not simulated; pods are evicted.",
        'Descheduling: balance test: plugin "LowNodeUtilization" finished with error: '
        "error initializing usage client: metrics client not initialized",
    ]


def test_the_command_compares_runs_and_writes_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    command = ["simulate", "run", "examples/deschedule/scenario.yaml", "--until", "5h"]
    command += ["--deschedule", "examples/deschedule/policy.yaml", "-o", "json", "--report", str(report)]
    ended = bayplan(*command)
    assert ended.status == 0, ended.stderr
    result = json.loads(ended.stdout)
    runs = {one["decision"]: one for one in result["descheduling"]}
    assert list(runs) == ["none", "upstream", "scheduler"]
    assert runs["scheduler"]["evictions"] < runs["upstream"]["evictions"]
    assert runs["scheduler"]["sameNode"] == 0
    assert runs["scheduler"]["placementsDigest"] == result["placementsDigest"]
    assert len(runs["none"]["times"]) == len(runs["none"]["candidatesSeries"]) == 61
    page = report.read_text()
    assert '<th scope="row">replacements back on the same node</th>' in page
    assert "Pods that the policy would evict over time" in page


def test_a_policy_that_is_not_valid_is_reported(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: 3\n")
    ended = bayplan("simulate", "run", "examples/deschedule/scenario.yaml", "--deschedule", str(policy))
    assert ended.status == 2
    assert "policy.yaml" in ended.stderr
