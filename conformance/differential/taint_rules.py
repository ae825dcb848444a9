"""DeviceTaintRules of a scenario: they come, change and go between pods."""

from __future__ import annotations

from conformance.differential.devices import API, DRIVER, TAINT_EFFECTS
from conformance.differential.drawing import Draw, Raw


class TaintRules:
    """Draws rules for the devices of `devices.py`."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._names: list[str] = []

    def steps(self) -> list[Raw]:
        """Often nothing; otherwise a rule is created, changed or deleted."""
        draw = self._draw
        if not draw.maybe(0.25):
            return []
        if self._names and draw.maybe(0.4):
            return [{"op": "delete", "kind": "DeviceTaintRule", "name": self._names.pop()}]
        if self._names and draw.maybe(0.3):
            return [{"op": "update", "object": self._rule(draw.choice(self._names))}]
        self._names.append(draw.name("rule"))
        return [{"op": "create", "object": self._rule(self._names[-1])}]

    def _rule(self, name: str) -> Raw:
        draw = self._draw
        spec: Raw = {
            "taint": {
                "key": "health",
                "value": draw.choice(("poor", "bad")),
                "effect": draw.choice(TAINT_EFFECTS),
                "timeAdded": "2026-01-01T00:00:00Z",
            }
        }
        if draw.maybe(0.9):
            selector: Raw = {}
            if draw.maybe(0.5):
                selector["driver"] = draw.choice((DRIVER, DRIVER, "nic.example.com"))
            if draw.maybe(0.5):
                selector["pool"] = f"n{draw.randint(1, 12)}"
            if draw.maybe(0.5):
                selector["device"] = f"gpu-{draw.randint(0, 3)}"
            spec["deviceSelector"] = selector
        return {"apiVersion": API, "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}
