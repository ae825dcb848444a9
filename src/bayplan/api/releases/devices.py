"""How releases differ in the allocation of devices (dynamic resource allocation).

The defaults are the rules of v1.36; `v1_37.py` names those that changed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """The rules of the device allocator and of the plugin DynamicResources that differ between releases."""

    distinct_over_all_devices: bool = False
    """distinctAttribute compares with every device allocated so far under the constraint. v1.36 forgets all
    but the last device of a request with several devices."""
    all_includes_exhausted_devices: bool = False
    """A request for All devices includes those whose remaining capacity is too small, so that it cannot be
    satisfied there. v1.36 leaves them out and allocates the others."""
    counter_slices_by_node: bool = False
    """Slices with sharedCounters are visible on the nodes they select. In v1.36 every node sees them, and an
    incomplete pool makes requests fail on nodes for which it has nothing."""
    share_without_capacity_is_use: bool = False
    """A device that is shared without any capacity is in use, so further shares do not consume its counters
    again."""
    uncomputable_capacity_is_error: bool = False
    """A requested capacity that cannot be computed (overflow, negative) fails the attempt with an error. In
    v1.36 it makes the device unusable."""
    device_limit_names_request: bool = False
    """The error for too many devices names the request and the numbers."""
    cel_error_names_device: bool = False
    """CEL runtime errors name the device, and advise optional chaining for missing keys."""
    config_entries_once: bool = False
    """A config entry is listed once in the allocation result, and without requests if it applies to all
    requests of the claim."""
    consumed_capacity_format_of_step: bool = False
    """consumedCapacity that was rounded to a step is written in the number format of the step, not in binary
    format."""
    ignores_compatibility_groups: bool = False
    """Slices whose devices name compatibility groups are ignored, and requests with derivedAttributes are an
    error: both belong to features that are off."""
    claim_delete_requeues: bool = False
    """Pods wait for the deletion of allocated ResourceClaims, too."""
    reserve_requires_claim: bool = False
    """Reserve fails if the claim has been deleted in the meantime."""
    in_flight_until_bound: bool = False
    """An allocation is in flight until PreBind has succeeded. In v1.36 it is until the claim is written."""
    taint_rule_without_selector_matches_all: bool = True
    """Whether a DeviceTaintRule without deviceSelector applies to every device (v1.36) or to none."""
    post_filter_without_message: bool = False
    """PostFilter has no message unless it deallocates or deletes a claim."""
