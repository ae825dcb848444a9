"""Scenarios from a seed: nodes, pods and what else decisions depend on, in unlikely combinations.

A scenario is a run (`conformance/runs/README.md`) without outcomes. What goes in are objects as a user would
write them (`nodes.py`, `pods.py`, `workloads.py`, `storage.py`, `devices.py`) and a configuration
(`configurations.py`). The API server defaults and checks objects when they are played; one that it rejects is
left out.
"""

from __future__ import annotations

from collections.abc import Collection

from conformance.differential.configurations import make_configuration
from conformance.differential.devices import Devices, everywhere
from conformance.differential.drawing import APPS, NAMESPACES, Draw, Raw, Theme
from conformance.differential.nodes import Nodes
from conformance.differential.pods import Pods
from conformance.differential.storage import make_storage
from conformance.differential.taint_rules import TaintRules
from conformance.differential.workloads import budget, replica_set, service


class Scenario:
    """Makes one scenario."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int = 90,
        devices: bool | None = None,
        new_kinds: Collection[str] = frozenset(),
    ) -> None:
        """Where `devices` is None, three scenarios in ten have devices.

        `new_kinds` are kinds of later releases that occur. What else happens does not depend on them.
        """
        self.seed = seed
        self._steps = steps
        self._draw = Draw(seed)
        self._theme = Theme.drawn(self._draw)
        self._nodes = Nodes(self._draw)
        self._pods = Pods(self._draw, self._theme, self._nodes)
        draw = Draw(f"devices {seed}")
        if devices is None:
            devices = draw.maybe(0.3)
        self._device_draw = draw
        self._devices = Devices(draw) if devices else None
        self._claims: list[Raw] = []
        self._rules = TaintRules(Draw(f"rules {seed}")) if "DeviceTaintRule" in new_kinds else None

    def make(self) -> Raw:
        """The whole scenario."""
        steps: list[Raw] = [_create(item) for item in self._others()]
        for _ in range(self._draw.randint(3, 20)):
            steps += self._new_node()
        while len(steps) < self._steps:
            steps.extend(self._claiming(self._one_step()))
        return {
            "name": f"differential-{self.seed}",
            "kind": "differential",
            "config": make_configuration(self._draw, self._nodes),
            "namespaces": {
                name: {"kubernetes.io/metadata.name": name, **labels} for name, labels in NAMESPACES.items()
            },
            "steps": steps,
        }

    def _others(self) -> list[Raw]:
        draw, theme = self._draw, self._theme
        items: list[Raw] = []
        if theme.owned:
            items += [service(draw, app) for app in draw.some(APPS)]
            items += [replica_set(app, namespace) for app in APPS for namespace in ("default", "prod")]
        if theme.preempts:
            items += [budget(draw, number) for number in range(draw.randint(0, 3))]
        if theme.volumes:
            items += make_storage(draw)
        if self._devices is not None:
            items += self._devices.classes()
            items += [everywhere()] if self._device_draw.maybe(0.5) else []
        return items

    def _new_node(self) -> list[Raw]:
        node = self._nodes.make()
        slices = [] if self._devices is None else self._devices.slices(node["metadata"]["name"])
        return [_create(item) for item in (node, *slices)]

    def _claiming(self, steps: list[Raw]) -> list[Raw]:
        """The steps with claims for some of their pods, each created before the pod or shared with others."""
        if self._devices is None:
            return steps
        draw, found = self._device_draw, []
        for step in steps:
            if step["op"] == "schedule" and draw.maybe(0.7):
                namespace = step["pod"]["metadata"]["namespace"]
                known = [claim for claim in self._claims if claim["metadata"]["namespace"] == namespace]
                if known and draw.maybe(0.25):
                    claim = draw.choice(known[-3:])
                else:
                    claim = self._devices.claim(namespace)
                    self._claims.append(claim)
                    found.append(_create(claim))
                entry = {"name": "devices", "resourceClaimName": claim["metadata"]["name"]}
                pod = step["pod"]
                step = {**step, "pod": {**pod, "spec": {**pod["spec"], "resourceClaims": [entry]}}}
            found.append(step)
        if draw.maybe(0.15):
            found.append({"op": "free-some-claim", "choice": draw.random()})
        return found if self._rules is None else [*found, *self._rules.steps()]

    def _one_step(self) -> list[Raw]:
        draw, what = self._draw, self._draw.random()
        if what < 0.05:
            return self._new_node()
        if what < 0.11 and len(self._nodes):
            return [{"op": "update", "object": self._nodes.change()}]
        if what < 0.13 and len(self._nodes) > 3:
            return [{"op": "delete", "kind": "Node", "name": self._nodes.remove()}]
        if what < 0.19:
            return [{"op": "delete-some-pod", "choice": draw.random()}]
        pod = self._pods.make()
        if draw.maybe(0.5):
            return [{"op": "schedule", "pod": pod}]
        # Pods of a kind come in groups.
        copies = []
        for _ in range(draw.randint(2, 6)):
            meta = {**pod["metadata"], "name": draw.name("p")}
            copies.append({"op": "schedule", "pod": {**pod, "metadata": meta}})
        return copies


def _create(item: Raw) -> Raw:
    return {"op": "create", "object": item}
