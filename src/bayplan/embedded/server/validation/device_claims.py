"""The rules of ResourceClaims, their templates and their status, and of DeviceClasses."""

from __future__ import annotations

import re
from ipaddress import ip_interface
from typing import Final

from bayplan.api.meta import Content
from bayplan.api.quantity import canonical_quantity, is_extended_resource
from bayplan.embedded.server.schema.types import fields_in_order, go_struct, named_type
from bayplan.embedded.server.statuses import (
    FieldProblem,
    forbidden_field,
    invalid_field,
    required,
    too_long,
    too_many,
    unsupported,
)
from bayplan.embedded.server.validation.devices import (
    MAX_REQUESTS,
    binding_condition_problems,
    class_name_problems,
    configs_problems,
    driver_problems,
    fully_qualified_name_problems,
    json_object_problems,
    list_problems,
    name_problems,
    node_selector_problems,
    pool_problems,
    selectors_problems,
    set_problems,
    toleration_problems,
)
from bayplan.embedded.server.validation.values import (
    IMMUTABLE,
    annotation_problems,
    condition_problems,
    label_problems,
)

_MAX_SUBREQUESTS: Final = 8
_MAX_CONSTRAINTS: Final = 32
_MAX_RESULTS: Final = 32
_MAX_RESULT_CONFIGS: Final = 64
_MAX_CONSUMERS: Final = 256
_MAX_DEVICE_CONDITIONS: Final = 8
_MAX_INTERFACE_NAME: Final = 256
_MAX_HARDWARE_ADDRESS: Final = 128
_MAX_ADDRESSES: Final = 16
_MODES: Final = ("All", "ExactCount")
_SOURCES: Final = ("FromClaim", "FromClass")
_TEMPLATE_METADATA: Final = ("labels", "annotations")
_is_uuid = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch
_NO_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)

RequestNames = dict[str, set[str]]
"""The requests of a claim, each with its subrequests."""


# Claims, templates and classes


def device_claim_problems(claim: Content) -> list[FieldProblem]:
    return _spec_problems(claim.get("spec") or {}, "spec")


def device_claim_update_problems(claim: Content, old: Content) -> list[FieldProblem]:
    return _immutable(claim, old, "ResourceClaimSpec")


def claim_template_problems(template: Content) -> list[FieldProblem]:
    spec = template.get("spec") or {}
    meta = spec.get("metadata") or {}
    problems = annotation_problems(meta.get("annotations"), "spec.metadata.annotations")
    problems += label_problems(meta.get("labels"), "spec.metadata.labels")
    problems += [
        forbidden_field(f"spec.metadata.{name}", "cannot be set")
        for name in fields_in_order(named_type("ObjectMeta"))
        if name in meta and name not in _TEMPLATE_METADATA
    ]
    return problems + _spec_problems(spec.get("spec") or {}, "spec.spec")


def claim_template_update_problems(template: Content, old: Content) -> list[FieldProblem]:
    return _immutable(template, old, "ResourceClaimTemplateSpec")


def device_class_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    problems = selectors_problems(spec.get("selectors"), "spec.selectors")
    problems += configs_problems(spec.get("config"), "spec.config")
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended_resource(name):
        at = "spec.extendedResourceName"
        problems.append(invalid_field(at, name, "must be a valid extended resource name"))
    return problems


def _immutable(item: Content, old: Content, of: str) -> list[FieldProblem]:
    spec, known = item.get("spec") or {}, old.get("spec") or {}
    if spec == known:
        return []
    return [invalid_field("spec", go_struct(spec, named_type(of)), IMMUTABLE)]


def _spec_problems(spec: Content, path: str) -> list[FieldProblem]:
    devices, at = spec.get("devices") or {}, f"{path}.devices"
    names = _request_names(devices)

    def constraint_problems(constraint: Content, here: str) -> list[FieldProblem]:
        problems = _references(constraint, here, names)
        if (attribute := constraint.get("matchAttribute")) is not None:
            return problems + fully_qualified_name_problems(attribute, f"{here}.matchAttribute")
        if (attribute := constraint.get("distinctAttribute")) is not None:
            return problems + fully_qualified_name_problems(attribute, f"{here}.distinctAttribute")
        why = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        )
        return [*problems, required(here, why)]

    requests = devices.get("requests")
    problems = set_problems(requests, MAX_REQUESTS, _request_problems, f"{at}.requests", _name)
    constraints = devices.get("constraints")
    problems += list_problems(constraints, _MAX_CONSTRAINTS, constraint_problems, f"{at}.constraints")
    return problems + configs_problems(
        devices.get("config"), f"{at}.config", lambda config, here: _references(config, here, names)
    )


def _name(item: Content) -> str:
    return str(item.get("name", ""))


def _request_problems(request: Content, path: str) -> list[FieldProblem]:
    problems = name_problems(_name(request), f"{path}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    choice = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is not None and alternatives:
        return [*problems, invalid_field(path, None, f"{choice}, but multiple fields are set")]
    if exactly is not None:
        return problems + _exact_problems(exactly, f"{path}.exactly")
    if not alternatives:
        return [*problems, required(path, choice)]
    at = f"{path}.firstAvailable"
    return problems + set_problems(alternatives, _MAX_SUBREQUESTS, _subrequest_problems, at, _name)


def _subrequest_problems(request: Content, path: str) -> list[FieldProblem]:
    return name_problems(_name(request), f"{path}.name") + _exact_problems(request, path)


def _exact_problems(request: Content, path: str) -> list[FieldProblem]:
    problems = class_name_problems(request.get("deviceClassName", ""), f"{path}.deviceClassName")
    problems += selectors_problems(request.get("selectors"), f"{path}.selectors")
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count:
            why = "must not be specified when allocationMode is 'All'"
            problems.append(invalid_field(f"{path}.count", count, why))
    elif mode == "ExactCount":
        if count <= 0:
            problems.append(invalid_field(f"{path}.count", count, "must be greater than zero"))
    else:
        problems.append(unsupported(f"{path}.allocationMode", mode, _MODES))
    for i, toleration in enumerate(request.get("tolerations") or ()):
        problems += toleration_problems(toleration, f"{path}.tolerations[{i}]")
    return problems


def _request_names(devices: Content) -> RequestNames:
    return {
        _name(request): {_name(each) for each in request.get("firstAvailable") or ()}
        for request in devices.get("requests") or ()
    }


def _references(item: Content, path: str, names: RequestNames) -> list[FieldProblem]:
    """The problems of requests that a constraint or a configuration names."""

    def reference_problems(name: str, at: str) -> list[FieldProblem]:
        return _reference_problems(name, at, names)

    return set_problems(item.get("requests"), MAX_REQUESTS, reference_problems, f"{path}.requests")


def _reference_problems(name: str, path: str, names: RequestNames) -> list[FieldProblem]:
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid_field(path, name, _NO_REQUEST)]
    problems = [problem for part in parts for problem in name_problems(part, path)]
    known = parts[0] in names and (len(parts) == 1 or parts[1] in names[parts[0]])
    return problems if known else [*problems, invalid_field(path, name, _NO_REQUEST)]


# The status of a claim


def device_claim_status_problems(claim: Content, old: Content) -> list[FieldProblem]:
    status, known = claim.get("status") or {}, old.get("status") or {}
    allocation, before = status.get("allocation"), known.get("allocation")
    consumers = status.get("reservedFor") or []
    problems = set_problems(
        consumers, _MAX_CONSUMERS, _consumer_problems, "status.reservedFor", lambda each: each.get("uid", "")
    )
    allocated = [device_id(result) for result in _results(allocation)]

    def device_problems(device: Content, path: str) -> list[FieldProblem]:
        return _device_status_problems(device, path, allocated)

    devices = status.get("devices")
    problems += set_problems(devices, len(devices or ()), device_problems, "status.devices", device_id)
    if consumers and allocation is None:
        why = "may not be specified when `allocated` is not set"
        problems.append(forbidden_field("status.reservedFor", why))
    elif "deletionTimestamp" in old["metadata"] and any(
        each not in (known.get("reservedFor") or ()) for each in consumers
    ):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        problems.append(forbidden_field("status.reservedFor", why))
    if allocation is None or allocation == before:
        return problems
    if before is not None:
        shown = go_struct(allocation, named_type("AllocationResult"))
        return [*problems, invalid_field("status.allocation", shown, IMMUTABLE)]
    names = _request_names((claim.get("spec") or {}).get("devices") or {})
    return problems + _allocation_problems(allocation, "status.allocation", names)


def prepare_claim_status(claim: Content, old: Content) -> None:
    """Removes the status of devices that leave the allocation with this change.

    Quantities get their canonical form, also from writers in this process, whose bodies nobody has parsed.
    """
    status = claim.get("status") or {}
    if status.get("allocation") is not None:
        status["allocation"].setdefault("devices", {})
    for result in _results(status.get("allocation")):
        if consumed := result.get("consumedCapacity"):
            result["consumedCapacity"] = {name: canonical_quantity(each) for name, each in consumed.items()}
    if "devices" not in status:
        return
    kept = [device_id(result) for result in _results(status.get("allocation"))]
    before = [device_id(result) for result in _results((old.get("status") or {}).get("allocation"))]
    left = [id for id in before if id not in kept]
    status["devices"] = [device for device in status["devices"] if device_id(device) not in left]
    if not status["devices"]:
        del status["devices"]


def _results(allocation: Content | None) -> list[Content]:
    return ((allocation or {}).get("devices") or {}).get("results") or []


def device_id(item: Content) -> Content:
    """The identity of an allocated device, as in messages."""
    fields = (("Driver", "driver"), ("Pool", "pool"), ("Device", "device"), ("ShareID", "shareID"))
    return {shown: item.get(name, "") for shown, name in fields}


def _consumer_problems(consumer: Content, path: str) -> list[FieldProblem]:
    return [required(f"{path}.{name}") for name in ("resource", "name", "uid") if not consumer.get(name)]


def _allocation_problems(allocation: Content, path: str, names: RequestNames) -> list[FieldProblem]:
    devices, at = allocation.get("devices") or {}, f"{path}.devices"

    def result_problems(result: Content, here: str) -> list[FieldProblem]:
        problems = _reference_problems(result.get("request", ""), f"{here}.request", names)
        problems += driver_problems(result.get("driver", ""), f"{here}.driver")
        problems += pool_problems(result.get("pool", ""), f"{here}.pool")
        problems += name_problems(result.get("device", ""), f"{here}.device")
        problems += binding_condition_problems(result, here)
        return problems + _share_problems(result, here)

    def source_problems(config: Content, here: str) -> list[FieldProblem]:
        source = config.get("source", "")
        problems = [] if source in _SOURCES else [unsupported(f"{here}.source", source, _SOURCES)]
        return (problems if source else [required(f"{here}.source")]) + _references(config, here, names)

    problems = list_problems(devices.get("results"), _MAX_RESULTS, result_problems, f"{at}.results")
    problems += configs_problems(devices.get("config"), f"{at}.config", source_problems, _MAX_RESULT_CONFIGS)
    if (selector := allocation.get("nodeSelector")) is not None:
        problems += node_selector_problems(selector, f"{path}.nodeSelector")
    return problems


def _share_problems(item: Content, path: str) -> list[FieldProblem]:
    share = item.get("shareID")
    if share is None or (_is_uuid(share) and share == share.lower()):
        return []
    if _is_uuid(share):
        why = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"  # noqa: E501
    else:
        what = "format" if len(share) == 36 else f"length: {len(share)}"
        why = f"error validating uid: invalid UUID {what}"
    return [invalid_field(f"{path}.shareID", share, why)]


def _device_status_problems(device: Content, path: str, allocated: list[Content]) -> list[FieldProblem]:
    problems = driver_problems(device.get("driver", ""), f"{path}.driver")
    problems += pool_problems(device.get("pool", ""), f"{path}.pool")
    problems += name_problems(device.get("device", ""), f"{path}.device")
    problems += _share_problems(device, path)
    if (shown := device_id(device)) not in allocated:
        problems.append(invalid_field(path, shown, "must be an allocated device in the claim"))
    conditions = device.get("conditions") or []
    if len(conditions) > _MAX_DEVICE_CONDITIONS:
        problems.append(too_many(f"{path}.conditions", len(conditions), _MAX_DEVICE_CONDITIONS))
    problems += condition_problems(conditions, f"{path}.conditions")
    if device.get("data") is not None:
        problems += json_object_problems(device["data"], f"{path}.data")
    return problems + _network_problems(device.get("networkData") or {}, f"{path}.networkData")


def _network_problems(network: Content, path: str) -> list[FieldProblem]:
    problems = []
    for name, limit in (("interfaceName", _MAX_INTERFACE_NAME), ("hardwareAddress", _MAX_HARDWARE_ADDRESS)):
        if len(network.get(name, "").encode()) > limit:
            problems.append(too_long(f"{path}.{name}", limit))
    return problems + set_problems(network.get("ips"), _MAX_ADDRESSES, _address_problems, f"{path}.ips")


def _address_problems(address: str, path: str) -> list[FieldProblem]:
    try:
        valid = "/" in address and bool(ip_interface(address))
    except ValueError:
        valid = False
    why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
    return [] if valid else [invalid_field(path, address, why)]
