"""What drivers write about their devices: pools as ResourceSlices, and binding conditions.

As with Kubernetes' resourceslice controller for drivers, a change of one slice is written in place. Any other
change gives the pool a new generation: slices that are no longer needed are deleted, then the others are
updated, then new ones created. In between the scheduler sees an incomplete pool, and waits.

A binding condition is what a driver reports about an allocated device before its pod may be bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from bayplan.api.go_values import seconds_or_1970
from bayplan.api.meta import Content
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper, earliest, with_condition
from bayplan.embedded.drivers.device_file import FAILED, DeviceFile, Driver, expanded
from bayplan.embedded.server.kinds import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from bayplan.embedded.server.validation.device_claims import device_id
from bayplan.embedded.server.validation.device_slices import MAX_DEVICES, MAX_SPECIAL_DEVICES

NETWORK_POOL: Final = "network"
"""The pool of devices that all nodes can use."""


class Publisher(Controller):
    """Publishes the devices of a file. A key is `<driver> <pool>`."""

    name: ClassVar = "device-driver"

    def __init__(self, cluster: Cluster, devices: DeviceFile) -> None:
        super().__init__(cluster)
        self.devices = devices
        self._slices: dict[str, set[str]] = {}
        """The published slices of each pool."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {NODES: self._node, RESOURCE_SLICES: self._slice}

    def _node(self, change: ObjectChange) -> Iterable[str]:
        if change.before is not None and change.after is not None:
            labels = [
                document.parse()["metadata"].get("labels") for document in (change.before, change.after)
            ]
            if labels[0] == labels[1]:
                return ()
        return self._keys_of([change.key])

    def _slice(self, change: ObjectChange) -> Iterable[str]:
        """A slice of ours was changed or deleted by another client, or left over."""
        document = change.after or change.before
        assert document is not None
        spec = document.parse()["spec"]  # driver and pool of a slice never change
        key = f"{spec['driver']} {spec['pool']['name']}"
        slices = self._slices.setdefault(key, set())
        if change.after is not None:
            slices.add(change.key)
        else:
            slices.discard(change.key)
        if not slices:
            del self._slices[key]
        return () if self.devices.driver(spec["driver"]) is None else (key,)

    def replace(self, devices: DeviceFile) -> list[str]:
        """Uses another file. Returns the keys to reconcile."""
        ours = {driver.name for driver in (*self.devices.drivers, *devices.drivers)}
        self.devices = devices
        keys = set(self._keys_of(document.key for document in self.api.documents(NODES)))
        keys |= {key for key in self._slices if key.partition(" ")[0] in ours}
        return sorted(keys)

    def _keys_of(self, nodes: Iterable[str]) -> list[str]:
        nodes = list(nodes)
        keys = []
        for driver in self.devices.drivers:
            pools = [NETWORK_POOL] if driver.all_nodes else nodes
            keys += [f"{driver.name} {pool}" for pool in pools]
        return keys

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        driver, _, pool = key.partition(" ")
        owner, wanted = self._wanted(driver, pool)
        found = (self.cluster.find(RESOURCE_SLICES, name) for name in sorted(self._slices.get(key, ())))
        self._publish([each for each in found if each is not None], wanted, pool, owner)
        return None

    def _wanted(self, name: str, pool: str) -> tuple[Content | None, list[Content]]:
        """The node that a pool belongs to, and the specs of its slices."""
        driver = self.devices.driver(name)
        if driver is None:
            return None, []
        if driver.all_nodes:
            return None, pool_slices(driver, "") if pool == NETWORK_POOL else []
        node = self.cluster.find(NODES, pool)
        if node is None or not driver.is_on(node["metadata"].get("labels") or {}):
            return None, []
        return node, pool_slices(driver, pool)

    def _publish(self, known: list[Content], wanted: list[Content], pool: str, owner: Content | None) -> None:
        generation = max((each["spec"]["pool"]["generation"] for each in known), default=1)
        pairs = list(zip(known, wanted, strict=False))
        specs = [
            _spec(with_taint_times(spec, old["spec"]), pool, generation, len(wanted)) for old, spec in pairs
        ]
        changed = [i for i, (old, _) in enumerate(pairs) if not self._is_same(old, specs[i])]
        if len(known) != len(wanted) or len(changed) > 1:
            generation += 1 if known else 0
            for old in known[len(wanted) :]:
                self.api.delete(RESOURCE_SLICES, old["metadata"]["name"])
            changed = list(range(len(pairs)))
        for i in changed:
            old, spec = pairs[i]
            new = _spec(with_taint_times(spec, old["spec"]), pool, generation, len(wanted))
            self.api.update(RESOURCE_SLICES, {**old, "spec": new})
        for i in range(len(known), len(wanted)):
            self._create(i, _spec(wanted[i], pool, generation, len(wanted)), owner)

    def _is_same(self, old: Content, spec: Content) -> bool:
        """Whether an update would change nothing, after the API server's normalization."""
        updated = self.api.update(RESOURCE_SLICES, {**old, "spec": spec}, dry_run=True)
        return bool(updated["spec"] == old["spec"])

    def _create(self, index: int, spec: Content, owner: Content | None) -> None:
        driver, pool = spec["driver"], spec["pool"]["name"]
        meta: Content = {"generateName": f"{index:05x}-{driver.lower()}-{pool}-"}
        if owner is not None:
            meta["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ]
        self.api.create(RESOURCE_SLICES, {"metadata": meta, "spec": spec})


def _spec(spec: Content, pool: str, generation: int, count: int) -> Content:
    return {**spec, "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}}


_MAX_COUNTER_SETS: Final = 8


def pool_slices(driver: Driver, node: str) -> list[Content]:
    """The specs of a pool's slices; `node` is empty for the pool of the whole cluster.

    Counter sets and devices never share a slice.
    """
    place = {"nodeName": node} if node else {"allNodes": True}
    counters = expanded(driver.shared_counters, node)
    devices = expanded(driver.devices, node)
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    limit = MAX_SPECIAL_DEVICES if special else MAX_DEVICES
    specs = [
        {"driver": driver.name, **place, "sharedCounters": part}
        for part in _parts(counters, _MAX_COUNTER_SETS)
    ]
    specs += [{"driver": driver.name, **place, "devices": part} for part in _parts(devices, limit)]
    return specs or [{"driver": driver.name, **place}]


def _parts(items: list[Content], size: int) -> list[list[Content]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def with_taint_times(spec: Content, old: Content) -> Content:
    """A spec whose taints keep their timeAdded."""
    known = {
        (device["name"], taint.get("key"), taint.get("value"), taint.get("effect")): taint.get("timeAdded")
        for device in old.get("devices") or ()
        for taint in device.get("taints") or ()
    }
    devices = []
    for device in spec.get("devices") or ():
        taints = []
        for taint in device.get("taints") or ():
            same = (device["name"], taint.get("key"), taint.get("value"), taint.get("effect"))
            time = taint.get("timeAdded") or known.get(same)
            taints.append({**taint, "timeAdded": time} if time else taint)
        devices.append({**device, "taints": taints} if taints else device)
    return {**spec, "devices": devices} if devices else spec


_MARKER = b'"bindingConditions"'


class BindingConditions(Controller):
    """Sets the binding conditions of allocated devices, or the failure conditions, after the file's delay."""

    name: ClassVar = "device-driver"

    def __init__(self, cluster: Cluster, devices: DeviceFile) -> None:
        super().__init__(cluster)
        self.devices = devices

    def watches(self) -> dict[Resource, KeyMapper]:
        return {RESOURCE_CLAIMS: self._claim}

    def _claim(self, change: ObjectChange) -> Iterable[str]:
        return (change.key,) if change.after is not None and _MARKER in change.after.body else ()

    def reconcile(self, key: str) -> float | None:
        claim = self.cluster.find(RESOURCE_CLAIMS, key)
        allocation = ((claim or {}).get("status") or {}).get("allocation")
        if claim is None or not allocation:
            return None
        waits = []
        for result in (allocation.get("devices") or {}).get("results") or ():
            driver = self.devices.driver(result["driver"])
            if driver is not None and result.get("bindingConditions"):
                since = seconds_or_1970(allocation.get("allocationTimestamp") or self.api.now())
                left = since + driver.binding_seconds - self.api.time()
                if left > 0:
                    waits.append(left)
                else:
                    self._report(claim, result, driver)
        if claim != self.cluster.find(RESOURCE_CLAIMS, key):
            self.api.update(RESOURCE_CLAIMS, claim, subresource="status")
        return earliest(*waits)

    def _report(self, claim: Content, result: Content, driver: Driver) -> None:
        """Writes the conditions of one device into the status of a claim."""
        devices = claim["status"].setdefault("devices", [])
        entry = next((each for each in devices if device_id(each) == device_id(result)), None)
        if entry is None:
            names = ("driver", "pool", "device", "shareID")
            entry = {name: result[name] for name in names if name in result}
            devices.append(entry)
        failed = driver.binding_result == FAILED
        kinds = result["bindingFailureConditions"][:1] if failed else result["bindingConditions"]
        for kind in kinds:
            reason = "SimulatedFailure" if failed else "Simulated"
            message = f"{driver.name} {'could not prepare' if failed else 'has prepared'} {result['device']}"
            entry["conditions"] = with_condition(
                entry.get("conditions"), kind, "True", reason, message, self.api.now()
            )
