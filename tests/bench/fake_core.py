"""A minimal scheduler: a node takes `room` pods, the first with room is chosen."""

from __future__ import annotations

from dataclasses import dataclass, field

from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.bench.runner import MeasuredCore, Outcome


@dataclass
class FakeCore(MeasuredCore):
    """Pods that request more CPU than a node has fit nowhere; higher priority evicts the first two."""

    room: int = 1000
    rows_evaluated: int = 0
    namespaces: list[str] = field(default_factory=list)
    running: dict[str, list[Pod]] = field(default_factory=dict)
    attempts: list[str] = field(default_factory=list)

    def add_namespace(self, namespace: Namespace) -> None:
        self.namespaces.append(namespace.name)

    def add_node(self, node: Node) -> None:
        self.running[node.name] = []

    def schedule_one(self, pod: Pod) -> Outcome:
        self.attempts.append(pod.name)
        self.rows_evaluated += len(self.running)
        if pod.spec.containers[0].resources.requests["cpu"] == "9":
            return Outcome()
        for node, pods in self.running.items():
            if len(pods) < self.room:
                pods.append(pod)
                return Outcome(node)
        lower = [other for pods in self.running.values() for other in pods if other.priority < pod.priority]
        return Outcome(victims=lower[:2])

    def evict(self, preemptor: Pod, outcome: Outcome) -> None:
        gone = {pod.uid for pod in outcome.victims}
        for node, pods in self.running.items():
            self.running[node] = [pod for pod in pods if pod.uid not in gone]
