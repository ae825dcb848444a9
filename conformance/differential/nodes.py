"""Nodes of a scenario, and terms that select some of them.

No node has images: how many nodes have one is counted differently deliberately (`docs/differences.md`).
"""

from __future__ import annotations

from typing import Final

from conformance.differential.drawing import HOST, REGION, ZONE, Draw, Raw

TAINTS: Final = (
    {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "batch", "effect": "PreferNoSchedule"},
    {"key": "flaky", "effect": "PreferNoSchedule"},
    {"key": "broken", "effect": "NoExecute"},
)


class Nodes:
    """The nodes that are there."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._made: dict[str, Raw] = {}

    def __len__(self) -> int:
        return len(self._made)

    def make(self) -> Raw:
        draw = self._draw
        name = draw.name("n")
        labels = {HOST: name, "kubernetes.io/os": "linux"}
        if draw.maybe(0.9):
            labels[ZONE] = draw.choice(("z1", "z2", "z3"))
        if draw.maybe(0.3):
            labels[REGION] = draw.choice(("r1", "r2"))
        labels |= {"disk": draw.choice(("ssd", "hdd"))} if draw.maybe(0.5) else {}
        labels |= {"size": str(draw.randint(1, 9))} if draw.maybe(0.4) else {}
        if draw.maybe(0.05):
            del labels[HOST]
        amounts = {
            "cpu": draw.choice(("2", "4", "8", "3900m")),
            "memory": draw.choice(("4Gi", "8Gi", "7900Mi", "16Gi")),
            "pods": draw.choice(("4", "10", "110", "110")),
        }
        if draw.maybe(0.5):
            amounts["ephemeral-storage"] = draw.choice(("20Gi", "100Gi"))
        if draw.maybe(0.3):
            amounts["example.com/gpu"] = str(draw.randint(1, 8))
        node: Raw = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {
                "capacity": amounts,
                "allocatable": dict(amounts),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        if draw.maybe(0.25):
            node["spec"]["taints"] = draw.some(TAINTS, 2)
        if draw.maybe(0.06):
            node["spec"]["unschedulable"] = True
        self._made[name] = node
        return node

    def change(self) -> Raw:
        """One of them, changed."""
        name = self._draw.choice(list(self._made))
        old, new = self._made[name], self.make()
        del self._made[new["metadata"]["name"]]
        new["metadata"]["name"] = name
        if HOST in new["metadata"]["labels"]:
            new["metadata"]["labels"][HOST] = name
        part = self._draw.choice(("metadata", "spec", "status"))
        changed = {**old, part: new[part]}
        self._made[name] = changed
        return changed

    def remove(self) -> str:
        """The name of one that is taken away."""
        name: str = self._draw.choice(list(self._made))
        del self._made[name]
        return name

    def term(self) -> Raw:
        """A term that selects some of them."""
        term: Raw = {"matchExpressions": [self._requirement() for _ in range(self._draw.randint(1, 2))]}
        if self._draw.maybe(0.1) and self._made:
            name = self._draw.choice(list(self._made))
            operator = self._draw.choice(("In", "NotIn"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
        return term

    def _requirement(self) -> Raw:
        draw = self._draw
        return draw.choice(
            (
                {"key": "disk", "operator": "In", "values": ["ssd"]},
                {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
                {"key": ZONE, "operator": "In", "values": draw.sample(["z1", "z2", "z3"], 2)},
                {"key": "size", "operator": "Gt", "values": [str(draw.randint(1, 6))]},
                {"key": "size", "operator": "Lt", "values": [str(draw.randint(4, 9))]},
                {"key": "size", "operator": "Exists"},
                {"key": REGION, "operator": "DoesNotExist"},
            )
        )
