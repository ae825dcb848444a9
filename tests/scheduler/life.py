"""Plays events on one or several cores at once, and returns the decisions of each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.cycle import Decision
from bayplan.state.cluster import Cluster

from .generated import (
    AppearPod,
    ChangeNode,
    DeletePod,
    Drop,
    Event,
    Put,
    RemoveNode,
    Schedule,
    SetNode,
    Trim,
    UpdatePod,
    Withdraw,
)

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


def outcome(decision: Decision, cluster: Cluster) -> dict[str, Any]:
    """All that a user could see of a decision, as plain values."""
    result: dict[str, Any] = {
        "status": decision.status,
        "message": decision.message,
        "node": decision.node_name,
        "nomination": decision.nomination,
    }
    if decision.found is not None:
        result["feasible"] = decision.found.feasible
        result["evaluated"] = decision.found.evaluated
    if decision.diagnosis is not None:
        names = cluster.nodes.name
        result["statuses"] = {names[row]: decision.diagnosis.status(int(row)) for row in cluster.order}
        result["rejected by"] = decision.diagnosis.rejecting_plugins
    if decision.post_filter is not None and decision.post_filter.eviction is not None:
        eviction = decision.post_filter.eviction
        result["eviction"] = (
            eviction.node_name,
            [victim.key for victim in eviction.victims],
            eviction.pdb_violations,
        )
    return result


class Life:
    """The same events for every core."""

    def __init__(self, *cores: SchedulingCore) -> None:
        self.cores = cores
        self.nodes: dict[str, Node] = {}
        self.running: dict[str, tuple[Pod, str]] = {}
        self.waiting: dict[str, Pod] = {}
        """Pods that were nominated to a node and are still expected there."""
        self._count = 0

    def play(self, event: Event) -> list[dict[str, Any]]:
        """What each core decided; nothing if there was nothing to decide."""
        match event:
            case Schedule():
                return self._schedule(event)
            case SetNode(node):
                self._set_node(node)
            case ChangeNode(name):
                if name in self.nodes:
                    self._set_node(event.apply(self.nodes[name]))
            case RemoveNode(name):
                if self.nodes.pop(name, None) is not None:
                    for core in self.cores:
                        core.cluster.remove_node(name)
            case DeletePod(which):
                if self.running:
                    self._delete(list(self.running)[which % len(self.running)])
            case UpdatePod(which, terminate):
                if self.running:
                    self._update(list(self.running)[which % len(self.running)], terminate=terminate)
            case Withdraw(which):
                if self.waiting:
                    self._withdraw(list(self.waiting)[which % len(self.waiting)])
            case AppearPod(shape, node):
                pod = shape.pod(self._name(), node=node, started=self._now())
                self._add(pod, node)
            case Put(item):
                for core in self.cores:
                    core.cluster.objects.put(item)
            case Drop(item):
                for core in self.cores:
                    core.cluster.objects.remove(item)
            case Trim():
                for core in self.cores:
                    changes = core.cluster.changes
                    for log in (changes.usage, changes.nodes, changes.nominations):
                        log.trim()
        return []

    def _name(self) -> str:
        self._count += 1
        return f"p{self._count}"

    def _now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._count // 3)

    def _schedule(self, event: Schedule) -> list[dict[str, Any]]:
        pod = event.shape.pod(
            self._name(), node=event.node_name, nominated_node=event.nominated_node, started=self._now()
        )
        decisions = [core.decide(pod) for core in self.cores]
        results = [
            outcome(decision, core.cluster) for decision, core in zip(decisions, self.cores, strict=True)
        ]
        first = decisions[0]
        if any(result != results[0] for result in results):
            return results
        if first.fits:
            for core, decision in zip(self.cores, decisions, strict=True):
                core.assume(decision)
            self.running[pod.uid] = (pod, first.node_name)
            self.waiting.pop(pod.uid, None)
        elif event.carry and first.post_filter is not None and first.post_filter.eviction is not None:
            eviction = first.post_filter.eviction
            for core in self.cores:
                core.cluster.nominate(pod, eviction.node_name)
            self.waiting[pod.uid] = pod
            for victim in eviction.victims[1:]:
                self._delete(victim.uid)
            self._update(eviction.victims[0].uid, terminate=True)
        return results

    def _set_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        for core in self.cores:
            core.cluster.set_node(node)

    def _add(self, pod: Pod, node: str) -> None:
        for core in self.cores:
            core.cluster.add_pod(pod, node)
        self.running[pod.uid] = (pod, node)

    def _delete(self, uid: str) -> None:
        del self.running[uid]
        for core in self.cores:
            core.cluster.remove_pod(uid)

    def _update(self, uid: str, *, terminate: bool) -> None:
        pod, node = self.running[uid]
        changes: dict[str, Any] = {"annotations": {"changed": str(self._count)}}
        if terminate:
            changes["deletion_timestamp"] = EPOCH
        pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **changes))
        for core in self.cores:
            core.cluster.update_pod(pod)
        self.running[uid] = (pod, node)

    def clear_nominations(self) -> None:
        """Removes the nominations of all pods that wait for their victims."""
        for uid in list(self.waiting):
            self._withdraw(uid)

    def _withdraw(self, uid: str) -> None:
        del self.waiting[uid]
        for core in self.cores:
            core.cluster.remove_nomination(uid)
