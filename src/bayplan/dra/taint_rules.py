"""DeviceTaintRules: taints that administrators add to devices, as if the driver had published them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from bayplan.api.devices import Device, DeviceTaintRule, ResourceSlice
from bayplan.api.release import DeviceFeatures


class TaintRules:
    """All DeviceTaintRules. None applies while the feature gates are off."""

    def __init__(self, features: DeviceFeatures) -> None:
        self._is_on = features.taint_rules and features.device_taints
        self._matches_all = features.rules.taint_rule_without_selector_matches_all
        self._rules: dict[str, DeviceTaintRule] = {}

    def put(self, rule: DeviceTaintRule) -> None:
        self._rules[rule.name] = rule

    def remove(self, name: str) -> None:
        self._rules.pop(name, None)

    def may_taint(self, rules: Iterable[DeviceTaintRule], item: ResourceSlice) -> bool:
        """Whether some of these rules, known or not, select driver and pool of the slice."""
        return self._is_on and any(self._selects_pool(rule, item) for rule in rules)

    def tainted(self, item: ResourceSlice) -> ResourceSlice:
        """The slice with the taints of all rules; itself if there are none."""
        if not self._is_on:
            return item
        rules = [rule for rule in self._rules.values() if self._selects_pool(rule, item)]
        if not rules:
            return item
        # Kubernetes has no order of rules; by name it is at least always the same.
        rules.sort(key=lambda rule: rule.name)
        devices = tuple(_with_taints(device, rules) for device in item.spec.devices)
        return replace(item, spec=replace(item.spec, devices=devices))

    def _selects_pool(self, rule: DeviceTaintRule, item: ResourceSlice) -> bool:
        selector, spec = rule.spec.device_selector, item.spec
        if selector is None:
            return self._matches_all
        return selector.driver in (None, spec.driver) and selector.pool in (None, spec.pool.name)


def _with_taints(device: Device, rules: Iterable[DeviceTaintRule]) -> Device:
    taints = tuple(rule.spec.taint for rule in rules if _selects_device(rule, device))
    return replace(device, taints=(*device.taints, *taints)) if taints else device


def _selects_device(rule: DeviceTaintRule, device: Device) -> bool:
    selector = rule.spec.device_selector
    return selector is None or selector.device in (None, device.name)


def has_equal_taints(one: ResourceSlice, other: ResourceSlice) -> bool:
    """Whether the devices of two versions of a slice have the same taints."""
    return [device.taints for device in one.spec.devices] == [device.taints for device in other.spec.devices]
