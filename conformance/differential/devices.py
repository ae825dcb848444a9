"""Devices of a scenario: slices of the nodes, classes, and claims that pods name.

Neither a claim controller nor a driver runs here. A claim keeps its devices when its pod is deleted, until a
step frees it, for both schedulers in the same way.
"""

from __future__ import annotations

from typing import Final

from conformance.differential.drawing import ZONE, Draw, Raw

DRIVER: Final = "gpu.example.com"
API: Final = "resource.k8s.io/v1"
MODELS: Final = ("a100", "h100", "l4")
SELECTORS: Final = (
    f'device.attributes["{DRIVER}"].model == "a100"',
    f'device.attributes["{DRIVER}"].model in ["h100", "l4"]',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    f'device.attributes["{DRIVER}"].index < 2',
    f'has(device.attributes["{DRIVER}"].tier) && device.attributes["{DRIVER}"].tier == "gold"',
    f'device.attributes["{DRIVER}"].version.isGreaterThan(semver("1.1.0"))',
    f'device.driver == "{DRIVER}"',
)
TAINT_EFFECTS: Final = ("NoSchedule", "NoExecute", "None")
TOLERATIONS: Final = ({"operator": "Exists"}, {"key": "health", "operator": "Equal", "value": "poor"})


class Devices:
    """Draws slices and claims."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def classes(self) -> list[Raw]:
        return [
            _class("gpu", f'device.driver == "{DRIVER}"'),
            _class("large-gpu", f'device.driver == "{DRIVER}"', SELECTORS[2]),
            _class("nothing", "false"),
        ]

    def slices(self, node_name: str) -> list[Raw]:
        """What a node offers: whole devices, partitions of one device, shared devices, or nothing."""
        draw = self._draw
        what = draw.random()
        if what < 0.2:
            return []
        if what < 0.35:
            return self._partitions(node_name)
        devices = [self._device(number) for number in range(draw.randint(1, 5))]
        if draw.maybe(0.25):
            half = len(devices) // 2
            return [
                _slice(node_name, "a", 2, devices=devices[:half]),
                _slice(node_name, "b", 2, devices=devices[half:]),
            ]
        return [_slice(node_name, "a", 1, devices=devices)]

    def _device(self, number: int) -> Raw:
        draw = self._draw
        memory = draw.choice(("16Gi", "40Gi", "80Gi"))
        device: Raw = {
            "name": f"gpu-{number}",
            "attributes": {
                "model": {"string": draw.choice(MODELS)},
                "index": {"int": number},
                "version": {"version": draw.choice(("1.0.0", "1.2.3", "2.0.0-rc.1"))},
                "example.com/numa": {"int": number % 2},
            },
            "capacity": {"memory": {"value": memory}},
        }
        if draw.maybe(0.3):
            device["attributes"]["tier"] = {"string": draw.choice(("gold", "silver"))}
        if draw.maybe(0.15):
            device["taints"] = [
                {
                    "key": "health",
                    "value": "poor",
                    "effect": draw.choice(TAINT_EFFECTS),
                    "timeAdded": "2026-01-01T00:00:00Z",
                }
            ]
        if draw.maybe(0.2):
            device["allowMultipleAllocations"] = True
            device["capacity"]["memory"]["requestPolicy"] = {
                "default": "8Gi",
                "validRange": {"min": "4Gi", "step": "4Gi", "max": memory},
            }
        return device

    def _partitions(self, node_name: str) -> list[Raw]:
        """One device in halves and as a whole, of which the counters allow two halves or the whole."""
        counters = {"counterSet": "memory", "counters": {"slots": {"value": "1"}}}
        whole = {"counterSet": "memory", "counters": {"slots": {"value": "2"}}}
        devices = []
        for name, consumed in (("whole", whole), ("half-0", counters), ("half-1", counters)):
            device = self._device(0)
            device |= {"name": name, "consumesCounters": [consumed]}
            devices.append(device)
        shared = {"name": "memory", "counters": {"slots": {"value": "2"}}}
        return [
            _slice(node_name, "counters", 2, sharedCounters=[shared]),
            _slice(node_name, "devices", 2, devices=devices),
        ]

    def claim(self, namespace: str) -> Raw:
        draw = self._draw
        requests = [self._request(number) for number in range(draw.choice((1, 1, 1, 2)))]
        spec: Raw = {"requests": requests}
        # "All" with a constraint that cannot be met is an error of the attempt, after which kube-scheduler's
        # search continues from a node that depends on its threads.
        if draw.maybe(0.3) and not any(_requests_all(request) for request in requests):
            attribute = draw.choice(("example.com/numa", f"{DRIVER}/model", f"{DRIVER}/tier"))
            key = draw.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
            spec["constraints"] = [{key: attribute}]
        if draw.maybe(0.15):
            parameters = {"mode": draw.choice(("fast", "exact"))}
            spec["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
        return {
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": {"name": draw.name("claim"), "namespace": namespace},
            "spec": {"devices": spec},
        }

    def _request(self, number: int) -> Raw:
        name = f"r{number}"
        if self._draw.maybe(0.2):
            alternatives = [
                {"name": f"s{index}", **self._wanted()} for index in range(self._draw.randint(1, 3))
            ]
            return {"name": name, "firstAvailable": alternatives}
        return {"name": name, "exactly": self._wanted()}

    def _wanted(self) -> Raw:
        draw = self._draw
        wanted: Raw = {
            "deviceClassName": draw.choice(("gpu", "gpu", "gpu", "large-gpu", "nothing", "missing"))
        }
        if draw.maybe(0.5):
            chosen = draw.sample(SELECTORS, draw.choice((1, 1, 2)))
            wanted["selectors"] = [{"cel": {"expression": expression}} for expression in chosen]
        if draw.maybe(0.1):
            wanted["allocationMode"] = "All"
        elif draw.maybe(0.3):
            wanted["count"] = draw.randint(1, 3)
        if draw.maybe(0.3):
            wanted["tolerations"] = [draw.choice(TOLERATIONS)]
        if draw.maybe(0.2):
            wanted["capacity"] = {"requests": {"memory": draw.choice(("1Gi", "8Gi", "20Gi"))}}
        return wanted


def _requests_all(request: Raw) -> bool:
    options = [request["exactly"]] if "exactly" in request else request["firstAvailable"]
    return any(option.get("allocationMode") == "All" for option in options)


def everywhere() -> Raw:
    """A pool that every node of one zone can use, over the network."""
    selector = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}]
    }
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": "h100"}, "index": {"int": number}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for number in range(4)
    ]
    item = _slice("network", "a", 1, devices=devices)
    del item["spec"]["nodeName"]
    item["spec"]["nodeSelector"] = selector
    return item


def _slice(node_name: str, part: str, count: int, **content: list[Raw]) -> Raw:
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-{part}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": count},
            **content,
        },
    }


def _class(name: str, *expressions: str) -> Raw:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors},
    }
