"""What the pods and claims of a namespace may use: LimitRanges for each, ResourceQuotas for all together.

The defaults of a LimitRange are set when a pod is created (`api/admission.py`), before it is checked; its
bounds are checked afterwards, for pods, their containers and claims. Messages are those of Kubernetes'
LimitRanger.

Quotas have two users: admission charges a new object to the quotas that apply to it, and rejects what exceeds
one; the quota controller counts again when something is deleted or has ended. Quantities are nano units here,
and text in the status of a quota. Messages are those of Kubernetes' ResourceQuota admission. Counted are the
resources of pods, storage of claims, ports of services, and objects of every kind
(`count/deployments.apps`), and devices by class. Scopes are those of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from bayplan.api.meta import Content
from bayplan.api.pod_defaults import Amounts, affinity_terms, amounts, pod_amounts
from bayplan.api.quantity import (
    HUGEPAGES_PREFIX,
    NANO,
    is_binary,
    is_extended_resource,
    parse_quantity,
    quantity_text,
)
from bayplan.embedded.server import kinds
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, Resource
from bayplan.embedded.server.preparation import quality_of_service
from bayplan.embedded.server.statuses import aggregated

_CONTAINER, _POD, _CLAIM = "Container", "Pod", "PersistentVolumeClaim"


def limit_problem(limit_range: Content, resource: Resource, content: Content) -> str:
    """Why an object is not allowed; empty if it is."""
    problems: dict[str, None] = {}
    if resource == PODS:
        problems = dict.fromkeys(_pod_problems(limit_range, content["spec"]))
    elif resource == PERSISTENT_VOLUME_CLAIMS:
        problems = dict.fromkeys(_claim_problems(limit_range, content.get("spec") or {}))
    return aggregated(list(problems))


def _items(limit_range: Content, kind: str) -> Iterator[Content]:
    return (item for item in (limit_range.get("spec") or {}).get("limits") or () if item.get("type") == kind)


def _pod_problems(limit_range: Content, spec: Content) -> Iterator[str]:
    for item in _items(limit_range, _CONTAINER):
        for field in ("containers", "initContainers"):
            for container in spec.get(field) or ():
                resources = container.get("resources") or {}
                yield from _bounds(item, amounts(resources.get("requests")), amounts(resources.get("limits")))
    for item in _items(limit_range, _POD):
        requests = pod_amounts(spec, "requests", with_overhead=False)
        yield from _bounds(item, requests, pod_amounts(spec, "limits", with_overhead=False))


def _bounds(item: Content, requests: Amounts, limits: Amounts) -> Iterator[str]:
    """Violations of an item's bounds. Quantities in messages are canonical, as in the API."""
    kind = item["type"]
    for name, minimum in sorted((item.get("min") or {}).items()):
        rule = f"minimum {name} usage per {kind} is {minimum}"
        if name not in requests:
            yield f"{rule}.  No request is specified"
        elif requests[name] < parse_quantity(minimum):
            yield f"{rule}, but request is {_text(requests[name], minimum)}"
        elif name in limits and limits[name] < parse_quantity(minimum):
            yield f"{rule}, but limit is {_text(limits[name], minimum)}"
    for name, maximum in sorted((item.get("max") or {}).items()):
        rule = f"maximum {name} usage per {kind} is {maximum}"
        if name not in limits:
            yield f"{rule}.  No limit is specified"
        elif limits[name] > parse_quantity(maximum):
            yield f"{rule}, but limit is {_text(limits[name], maximum)}"
        elif name in requests and requests[name] > parse_quantity(maximum):
            yield f"{rule}, but request is {_text(requests[name], maximum)}"
    for name, ratio in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        rule = f"{name} max limit to request ratio per {kind} is {ratio}"
        if not requests.get(name):
            yield f"{rule}, but no request is specified or request is 0"
        elif not limits.get(name):
            yield f"{rule}, but no limit is specified or limit is 0"
        elif limits[name] * NANO > parse_quantity(ratio) * requests[name]:
            yield f"{rule}, but provided ratio is {limits[name] / requests[name]:f}"


def _claim_problems(limit_range: Content, spec: Content) -> Iterator[str]:
    """Claims have requests only."""
    requests = amounts((spec.get("resources") or {}).get("requests"))
    for item in _items(limit_range, _CLAIM):
        yield from _bounds({**item, "max": {}, "maxLimitRequestRatio": {}}, requests, {})
        for name, maximum in sorted((item.get("max") or {}).items()):
            rule = f"maximum {name} usage per {_CLAIM} is {maximum}"
            if name not in requests:
                yield f"{rule}.  No request is specified"
            elif requests[name] > parse_quantity(maximum):
                yield f"{rule}, but request is {_text(requests[name], maximum)}"


_ONE: Final = NANO
_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_POD_NAMES: Final = frozenset(
    ["pods", "count/pods"] + [f"{prefix}{name}" for name in _COMPUTE for prefix in ("", _REQUESTS, _LIMITS)]
)
_MUST_BE_SET: Final = frozenset(
    f"{prefix}{name}" for name in ("cpu", "memory") for prefix in ("", _REQUESTS, _LIMITS)
)
"""If a quota limits one of these, every container has to set it."""
_CLASS_SUFFIX: Final = ".storageclass.storage.k8s.io/"
_STORAGE: Final = "requests.storage"
_DEVICES_SUFFIX: Final = ".deviceclass.resource.k8s.io/devices"
_ALL_DEVICES: Final = 32
"""A request for all devices counts as the maximum that can be allocated to a claim."""
_BY_PLURAL: Final = frozenset(
    {
        kinds.CONFIG_MAPS, kinds.PERSISTENT_VOLUME_CLAIMS, kinds.REPLICATION_CONTROLLERS,
        kinds.RESOURCE_QUOTAS, kinds.SECRETS, kinds.SERVICES,
    }
)  # fmt: skip
"""Kinds that are counted as `services`, too, not only as `count/services`."""
_CHANGES_COUNT: Final = frozenset({kinds.PERSISTENT_VOLUME_CLAIMS, kinds.SERVICES})
"""Kinds whose updates are charged: a claim that grows, a service that gets a port of the node."""


class Charge(NamedTuple):
    """A quota with an object charged to it."""

    document: Document
    content: Content


class Objects(Protocol):
    """The objects of a namespace."""

    catalog: Catalog

    def documents(self, resource: Resource, namespace: str = "") -> Iterable[Document]: ...


class QuotaExceededError(Exception):
    """An object is not allowed; the message says why."""


def charges(api: Objects, resource: Resource, content: Content, old: Content | None = None) -> list[Charge]:
    """The quotas that apply to an object, with the object charged to them.

    Raises:
        QuotaExceededError: one of them has no room for it.
    """
    if old is not None and resource not in _CHANGES_COUNT:
        return []
    namespace = content["metadata"]["namespace"]
    made = []
    for document in api.documents(kinds.RESOURCE_QUOTAS, namespace):
        quota = document.parse()
        names = _concerned(quota, resource)
        if not names or not matches(quota, resource, content):
            continue
        _require(quota, names, resource, content)
        taken = usage(resource, content)
        if old is not None and matches(quota, resource, old):
            before = usage(resource, old)
            taken = {name: max(amount - before.get(name, 0), 0) for name, amount in taken.items()}
        taken = {name: amount for name, amount in taken.items() if name in names and amount}
        if not taken:
            continue
        if (quota.get("status") or {}).get("hard") != (quota.get("spec") or {}).get("hard"):
            quota["status"] = counted(api, quota)
        _charge(quota, taken)
        made.append(Charge(document, quota))
    return made


def _charge(quota: Content, taken: Amounts) -> None:
    hard, used = quota["status"]["hard"], quota["status"]["used"]
    exceeded = [
        name
        for name in sorted(taken)
        if parse_quantity(used.get(name)) + taken[name] > parse_quantity(hard[name])
    ]
    if exceeded:
        requested = ",".join(f"{name}={_text(taken[name], hard[name])}" for name in exceeded)
        before = ",".join(f"{name}={used.get(name, '0')}" for name in exceeded)
        limited = ",".join(f"{name}={hard[name]}" for name in exceeded)
        raise QuotaExceededError(
            f"exceeded quota: {quota['metadata']['name']}, requested: {requested}, used: {before}, "
            f"limited: {limited}"
        )
    for name, amount in taken.items():
        used[name] = _text(parse_quantity(used.get(name)) + amount, hard[name])


def _require(quota: Content, names: Iterable[str], resource: Resource, content: Content) -> None:
    """If a quota limits cpu or memory, every container has to set it."""
    spec = content.get("spec") or {}
    if resource != kinds.PODS or spec.get("resources"):
        return
    missing: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        set_names = _compute_names(amounts(resources.get("requests")), amounts(resources.get("limits")))
        for name in _MUST_BE_SET.intersection(names) - set_names.keys():
            missing.setdefault(name, set()).add(container.get("name", ""))
    if missing:
        texts = "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))
        raise QuotaExceededError(f"failed quota: {quota['metadata']['name']}: must specify {texts}")


def counted(api: Objects, quota: Content) -> Content:
    """The status that a quota should have: `hard` and `used`."""
    hard = dict((quota.get("spec") or {}).get("hard") or {})
    used: Amounts = dict.fromkeys(hard, 0)
    for resource in api.catalog:
        names = _concerned(quota, resource) if resource.namespaced and resource.stored_as is None else ()
        if not names:
            continue
        for document in api.documents(resource, quota["metadata"]["namespace"]):
            content = document.parse()
            if matches(quota, resource, content):
                taken = usage(resource, content)
                for name in names:
                    used[name] += taken.get(name, 0)
    return {"hard": hard, "used": {name: _text(amount, hard[name]) for name, amount in used.items()}}


def _concerned(quota: Content, resource: Resource) -> list[str]:
    """The resources that a quota limits for a kind."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    if resource == kinds.PODS:
        return [name for name in hard if name in _POD_NAMES or _is_other_pod_name(name)]
    names = {f"count/{resource.full_name}", resource.plural if resource in _BY_PLURAL else ""}
    if resource == kinds.SERVICES:
        names |= {"services.loadbalancers", "services.nodeports"}
    if resource == kinds.PERSISTENT_VOLUME_CLAIMS:
        names.add(_STORAGE)
        return [name for name in hard if name in names or _CLASS_SUFFIX in name]
    if resource == kinds.RESOURCE_CLAIMS:
        return [name for name in hard if name in names or name.endswith(_DEVICES_SUFFIX)]
    return [name for name in hard if name in names]


def _is_other_pod_name(name: str) -> bool:
    plain = name.removeprefix(_REQUESTS)
    if plain.startswith(HUGEPAGES_PREFIX):
        return True
    return plain != name and _CLASS_SUFFIX not in name and is_extended_resource(plain)


def usage(resource: Resource, content: Content) -> Amounts:
    """The usage of an object, by the names that quotas use."""
    taken = {f"count/{resource.full_name}": _ONE}
    if resource in _BY_PLURAL:
        taken[resource.plural] = _ONE
    spec = content.get("spec") or {}
    if resource == kinds.PODS:
        if (content.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            requests = pod_amounts(spec, "requests", with_overhead=True)
            limits = pod_amounts(spec, "limits", with_overhead=True)
            taken |= {"pods": _ONE, **_compute_names(requests, limits)}
    elif resource == kinds.SERVICES:
        taken |= _service_ports(spec)
    elif resource == kinds.PERSISTENT_VOLUME_CLAIMS:
        storage = amounts((spec.get("resources") or {}).get("requests")).get("storage", 0)
        taken[_STORAGE] = storage
        if name := spec.get("storageClassName"):
            taken[f"{name}{_CLASS_SUFFIX}{_STORAGE}"] = storage
            taken[f"{name}{_CLASS_SUFFIX}persistentvolumeclaims"] = _ONE
    elif resource == kinds.RESOURCE_CLAIMS:
        taken |= _devices(spec)
    return taken


def _devices(spec: Content) -> Amounts:
    """Devices of a claim by class. Of alternatives the one with most devices of a class counts."""
    taken: Amounts = {}
    for request in (spec.get("devices") or {}).get("requests") or ():
        most: dict[str, int] = {}
        for each in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if each is not None:
                name = each.get("deviceClassName", "")
                count = _ALL_DEVICES if each.get("allocationMode") == "All" else each.get("count", 0)
                most[name] = max(most.get(name, 0), count)
        for name, count in most.items():
            key = f"{name}{_DEVICES_SUFFIX}"
            taken[key] = taken.get(key, 0) + count * _ONE
    return taken


def _compute_names(requests: Amounts, limits: Amounts) -> Amounts:
    taken: Amounts = {}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith(HUGEPAGES_PREFIX):
            taken[name] = amount
        taken[f"{_REQUESTS}{name}"] = amount
    taken |= {f"{_LIMITS}{name}": amount for name, amount in limits.items() if name in _COMPUTE}
    return taken


def _service_ports(spec: Content) -> Amounts:
    kind, ports = spec.get("type", "ClusterIP"), spec.get("ports") or ()
    if kind == "NodePort":
        return {"services.nodeports": len(ports) * _ONE}
    if kind == "LoadBalancer":
        allocated = len(ports) if spec.get("allocateLoadBalancerNodePorts", True) else 0
        return {"services.loadbalancers": _ONE, "services.nodeports": allocated * _ONE}
    return {}


def matches(quota: Content, resource: Resource, content: Content) -> bool:
    """Whether an object is in all scopes of a quota. Only pods have scopes."""
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if not scopes:
        return True
    return resource == kinds.PODS and all(_is_in_scope(scope, content.get("spec") or {}) for scope in scopes)


def _is_in_scope(scope: Content, spec: Content) -> bool:
    deadline = spec.get("activeDeadlineSeconds")
    match scope.get("scopeName"):
        case "Terminating":
            return deadline is not None and deadline >= 0
        case "NotTerminating":
            return deadline is None or deadline < 0
        case "BestEffort":
            return quality_of_service(spec) == "BestEffort"
        case "NotBestEffort":
            return quality_of_service(spec) != "BestEffort"
        case "PriorityClass":
            return _names_match(scope, spec.get("priorityClassName", ""))
        case "CrossNamespacePodAffinity":
            return _has_cross_namespace_terms(spec)
    return False


def _names_match(scope: Content, name: str) -> bool:
    names = scope.get("values") or ()
    match scope.get("operator"):
        case "In":
            return name in names
        case "NotIn":
            return name not in names
        case "DoesNotExist":
            return not name
    return bool(name)


def _has_cross_namespace_terms(spec: Content) -> bool:
    return any(
        term.get("namespaces") or term.get("namespaceSelector") is not None for term in affinity_terms(spec)
    )


def _text(nano: int, like: Any) -> str:
    return quantity_text(nano, binary=is_binary(like))
