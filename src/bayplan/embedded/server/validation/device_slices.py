"""The rules of ResourceSlices: where devices are, what they offer and what they share."""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.api.names import dns_subdomain_problems
from bayplan.api.quantity import NANO, canonical_quantity, parse_quantity
from bayplan.cel import EvaluationError
from bayplan.cel.scalars import semver
from bayplan.embedded.server.schema.types import go_struct, named_type
from bayplan.embedded.server.statuses import FieldProblem, forbidden_field, invalid_field, required, too_long
from bayplan.embedded.server.validation.devices import (
    Check,
    binding_condition_problems,
    driver_problems,
    list_problems,
    map_problems,
    name_problems,
    node_selector_problems,
    pool_problems,
    qualified_name_problems,
    required_name_problems,
    set_problems,
    taint_problems,
)
from bayplan.embedded.server.validation.values import IMMUTABLE

MAX_DEVICES: Final = 128
MAX_SPECIAL_DEVICES: Final = 64
"""Of a slice with taints or counters."""
_MAX_NUMBERS: Final = 32
_MAX_TEXT: Final = 64
_MAX_TAINTS: Final = 16
_MAX_COUNTER_SETS: Final = 8
_MAX_COUNTERS: Final = 32
_MAX_CONSUMED_SETS: Final = 2
_MAX_VALUES: Final = 10
_ATTRIBUTES: Final = ("int", "bool", "string", "version")
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_ONE_DEVICE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is "
    "set to true in the ResourceSlice spec"
)


def device_slice_problems(item: Content) -> list[FieldProblem]:
    return _spec_problems(item.get("spec") or {}, {})


def driver_warnings(item: Content) -> list[str]:
    """Warnings about values that are allowed, but deprecated."""
    driver = item["spec"]["driver"]
    if driver == driver.lower():
        return []
    return [f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters']


def device_slice_update_problems(item: Content, old: Content) -> list[FieldProblem]:
    """All rules again, and what may not change, in the order of the API server."""
    return _spec_problems(item.get("spec") or {}, old.get("spec") or {})


def _spec_problems(spec: Content, old: Content) -> list[FieldProblem]:
    problems = driver_problems(spec.get("driver", ""), "spec.driver")
    pool = spec.get("pool") or {}
    problems += pool_problems(pool.get("name", ""), "spec.pool.name")
    if (count := pool.get("resourceSliceCount", 0)) <= 0:
        problems.append(invalid_field("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    if (generation := pool.get("generation", 0)) < 0:
        why = "must be greater than or equal to zero"
        problems.append(invalid_field("spec.pool.generation", generation, why))
    if old:
        problems += _immutable("spec.pool.name", pool.get("name", ""), old["pool"]["name"])
        problems += _immutable("spec.driver", spec.get("driver", ""), old["driver"])
        problems += _immutable("spec.nodeName", spec.get("nodeName"), old.get("nodeName"))
    problems += _slice_places(spec)
    if "sharedCounters" in spec and "devices" in spec:
        problems.append(invalid_field("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    devices = spec.get("devices") or []
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    known = {device.get("name"): device for device in old.get("devices") or ()}

    def device_problems(device: Content, path: str) -> list[FieldProblem]:
        return _device_problems(device, path, spec, known.get(device.get("name")))

    limit = MAX_SPECIAL_DEVICES if special else MAX_DEVICES
    problems += set_problems(
        devices, limit, device_problems, "spec.devices", lambda each: each.get("name", "")
    )
    return problems + set_problems(
        spec.get("sharedCounters"),
        _MAX_COUNTER_SETS,
        _counter_set_problems,
        "spec.sharedCounters",
        lambda each: each.get("name", ""),
    )


def _immutable(path: str, now: Any, before: Any) -> list[FieldProblem]:
    return [] if now == before else [invalid_field(path, now, IMMUTABLE)]


def _slice_places(spec: Content) -> list[FieldProblem]:
    problems = _place_problems(spec, "spec", "must be either unset or set to a non-empty string")
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if "nodeSelector" in spec and len(terms) != 1:
        shown = [go_struct(term, named_type("NodeSelectorTerm")) for term in terms]
        at = "spec.nodeSelector.nodeSelectorTerms"
        problems.append(invalid_field(at, shown, "must have exactly one node selector term"))
    for name in _PLACES[2:]:
        if spec.get(name) is False:
            problems.append(invalid_field(f"spec.{name}", False, "must be either unset or set to true"))
    places = [f"`{name}`" for name in _PLACES if spec.get(name) or (name == "nodeSelector" and name in spec)]
    if not places:
        problems.append(required("spec", _ONE_PLACE))
    elif len(places) > 1:
        several = f"{{{', '.join(places)}}}"
        problems.append(invalid_field("spec", several, f"{_ONE_PLACE}, but multiple fields are set"))
    return problems


def _place_problems(item: Content, path: str, empty: str) -> list[FieldProblem]:
    """The node name and the node selector of a slice or a device."""
    problems = []
    if (name := item.get("nodeName")) is not None:
        whys = dns_subdomain_problems(name) if name else [empty]
        problems += [invalid_field(f"{path}.nodeName", name, why) for why in whys]
    if (selector := item.get("nodeSelector")) is not None:
        problems += node_selector_problems(selector, f"{path}.nodeSelector")
    return problems


def _device_places(device: Content, path: str, per_device: bool) -> list[FieldProblem]:
    if not per_device:
        if not any(name in device for name in _PLACES[:3]):
            return []
        why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"  # noqa: E501
        return [invalid_field(path, None, why)]
    problems = _place_problems(device, path, "must not be empty")
    if device.get("allNodes") is False:
        problems.append(invalid_field(f"{path}.allNodes", False, "must be either unset or set to true"))
    places = [
        f"`{name}`" for name in _PLACES[:3] if device.get(name) or (name == "nodeSelector" and name in device)
    ]
    if not places:
        problems.append(required(path, _ONE_DEVICE_PLACE))
    elif len(places) > 1:
        problems.append(invalid_field(path, f"{{{', '.join(places)}}}", _ONE_DEVICE_PLACE))
    return problems


def _device_problems(device: Content, path: str, spec: Content, old: Content | None) -> list[FieldProblem]:
    problems = name_problems(device.get("name", ""), f"{path}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (count := len(attributes) + len(capacity)) > _MAX_NUMBERS:
        why = f"the total number of attributes and capacities must not exceed {_MAX_NUMBERS}"
        problems.append(invalid_field(path, count, why))
    problems += map_problems(
        attributes, None, qualified_name_problems, _attribute_problems, f"{path}.attributes"
    )
    check: Check = _shared_capacity_problems if device.get("allowMultipleAllocations") else _capacity_problems
    problems += map_problems(capacity, None, qualified_name_problems, check, f"{path}.capacity")
    if old is None or old.get("taints") != device.get("taints"):
        problems += list_problems(device.get("taints"), _MAX_TAINTS, taint_problems, f"{path}.taints")
    problems += set_problems(
        device.get("consumesCounters"),
        _MAX_CONSUMED_SETS,
        _consumption_problems,
        f"{path}.consumesCounters",
        lambda each: each.get("counterSet", ""),
    )
    problems += _device_places(device, path, spec.get("perDeviceNodeSelection") is True)
    return problems + binding_condition_problems(device, path)


def _attribute_problems(attribute: Content, path: str) -> list[FieldProblem]:
    problems = []
    if (text := attribute.get("string")) is not None and len(text.encode()) > _MAX_TEXT:
        problems.append(too_long(f"{path}.string", _MAX_TEXT))
    if (version := attribute.get("version")) is not None:
        if not _is_version(version):
            why = "must be a string compatible with semver.org spec 2.0.0"
            problems.append(invalid_field(f"{path}.version", version, why))
        if len(version.encode()) > _MAX_TEXT:
            problems.append(too_long(f"{path}.version", _MAX_TEXT))
    given = [name for name in _ATTRIBUTES if name in attribute]
    if len(given) != 1:
        shown = go_struct(attribute, named_type("DeviceAttribute")) if given else ""
        problems.append(invalid_field(path, shown, "exactly one value must be specified"))
    return problems


def _is_version(text: str) -> bool:
    try:
        semver(text)
    except EvaluationError:
        return False
    return True


# Capacity


def _capacity_problems(capacity: Content, path: str) -> list[FieldProblem]:
    if "requestPolicy" not in capacity:
        return []
    return [forbidden_field(f"{path}.requestPolicy", "allowMultipleAllocations must be true")]


def _shared_capacity_problems(capacity: Content, path: str) -> list[FieldProblem]:
    policy = capacity.get("requestPolicy") or {}
    at, maximum = f"{path}.requestPolicy", capacity.get("value", "0")
    values, limits = policy.get("validValues"), policy.get("validRange")
    if values and limits is not None:
        both = '"validValues" and "validRange" at the same time'
        why = f"exactly one policy can be specified, cannot specify {both}"
        return [forbidden_field(at, why)]
    name = "validValues" if values else "validRange"
    if not values and limits is None:
        return []
    default = policy.get("default")
    if default is None:
        return [required(f"{at}.default", f"required when {name} is defined")]
    if values:
        return _value_problems(values, default, maximum, f"{at}.validValues")
    return _range_problems(limits or {}, default, maximum, f"{at}.validRange")


def _value_problems(values: list[str], default: str, maximum: str, path: str) -> list[FieldProblem]:
    amounts = [parse_quantity(value) for value in values]
    problems = [
        invalid_field(f"{path}[{i + 1}]", values[i + 1], "values must be sorted in ascending order")
        for i in range(len(values) - 1)
        if amounts[i] > amounts[i + 1]
    ]
    found = False

    def option_problems(value: str, at: str) -> list[FieldProblem]:
        nonlocal found
        found = found or parse_quantity(value) == parse_quantity(default)
        if parse_quantity(value) <= parse_quantity(maximum):
            return []
        return [invalid_field(at, value, f"option is larger than capacity value: {maximum}")]

    problems += set_problems(values, _MAX_VALUES, option_problems, path, lambda value: str(_whole(value)))
    if not found:
        why = "default value is not valid according to the requestPolicy"
        problems.append(invalid_field(path, default, why))
    return problems


def _range_problems(limits: Content, default: str, maximum: str, path: str) -> list[FieldProblem]:
    minimum = limits.get("min")
    if minimum is None:
        return [required(f"{path}.min", "required when validRange is defined")]
    amount, lower, upper = (parse_quantity(each) for each in (default, minimum, maximum))
    problems = []
    if lower > upper:
        problems.append(
            invalid_field(f"{path}.min", minimum, f"min is larger than capacity value: {maximum}")
        )
    if amount < lower:
        problems.append(invalid_field(f"{path}.min", default, f"default is less than min: {minimum}"))
    highest, step = limits.get("max"), limits.get("step")
    if highest is not None:
        at, limit = f"{path}.max", parse_quantity(highest)
        if lower > limit:
            problems.append(invalid_field(at, minimum, f"min is larger than max: {highest}"))
        if limit > upper:
            problems.append(invalid_field(at, highest, f"max is larger than capacity value: {maximum}"))
        if amount > limit:
            problems.append(invalid_field(at, default, f"default is more than max: {highest}"))
    if step is not None:
        at = f"{path}.step"
        if lower + parse_quantity(step) > upper:
            added = _sum(minimum, step)
            why = f"one step {added} is larger than capacity value: {maximum}"
            problems.append(invalid_field(at, step, why))
        for value in (default, highest):
            if value is not None and _whole(step) and (_whole(value) - _whole(minimum)) % _whole(step):
                why = f"value is not a multiple of a given step ({step}) from ({minimum})"
                problems.append(invalid_field(at, value, why))
    return problems


def _whole(quantity: str) -> int:
    """A quantity as a whole number, rounded up."""
    return -(-parse_quantity(quantity) // NANO)


def _sum(one: str, other: str) -> str:
    """The sum of two quantities, in the notation of the first."""
    total = parse_quantity(one) + parse_quantity(other)
    if one.endswith("i") and total % (1024 * NANO) == 0:
        return canonical_quantity(f"{total // (1024 * NANO)}Ki")
    return canonical_quantity(f"{total}n")


# Counters


def _counter_set_problems(counters: Content, path: str) -> list[FieldProblem]:
    problems = required_name_problems(counters.get("name", ""), f"{path}.name")
    return problems + _counters_problems(counters, path)


def _consumption_problems(consumption: Content, path: str) -> list[FieldProblem]:
    problems = required_name_problems(consumption.get("counterSet", ""), f"{path}.counterSet")
    return problems + _counters_problems(consumption, path)


def _counters_problems(item: Content, path: str) -> list[FieldProblem]:
    counters, at = item.get("counters"), f"{path}.counters"
    if not counters:
        return [required(at)]
    return map_problems(counters, _MAX_COUNTERS, name_problems, lambda _counter, _path: [], at)
