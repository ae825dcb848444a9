"""Random scenarios for the device allocator: small clusters in which every rule has a chance to matter.

Names and values are few, so that devices, requests, counters, taints and constraints often meet. Objects have
the defaults of an API server; not all of them would pass its validation.
"""

from __future__ import annotations

from typing import Final

from conformance.differential.drawing import HOST, ZONE, Draw, Raw

_API: Final = "resource.k8s.io/v1"
_DRIVERS: Final = ("a.example.com", "b.example.com")
_EXTENDED: Final = "example.com/gpu"
_ZONES: Final = ("z0", "z1", "z2")
_TAINTS: Final = tuple(
    {"key": key, "value": value, "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}
    for key in ("k0", "k1")
    for value in ("x", "y")
    for effect in ("NoSchedule", "NoExecute", "None")
)
_TOLERATIONS: Final[tuple[Raw, ...]] = (
    {"operator": "Exists"},
    {"key": "k0", "operator": "Exists"},
    {"key": "k0", "operator": "Equal", "value": "x"},
    {"key": "k1", "operator": "Equal", "value": "y", "effect": "NoSchedule"},
    {"key": "k1", "operator": "Exists", "effect": "NoExecute"},
    {"key": "k0", "operator": "Unknown", "value": "x"},
)
_SELECTORS: Final = (
    'device.driver == "a.example.com"',
    'device.attributes["a.example.com"].?model.orValue("m0") == "m0"',
    'has(device.attributes["a.example.com"].model) && device.attributes["a.example.com"].model != "m1"',
    'device.attributes["example.com"].?numa.orValue(0) == 0',
    'device.capacity["a.example.com"].?mem.orValue(quantity("4Gi")).compareTo(quantity("4Gi")) >= 0',
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    'device.attributes["b.example.com"].?index.orValue(1) > 0',
    "true",
)
_FRAGILE_SELECTORS: Final = (
    'device.attributes["a.example.com"].version.isGreaterThan(semver("1.0.0"))',
    'device.attributes["a.example.com"].model == "m0"',
    'device.attributes["a.example.com"].model',
    "1 +",
    "false",
)
"""They fail for some devices, or for all."""
_ATTRIBUTES: Final = ("a.example.com/model", "b.example.com/model", "example.com/numa", "a.example.com/index")
_SIZES: Final = ("1Gi", "2Gi", "4Gi", "8Gi", "1500Mi", "3", "500m")


class Scenarios:
    """Draws scenarios in the form of the recorded allocations."""

    def __init__(self, seed: int) -> None:
        self._draw = Draw(seed)
        self._name = f"oracle-{seed}"
        self._devices: list[tuple[str, str, Raw]] = []
        """Driver, pool and device of everything on offer."""

    def scenario(self) -> Raw:
        draw = self._draw
        nodes = [self._node(f"n{index}") for index in range(draw.randint(1, 4))]
        slices = [
            each
            for driver in _DRIVERS
            for pool in range(draw.choice((0, 1, 1, 2)))
            for each in self._pool(driver, f"p{pool}", len(nodes))
        ]
        taken = [self._taken_claim(index) for index in range(draw.choice((0, 0, 1, 2, 4)))]
        waiting = [self._claim(f"w{index}") for index in range(draw.randint(1, 4))]
        pods = [self._pod(f"p{index}", waiting, taken) for index in range(draw.randint(1, 3))]
        objects = [*nodes, *self._classes(), *slices, *taken, *waiting]
        return {"scenario": {"name": self._name, "objects": objects, "pods": pods}}

    def _node(self, name: str) -> Raw:
        draw = self._draw
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        if draw.maybe(0.2):
            allocatable[_EXTENDED] = draw.choice(("0", "2"))
        labels = {HOST: name, ZONE: draw.choice(_ZONES), "cores": draw.choice(("4", "16"))}
        return {
            **_meta("v1", "Node", name, labels=labels),
            "spec": {},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }

    def _classes(self) -> list[Raw]:
        draw = self._draw
        classes = [("all", []), ("a", [_SELECTORS[0]]), ("some", draw.sample(_SELECTORS, 2))]
        if draw.maybe(0.1):
            classes.append(("odd", [draw.choice(_FRAGILE_SELECTORS)]))
        made = []
        for name, expressions in classes:
            spec: Raw = {"selectors": [{"cel": {"expression": each}} for each in expressions]}
            if draw.maybe(0.3):
                spec["config"] = [_opaque(draw, number) for number in range(draw.randint(1, 2))]
            if name == "a" and draw.maybe(0.5):
                spec["extendedResourceName"] = _EXTENDED
            made.append({**_meta(_API, "DeviceClass", name), "spec": spec})
        return made

    def _pool(self, driver: str, pool: str, nodes: int) -> list[Raw]:
        draw = self._draw
        has_counters = draw.maybe(0.3)
        contents: list[Raw] = []
        if has_counters:
            counters = {
                name: {"value": draw.choice(("1", "2", "4", "1Gi"))}
                for name in ("c0", "c1", "c2")[: 3 if draw.maybe(0.9) else 1]
            }
            sets = [
                {"name": name, "counters": counters} for name in ("s0", "s1")[: 2 if draw.maybe(0.9) else 1]
            ]
            contents.append({"sharedCounters": sets})
        where = self._where(nodes)
        for _ in range(draw.choice((1, 1, 2))):
            per_device = draw.maybe(0.2)
            devices = [
                self._device(driver, pool, has_counters, nodes if per_device else 0)
                for _ in range(draw.randint(1, 4))
            ]
            if draw.maybe(0.3):
                where = self._where(nodes)
            contents.append(
                {"devices": devices, **({"perDeviceNodeSelection": True} if per_device else where)}
            )
        if has_counters:
            contents[0] |= where
        generation, count = draw.choice((1, 1, 2)), len(contents)
        if draw.maybe(0.04):
            count += draw.choice((-1, 1))
        slices = []
        for content in contents:
            age = generation + (draw.choice((-1, 1)) if draw.maybe(0.03) else 0)
            spec = {
                "driver": driver,
                "pool": {"name": pool, "generation": max(age, 0), "resourceSliceCount": max(count, 1)},
                **content,
            }
            name = f"{draw.choice('abcdef')}-{draw.name('s')}"
            slices.append({**_meta(_API, "ResourceSlice", name), "spec": spec})
        return slices

    def _where(self, nodes: int) -> Raw:
        draw = self._draw
        node = f"n{draw.randrange(nodes)}"
        what = draw.random()
        if what < 0.4:
            return {"nodeName": node}
        if what < 0.6:
            return {"allNodes": True}
        requirements = (
            {"key": ZONE, "operator": "In", "values": draw.sample(_ZONES, draw.randint(1, 2))},
            {"key": ZONE, "operator": "NotIn", "values": [draw.choice(_ZONES)]},
            {"key": "cores", "operator": "Gt", "values": ["8"]},
            {"key": "cores", "operator": "Lt", "values": ["8"]},
            {"key": HOST, "operator": "Exists"},
            {"key": "nosuch", "operator": "DoesNotExist"},
        )
        term: Raw = {"matchExpressions": draw.sample(requirements, draw.randint(1, 2))}
        if draw.maybe(0.2):
            term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        terms = [term]
        if draw.maybe(0.05):
            terms.append({"matchExpressions": [draw.choice(requirements)]})
        return {"nodeSelector": {"nodeSelectorTerms": terms}}

    def _device(self, driver: str, pool: str, has_counters: bool, nodes: int) -> Raw:
        draw = self._draw
        name = draw.name("d") if draw.maybe(0.995) else "d0"
        attributes: Raw = {
            draw.choice(("model", f"{driver}/model")): {"string": draw.choice(("m0", "m1"))},
            "index": {"int": draw.randrange(3)},
            "version": {"version": draw.choice(("1.0.0", "1.2.3"))},
            "example.com/numa": draw.choice(({"int": 0}, {"int": 1}, {"string": "0"})),
        }
        kept = [key for key in attributes if draw.maybe(0.85)]
        shared = draw.maybe(0.3)
        device: Raw = {"name": name, "attributes": {key: attributes[key] for key in kept}}
        capacity = {key: self._capacity(shared) for key in ("mem", "cores") if draw.maybe(0.7)}
        if capacity:
            device["capacity"] = capacity
        if shared:
            device["allowMultipleAllocations"] = True
        if has_counters and draw.maybe(0.7):
            counters = {
                name: {"value": draw.choice(("1", "2", "500m"))}
                for name in draw.sample(("c0", "c1", "c2"), draw.choice((1, 1, 2)))
            }
            device["consumesCounters"] = [
                {"counterSet": draw.choice(("s0", "s0", "s1")), "counters": counters}
            ]
        if draw.maybe(0.25):
            device["taints"] = draw.sample(_TAINTS, draw.randint(1, 2))
        if draw.maybe(0.08):
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
        if draw.maybe(0.1):
            device["bindsToNode"] = True
        if nodes:
            device |= self._where(nodes)
        self._devices.append((driver, pool, device))
        return device

    def _capacity(self, shared: bool) -> Raw:
        draw = self._draw
        value = draw.choice(("8Gi", "4Gi", "4"))
        if not shared or draw.maybe(0.4):
            return {"value": value}
        policy: Raw = {"default": draw.choice(("1Gi", "1", "2Gi"))}
        if draw.maybe(0.4):
            policy["validValues"] = ["1", "2", "1Gi", "2Gi"]
        elif draw.maybe(0.7):
            policy["validRange"] = {"min": draw.choice(("1", "1Gi", "500m"))}
            if draw.maybe(0.6):
                policy["validRange"]["step"] = draw.choice(("1Gi", "1", "512Mi"))
            if draw.maybe(0.5):
                policy["validRange"]["max"] = draw.choice(("4Gi", "3"))
        return {"value": value, "requestPolicy": policy}

    def _claim(self, name: str) -> Raw:
        draw = self._draw
        requests = [self._request(f"r{index}") for index in range(draw.choice((1, 1, 1, 2, 3)))]
        devices: Raw = {"requests": requests}
        names = [each["name"] for each in requests] + [
            f"{each['name']}/{sub['name']}" for each in requests for sub in each.get("firstAvailable", ())
        ]
        if draw.maybe(0.35):
            devices["constraints"] = [
                self._limited(
                    {draw.choice(("matchAttribute", "distinctAttribute")): draw.choice(_ATTRIBUTES)}, names
                )
                for _ in range(draw.choice((1, 1, 2)))
            ]
        if draw.maybe(0.25):
            devices["config"] = [
                self._limited(_opaque(draw, number), names) for number in range(draw.randint(1, 2))
            ]
        return {**_meta(_API, "ResourceClaim", name, namespace="default"), "spec": {"devices": devices}}

    def _limited(self, content: Raw, names: list[str]) -> Raw:
        draw = self._draw
        if draw.maybe(0.5):
            return content
        return {**content, "requests": draw.sample(names, draw.randint(1, min(2, len(names))))}

    def _request(self, name: str) -> Raw:
        draw = self._draw
        if draw.maybe(0.25):
            subrequests = [{"name": f"s{index}", **self._wanted()} for index in range(draw.randint(1, 3))]
            return {"name": name, "firstAvailable": subrequests}
        wanted = self._wanted()
        if draw.maybe(0.1):
            wanted["adminAccess"] = True
        return {"name": name, "exactly": wanted}

    def _wanted(self) -> Raw:
        draw = self._draw
        wanted: Raw = {"deviceClassName": draw.choice(("all", "all", "a", "some"))}
        if draw.maybe(0.03):
            wanted["deviceClassName"] = draw.choice(("nosuch", "odd"))
        if draw.maybe(0.35):
            choices = _SELECTORS if draw.maybe(0.93) else _FRAGILE_SELECTORS
            chosen = draw.sample(choices, draw.choice((1, 1, 2)))
            wanted["selectors"] = [{"cel": {"expression": each}} for each in chosen]
        if draw.maybe(0.1):
            wanted["allocationMode"] = "All"
        else:
            count = draw.choice((1, 1, 1, 1, 2, 2, 33 if draw.maybe(0.1) else 3))
            wanted |= {"allocationMode": "ExactCount", "count": count}
        if draw.maybe(0.4):
            wanted["tolerations"] = draw.sample(_TOLERATIONS, draw.randint(1, 2))
        if draw.maybe(0.25):
            names = draw.sample(("mem", "cores", "a.example.com/mem"), draw.choice((1, 1, 2)))
            wanted["capacity"] = {"requests": {name: draw.choice(_SIZES) for name in names}}
        return wanted

    def _taken_claim(self, index: int) -> Raw:
        """A claim that has devices: it makes them taken, shared or partly used."""
        draw = self._draw
        claim = self._claim(f"t{index}")
        results = []
        for driver, pool, device in draw.sample(self._devices, min(len(self._devices), draw.randint(1, 3))):
            result: Raw = {"request": "r0", "driver": driver, "pool": pool, "device": device["name"]}
            if device.get("allowMultipleAllocations"):
                result["shareID"] = f"00000000-0000-0000-0000-{index:012d}"
                used = {name: draw.choice(("1Gi", "1", "2Gi")) for name in device.get("capacity", ())}
                if used:
                    result["consumedCapacity"] = used
            elif draw.maybe(0.15):
                result["adminAccess"] = True
            results.append(result)
        allocation: Raw = {"devices": {"results": results}}
        if draw.maybe(0.3):
            allocation |= {key: value for key, value in self._where(2).items() if key == "nodeSelector"}
        claim["status"] = {"allocation": allocation}
        return claim

    def _pod(self, name: str, waiting: list[Raw], taken: list[Raw]) -> Raw:
        draw = self._draw
        claims = draw.sample(waiting, draw.randint(1, min(2, len(waiting))))
        if taken and draw.maybe(0.2):
            claims.append(draw.choice(taken))
        named = [claim["metadata"]["name"] for claim in claims]
        if draw.maybe(0.02):
            named.append("nosuch")
        containers = [
            {"name": "c0", "image": "i", "resources": {}},
            {"name": "c1", "image": "i", "resources": {}},
        ]
        if draw.maybe(0.15):
            for container in draw.sample(containers, draw.randint(1, 2)):
                amount = {_EXTENDED: draw.choice(("1", "2"))}
                container["resources"] = {"requests": amount, "limits": amount}
        spec: Raw = {
            "schedulerName": "default-scheduler",
            "containers": containers,
            "resourceClaims": [
                {"name": f"x{index}", "resourceClaimName": each} for index, each in enumerate(named)
            ],
        }
        return {**_meta("v1", "Pod", name, namespace="default"), "spec": spec, "status": {}}


def _meta(api: str, kind: str, name: str, **fields: object) -> Raw:
    metadata = {"name": name, "uid": f"uid-{kind}-{name}", "resourceVersion": "1", **fields}
    return {"apiVersion": api, "kind": kind, "metadata": metadata}


def _opaque(draw: Draw, number: int) -> Raw:
    return {"opaque": {"driver": draw.choice(_DRIVERS), "parameters": {"number": number}}}
