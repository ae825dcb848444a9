"""Simulations: pods are conserved, runs repeat, and placements are those of the decision core."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.api.releases import V1_37
from bayplan.config import parse_config
from bayplan.errors import InputError
from bayplan.plugin import CycleState, NodeInfo, NodePlugin
from bayplan.scheduler.core import SchedulingCore
from bayplan.simulate.scenarios.inputs import make_node
from bayplan.simulate.scenarios.pods import Outcome, SimulatedPod, make_pod
from bayplan.simulate.scenarios.result import Result, make_result
from bayplan.simulate.scenarios.run import Finished, simulate
from bayplan.testing.builders import make_node as built_node
from bayplan.testing.builders import make_pod as built_pod
from tests.effort import examples

from .building import ROOT, load, nodes, run, template


def check_conservation(result: Result) -> None:
    pods = result.pods
    assert pods.initial + pods.arrived == pods.waiting + pods.running + pods.finished
    assert pods.finished == sum(pods.outcomes.values())
    assert sum(one.arrived for one in result.workloads) == pods.initial + pods.arrived
    for name in ("waiting", "running", "finished"):
        assert sum(getattr(one, name) for one in result.workloads) == getattr(pods, name)
    for one in result.workloads:
        assert one.arrived == one.waiting + one.running + one.finished


def ended(finished: Finished, outcome: Outcome) -> list[SimulatedPod]:
    return [pod for pod in finished.figures.pods if pod.ended is not None and pod.outcome is outcome]


WORKLOADS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["Pod", "Job", "Gang", "Deployment"]),
            "arrivals": st.sampled_from(
                [{"poisson": {"perHour": 20}}, {"constant": {"every": "7m"}}, {"at": ["1m", "20m"]}]
            ),
            "runTime": st.sampled_from(
                ["3m", {"exponential": "10m"}, {"uniform": {"min": "1m", "max": "40m"}}]
            ),
            "priority": st.sampled_from([0, 10]),
            "cpu": st.sampled_from(["500m", "1500m", "3"]),
        }
    ),
    min_size=1,
    max_size=4,
)
EVENTS = st.lists(
    st.sampled_from(
        [
            {"at": "10m", "addNodes": {"group": "n", "count": 2}},
            {"at": "15m", "removeNodes": {"group": "n", "count": 1}},
            {"at": "20m", "failNodes": {"names": ["n-0"], "duration": "20m"}},
            {"at": "30m", "failNodes": {"group": "n", "count": 1, "duration": "20s"}},
        ]
    ),
    max_size=3,
)


def scenario_of(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sizes: dict[str, dict[str, int]] = {
        "Job": {"completions": 3, "parallelism": 2},
        "Gang": {"size": 3},
        "Deployment": {"replicas": 2},
    }
    return [
        {
            "name": f"w{i}",
            "kind": one["kind"],
            "arrivals": one["arrivals"],
            "runTime": one["runTime"],
            "template": template(cpu=one["cpu"], priority=one["priority"]),
            **sizes.get(one["kind"], {}),
        }
        for i, one in enumerate(drawn)
    ]


@settings(max_examples=examples(5, quick=1), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=WORKLOADS, events=EVENTS, failing=st.booleans(), seed=st.integers(0, 5))
def test_pods_are_conserved_and_runs_repeat(
    drawn: list[dict[str, Any]], events: list[dict[str, Any]], failing: bool, seed: int
) -> None:
    """Whatever arrives and fails: every pod is waiting, running or finished, and a second run is equal."""
    failures = [{"meanTimeBetween": "1h", "repairTime": {"exponential": "10m"}}] if failing else []
    loaded = load(*scenario_of(drawn), groups=[nodes(3)], events=events, failures=failures)
    finished = simulate(loaded, seed=seed)
    result = make_result(finished)
    check_conservation(result)
    waited = sum(one.pod_seconds for one in result.reasons)
    assert waited == pytest.approx(total_wait(finished), abs=0.01)
    assert make_result(simulate(loaded, seed=seed)) == result


def total_wait(finished: Finished) -> float:
    """The time that all pods waited, from the pods themselves."""
    total = 0.0
    for pod in finished.figures.pods:
        until = pod.scheduled if pod.scheduled is not None else pod.ended
        total += (finished.until if until is None else until) - pod.arrived
    return total


def test_another_seed_is_another_run() -> None:
    loaded = load({"name": "w", "arrivals": {"poisson": {"perHour": 60}}, "runTime": {"exponential": "5m"}})
    one, other = simulate(loaded, seed=1), simulate(loaded, seed=2)
    assert one.figures.placements_digest != other.figures.placements_digest


def test_runs_repeat_in_another_process() -> None:
    """Not even the order of Python's sets makes a difference, which is another one in every process."""
    outputs = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "bayplan.cli.main", "simulate", "run", "examples/scenario.yaml"]
        ended = subprocess.run(
            [*command, "--until", "3h", "-o", "json"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        outputs.add(ended.stdout)
    assert len(outputs) == 1


def test_placements_are_those_of_the_decision_core() -> None:
    """At each binding, a core with only the cluster of that moment chooses the same node."""
    group = nodes(7, zones=["a", "b", "c"])
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "test"}},
    }
    loaded = load(
        {
            "name": "spread",
            "arrivals": {"poisson": {"perHour": 60}},
            "runTime": {"exponential": "9m"},
            "template": template(cpu="700m", topologySpreadConstraints=[spread]),
        },
        {"name": "plain", "arrivals": {"poisson": {"perHour": 60}}, "runTime": {"exponential": "9m"}},
        groups=[group],
    )
    finished = simulate(loaded)
    pods = finished.figures.pods
    assert len(pods) > 80
    for pod in pods:
        if pod.scheduled is None:
            continue
        core = SchedulingCore()
        core.load([make_node(loaded.scenario.cluster.nodes[0], number) for number in range(7)])
        for other in pods:
            if was_running(other, pod.scheduled):
                core.cluster.add_pod(as_record(loaded.templates, other), other.node_name)
        assert core.decide(as_record(loaded.templates, pod)).node_name == pod.node_name


def was_running(pod: SimulatedPod, time: float) -> bool:
    """Whether the pod had its node before this time and did not end before it."""
    return pod.scheduled is not None and pod.scheduled < time and (pod.ended is None or pod.ended > time)


def as_record(templates: dict[str, Pod], pod: SimulatedPod) -> Pod:
    record = make_pod(templates[pod.workload], pod.name, {}, None)
    return replace(record, metadata=replace(record.metadata, uid=pod.uid))


# What becomes of pods


def test_pods_wait_for_room() -> None:
    """One node of four cores, three pods of two cores: the third starts when the first ends."""
    finished = run(
        {
            "name": "w",
            "arrivals": {"at": ["0s", "1m", "2m"]},
            "runTime": "10m",
            "template": template(cpu="2"),
        },
        groups=[nodes(1)],
    )
    assert [pod.scheduled for pod in finished.figures.pods] == [0, 60, 600]
    result = make_result(finished)
    assert result.waiting_time.max == 480
    assert [(one.plugin, one.reason, one.pod_seconds) for one in result.reasons] == [
        ("NodeResourcesFit", "Insufficient cpu", 480.0)
    ]
    assert result.utilisation["cpu"].max == 1.0


def test_preempted_pods_of_jobs_are_replaced() -> None:
    finished = run(
        {"name": "low", "kind": "Job", "runTime": "10m", "template": template(cpu="4", priority=0)},
        {
            "name": "high",
            "arrivals": {"at": ["1m"]},
            "runTime": "5m",
            "template": template(cpu="4", priority=10, terminationGracePeriodSeconds=30),
        },
        groups=[nodes(1)],
    )
    figures = finished.figures
    (victim,) = ended(finished, Outcome.PREEMPTED)
    assert (victim.workload, victim.ended) == ("low", 90)
    high = next(pod for pod in figures.pods if pod.workload == "high")
    assert high.scheduled is not None
    assert 90 <= high.scheduled < 100, "after the grace period of the victim, and perhaps a backoff"
    assert (figures.preemptions, figures.victims) == (1, 1)
    again = [pod for pod in figures.pods if pod.workload == "low" and pod is not victim]
    assert [pod.outcome for pod in again] == [Outcome.SUCCEEDED], "it starts from the beginning"
    assert high.ended is not None
    assert again[0].ended == high.ended + 600
    check_conservation(make_result(finished))


def test_jobs_run_a_limited_number_of_pods() -> None:
    finished = run({"name": "j", "kind": "Job", "completions": 5, "parallelism": 2, "runTime": "10m"})
    assert [pod.arrived for pod in finished.figures.pods] == [0, 0, 600, 600, 1200]
    assert finished.figures.outcomes == {Outcome.SUCCEEDED: 5}


def test_gangs_run_together_or_not_at_all() -> None:
    """Of two gangs of five on eight cores, the second one waits although three of its pods would fit."""
    finished = run(
        {"name": "g", "kind": "Gang", "size": 5, "arrivals": {"at": ["0s", "1m"]}, "runTime": "20m"}
    )
    starts: dict[str, set[float | None]] = {}
    for pod in finished.figures.pods:
        starts.setdefault(pod.name.rpartition("-")[0], set()).add(pod.scheduled)
    assert starts["g-0"] == {0}
    (second,) = starts["g-1"]
    assert second is not None
    assert second >= 1200
    assert any("Coscheduling was added" in note for note in finished.notes)


def test_a_plugin_that_the_configuration_names_is_not_added() -> None:
    config = parse_config(
        """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Coscheduling}]}}
"""
    )
    finished = simulate(load({"name": "g", "kind": "Gang", "size": 2, "runTime": "1m"}), config=config)
    assert finished.figures.outcomes == {Outcome.SUCCEEDED: 2}
    assert not any("was added" in note for note in finished.notes)


def test_deployments_are_scaled_and_end() -> None:
    finished = run(
        {"name": "d", "kind": "Deployment", "replicas": 2, "runTime": "50m"},
        events=[
            {"at": "10m", "scale": {"workload": "d", "replicas": 5}},
            {"at": "20m", "scale": {"workload": "d", "replicas": 1}},
        ],
    )
    running = {sample.time: sample.running for sample in finished.figures.samples}
    assert [running[60 * minute] for minute in (5, 15, 25, 55)] == [2, 5, 1, 0]
    assert finished.figures.outcomes == {Outcome.DELETED: 5}


def test_nodes_that_fail_lose_their_pods_after_the_tolerated_time() -> None:
    """50 s until the node is unreachable, 300 s that pods tolerate; then they are replaced elsewhere."""
    finished = run(
        {"name": "d", "kind": "Deployment", "replicas": 4, "template": template(cpu="2")},
        groups=[nodes(3)],
        events=[{"at": "10m", "failNodes": {"names": ["n-0"], "duration": "30m"}}],
    )
    lost = [pod for pod in finished.figures.pods if pod.outcome is Outcome.EVICTED]
    assert {pod.node_name for pod in lost} == {"n-0"}
    assert {pod.ended for pod in lost} == {2400}, "the node is back, and its kubelet removes them"
    replaced = finished.figures.pods[4:]
    assert {pod.arrived for pod in replaced} == {600 + 50 + 300}
    assert all(pod.node_name != "n-0" for pod in replaced)
    assert finished.figures.node_failures == 1
    ready = {sample.time: sample.ready_nodes for sample in finished.figures.samples}
    assert (ready[600], ready[1200], ready[2400]) == (3, 2, 3)


def test_a_short_failure_has_no_effect() -> None:
    finished = run(
        {"name": "p", "runTime": "10m"},
        groups=[nodes(1)],
        events=[{"at": "9m50s", "failNodes": {"names": ["n-0"], "duration": "40s"}}],
    )
    (pod,) = finished.figures.pods
    assert (pod.outcome, pod.ended) == (Outcome.SUCCEEDED, 630), "its end is seen when the node is back"


def test_removed_nodes_take_their_pods_along() -> None:
    finished = run(
        {"name": "p", "runTime": "50m", "template": template(cpu="3")},
        {"name": "j", "kind": "Job", "runTime": "10m", "template": template(cpu="3")},
        events=[
            {"at": "5m", "removeNodes": {"names": ["n-0", "n-1"]}},
            {"at": "6m", "addNodes": {"group": "n", "count": 2}},
        ],
    )
    assert {pod.workload for pod in ended(finished, Outcome.NODE_REMOVED)} == {"p", "j"}
    (again,) = finished.figures.pods[2:]
    assert (again.workload, again.arrived, again.outcome) == ("j", 300, Outcome.SUCCEEDED)
    assert again.scheduled is not None
    assert again.scheduled >= 360
    assert again.node_name in ("n-2", "n-3"), "names are not used twice"
    check_conservation(make_result(finished))


def test_nodes_fail_at_random_and_recover() -> None:
    finished = run(
        {"name": "d", "kind": "Deployment", "replicas": 6},
        groups=[nodes(4)],
        failures=[{"nodes": "n", "meanTimeBetween": "30m", "repairTime": {"exponential": "5m"}}],
    )
    assert finished.figures.node_failures > 2
    check_conservation(make_result(finished))


def test_pods_of_files_are_there_first() -> None:
    existing = built_pod("old", cpu="3", node="x")
    pending = built_pod("new", cpu="3")
    finished = simulate(
        load(
            {"name": "w", "arrivals": {"at": ["1m"]}, "template": template(cpu="2")},
            groups=[],
            objects=[built_node("x", cpu="4"), existing, pending],
        )
    )
    result = make_result(finished)
    assert (result.pods.initial, result.pods.arrived, result.pods.waiting) == (1, 2, 2)
    assert any("1 pods of the cluster's files run until the end" in note for note in result.notes)
    check_conservation(result)


def test_pods_that_cannot_be_simulated_are_mentioned() -> None:
    """Those of other schedulers wait; those on unknown nodes, and terminating ones, are left out."""
    finished = simulate(
        load(
            {"name": "w", "template": template(schedulerName="other")},
            objects=[
                built_pod("lost", node="nowhere"),
                built_pod("leaving", node="n-0", deleted=datetime(2026, 1, 1, tzinfo=UTC)),
            ],
        )
    )
    notes = " ".join(finished.notes)
    assert 'schedulerName of pods of w ("other")' in notes
    assert "1 pods of the cluster's files are on nodes that do not exist" in notes
    assert "1 pods of the cluster's files were terminating" in notes
    assert make_result(finished).pods.waiting == 1
    assert finished.figures.initial == 0


def test_pods_with_claims_are_mentioned() -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    finished = run({"name": "w", "template": template(volumes=volumes)})
    assert any("No controller provisions volumes" in note for note in finished.notes)
    assert finished.figures.waiting == 1


class Broken(NodePlugin):
    """Fails for every pod."""

    name = "Broken"

    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> None:
        raise ValueError("broken")


def test_errors_of_plugins_are_counted_and_named() -> None:
    finished = simulate(load({"name": "w"}), plugins=[Broken], until=60)
    result = make_result(finished)
    assert result.scheduling.errors == result.scheduling.failed_attempts > 0
    assert result.reasons[0].plugin == "Broken"
    assert "broken" in result.reasons[0].reason
    check_conservation(result)


def test_groups_of_kubernetes_run_together_or_not_at_all() -> None:
    workload = {
        "name": "g",
        "kind": "PodGroup",
        "size": 5,
        "arrivals": {"at": ["0s", "1m"]},
        "runTime": "20m",
    }
    with pytest.raises(InputError, match="GenericWorkload"):
        run(workload)
    groups = V1_37.with_gates(V1_37.gates | {"GenericWorkload"})
    finished = simulate(load(workload), release=groups)
    starts: dict[str, set[float | None]] = {}
    for pod in finished.figures.pods:
        starts.setdefault(pod.name.rpartition("-")[0], set()).add(pod.scheduled)
    assert starts["g-0"] == {0}
    (second,) = starts["g-1"]
    assert second is not None
    assert second >= 1200
    assert not any("Coscheduling" in note for note in finished.notes)
