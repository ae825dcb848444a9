"""What changed between two releases, rule by rule.

Every rule can be applied on its own to the older release. So a decision that differs can be attributed to the
rules that change it (`explain/upgrade.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bayplan.api.releases.release import Release

TITLES: Final = {
    "default_plugins": "the order of the default plugins",
    "preemption_success": "a preemption that finds victims has a message",
    "accounting": "requests of pods that are being resized",
    "budget_walk_stops": "a violated PodDisruptionBudget ends the walk over the budgets of a pod",
    "image_volumes_raise_limit": "ImageLocality counts image volumes like containers",
    "namespace_selectors_by_name": "namespaceSelectors of incoming pods select only namespaces they match",
    "queue.nominates_gated_pods": "gated pods count as nominated",
    "devices.distinct_over_all_devices": "distinctAttribute compares all devices",
    "devices.all_includes_exhausted_devices": "requests for All devices include exhausted ones",
    "devices.counter_slices_by_node": "slices with shared counters are visible only on their nodes",
    "devices.share_without_capacity_is_use": "a share without capacity uses the device",
    "devices.uncomputable_capacity_is_error": "a capacity that cannot be computed is an error",
    "devices.device_limit_names_request": "the message for too many devices",
    "devices.cel_error_names_device": "the message of CEL runtime errors",
    "devices.config_entries_once": "configuration entries in allocation results",
    "devices.consumed_capacity_format_of_step": "the number format of consumed capacity",
    "devices.ignores_compatibility_groups": "slices with compatibility groups are ignored",
    "devices.taint_rule_without_selector_matches_all": "DeviceTaintRules without a selector match nothing",
    "devices.post_filter_without_message": "DynamicResources has no message if it frees no claim",
}
"""The rules that can change a decision or its message, by field of `Release`. Others concern the queue, the
configuration and metrics."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One rule that differs between two releases."""

    name: str
    """The field of `Release`, or `gate NAME`."""
    title: str
    gate: str = ""

    def applied(self, old: Release, new: Release) -> Release:
        """The older release with this one rule of the newer one."""
        if self.gate:
            features = {**old.features, self.gate: new.features[self.gate]}
            return dataclasses.replace(old, features=features, gates=old.gates ^ {self.gate})
        part, _, field = self.name.rpartition(".")
        if not part:
            return dataclasses.replace(old, **{field: getattr(new, field)})
        value = getattr(getattr(new, part), field)
        rules: Any = dataclasses.replace(getattr(old, part), **{field: value})
        return dataclasses.replace(old, **{part: rules})


def rule_changes(old: Release, new: Release) -> Iterator[RuleChange]:
    """The rules that differ and can change a decision or its message."""
    for gate in sorted(old.gates ^ new.gates):
        if gate in old.features and gate in new.features:
            state = "on" if gate in new.gates else "off"
            yield RuleChange(f"gate {gate}", f"feature gate {gate} is {state} by default", gate)
    for name, title in TITLES.items():
        part, _, field = name.rpartition(".")
        before, after = (getattr(one, part) if part else one for one in (old, new))
        if getattr(before, field) != getattr(after, field):
            yield RuleChange(name, title)
