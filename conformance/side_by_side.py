"""Runs one scenario with kube-scheduler and with bayplan, with the results in comparable form.

Nodes exist before the scheduler starts, so that both list them in the same order; pods are created one at a
time, and an unschedulable pod is deleted, so that nothing depends on when it is retried.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bayplan.answers.explain.report import decide_scenario
from bayplan.api.pod import Pod
from bayplan.api.releases import parse_release
from conformance.harness import objects
from conformance.harness.admin import Admin, Raw
from conformance.harness.clients import PATIENCE_SECONDS, until
from conformance.harness.control_plane import ControlPlane
from conformance.harness.objects import condition
from conformance.harness.process import Process
from conformance.harness.schedulers import Start, configuration, wait_until_synced

CLEARED = ("Pod", "Node", "Service", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Event")
SEEN_BY_SCORES = (
    "Node",
    "Pod",
    "Namespace",
    "Service",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
)

_SCORED = re.compile(
    r'"Plugin scored node for pod" pod="(?P<pod>\S+)" plugin="(?P<plugin>\w+)" node="(?P<node>\S+)"'
    r" score=(?P<score>\d+)"
)
_AGE = re.compile(r"^(  (?:Normal|Warning) +\w+ +)\S+( )", re.MULTILINE)
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Scores = dict[str, dict[str, int]]
"""By plugin and node, weighted, without plugins that score all nodes 0."""


@dataclass
class Outcome:
    """The outcome of a pod."""

    pod: str
    node: str = ""
    condition: Raw = field(default_factory=dict)
    nominated: str = ""
    events: list[Raw] = field(default_factory=list)
    described: str = ""
    gone: list[str] = field(default_factory=list)
    """Evicted pods."""
    expected_scores: Scores = field(default_factory=dict)
    """bayplan's decisions for exactly the cluster that the scheduler saw."""


@dataclass(frozen=True)
class Scenario:
    """A cluster, and pods that are created one after the other."""

    objects: list[Raw]
    pods: list[Raw]


class Nominations:
    """The node that each pod was nominated to: the pod may be bound before it is read."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self._last = ""

    @asynccontextmanager
    async def watching(self, admin: Admin) -> AsyncIterator[None]:
        _, version = await admin.cluster.list(Pod)
        running = asyncio.ensure_future(self._watch(admin, version))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _watch(self, admin: Admin, version: str) -> None:
        async for batch in admin.cluster.watch(Pod, version):
            for event in batch:
                if event.object is not None:
                    self._last = event.object.name
                    if event.object.status.nominated_node_name:
                        self.nodes[event.object.name] = event.object.status.nominated_node_name

    async def all_events(self, admin: Admin) -> None:
        """Until the watch has shown everything that has happened up to now."""
        await admin.create(objects.pod("the-last", schedulingGates=[{"name": "example.com/never"}]))
        await until(lambda: self._last == "the-last", "the watch has shown everything")


async def play(
    plane: ControlPlane, start: Start, scenario: Scenario, **flags: Any
) -> tuple[list[Outcome], Process]:
    """The outcomes of the scenario with one scheduler, and its process (which has ended)."""
    async with Admin(plane.access()) as admin:
        await admin.clear(*CLEARED)
        for item in scenario.objects:
            await admin.create(item)
        config = configuration(plane, parallelism=1, percentageOfNodesToScore=100)
        seen = Nominations()
        with start(plane, config, **flags) as scheduler:
            wait_until_synced(scheduler)
            async with seen.watching(admin):
                outcomes = []
                for pod in scenario.pods:
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        outcomes.append(await _schedule(plane, admin, pod))
                    scheduler.check()
                await seen.all_events(admin)
        for outcome in outcomes:
            outcome.nominated = seen.nodes.get(outcome.pod, "")
        await admin.clear(*CLEARED)
    return outcomes, scheduler


async def _schedule(plane: ControlPlane, admin: Admin, pod: Raw) -> Outcome:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    there = [item for kind in SEEN_BY_SCORES for item in await _listed(admin, kind)]
    before = {item["metadata"]["name"] for item in there if item["kind"] == "Pod"}
    created = await admin.create(pod)
    scores = _scores_of(there, {**created, "kind": "Pod"}, plane.programs.release)
    outcome = Outcome(name, expected_scores=scores)
    while True:
        found = await admin.get("Pod", name, namespace)
        outcome.node = found["spec"].get("nodeName", "")
        outcome.condition = condition(found, "PodScheduled") or {}
        decided = outcome.condition and not found["status"].get("nominatedNodeName")
        outcome.events = [] if not decided else await _events(admin, name, outcome)
        outcome.gone = sorted(before - {item["metadata"]["name"] for item in await admin.list("Pod")})
        if outcome.node and _all_written(outcome):
            break
        if decided and not outcome.node and (outcome.events or pod["spec"].get("schedulingGates")):
            break
        await asyncio.sleep(0.02)
    outcome.condition = {key: value for key, value in outcome.condition.items() if not key.endswith("Time")}
    outcome.described = _AGE.sub(r"\1AGE\2", plane.kubectl("describe", "pod", name, "-n", namespace))
    if not outcome.node:
        await admin.delete("Pod", name, namespace)
    return outcome


async def _listed(admin: Admin, kind: str) -> list[Raw]:
    version = {"StorageClass": "storage.k8s.io/v1"}.get(kind, "v1")
    return [{**item, "apiVersion": version, "kind": kind} for item in await admin.list(kind)]


def _all_written(outcome: Outcome) -> bool:
    """Whether a scheduled pod has all its events: schedulers write each on its own, in any order."""
    expected = Counter({"Scheduled": 1})
    if outcome.gone:
        expected.update({"FailedScheduling": 1, "Preempted": len(outcome.gone)})
    return expected <= Counter(event["reason"] for event in outcome.events)


async def _events(admin: Admin, name: str, outcome: Outcome) -> list[Raw]:
    """The events about a pod, then those about pods that left for it, each oldest first.

    Times and versions are left out. Whether a victim's event is older than the pod's own is a race in
    kube-scheduler, because it evicts in the background.
    """
    compared = ("type", "reason", "action", "note", "reportingController", "reportingInstance")
    listed = sorted(
        await admin.list("Event"),
        key=lambda event: (event["reason"] == "Preempted", event["eventTime"] or ""),
    )
    return [
        {field: _UID.sub("UID", event.get(field, "")) for field in compared}
        for event in listed
        if event["regarding"]["name"] == name
        or (
            event["reason"] == "Preempted" and outcome.node and event["note"].endswith(f"node {outcome.node}")
        )
    ]


def _scores_of(there: list[Raw], pod: Raw, release: str) -> Scores:
    scenario = {"name": pod["metadata"]["name"], "objects": there, "pods": [pod]}
    results = decide_scenario(scenario, release=parse_release(release))["results"]
    gates = pod["spec"].get("schedulingGates")
    if gates or results[0].get("fitError") or len(results[0]["feasible"]) < 2:
        # Gated pods, and pods with at most one feasible node, are not scored.
        return {}
    return _distinguishing(
        {
            plugin: {node: score * given["weight"] for node, score in given["normalized"].items()}
            for plugin, given in results[0]["score"].items()
        }
    )


def logged_scores(scheduler: Process) -> dict[str, Scores]:
    """By pod, the score of each plugin for each node, from kube-scheduler's log at level 10."""
    found: dict[str, Scores] = {}
    for match in _SCORED.finditer(scheduler.log.read_text(errors="replace")):
        name = match["pod"].rpartition("/")[2]
        found.setdefault(name, {}).setdefault(match["plugin"], {})[match["node"]] = int(match["score"])
    return {name: _distinguishing(scores) for name, scores in found.items()}


def _distinguishing(scores: Scores) -> Scores:
    return {plugin: nodes for plugin, nodes in scores.items() if any(nodes.values())}
