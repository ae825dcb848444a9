"""LimitRanges: default requests and limits, and their bounds.

Defaults are filled in when a pod is created, before it is checked; bounds are checked afterwards, for pods,
their containers and claims. Messages are those of Kubernetes' LimitRanger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bayplan.api.quantity import NANO, is_binary, parse_quantity, quantity_text
from bayplan.embedded.server.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, Resource
from bayplan.embedded.server.pod_resources import Amounts, amounts, pod_amounts
from bayplan.embedded.server.statuses import aggregated

Content = dict[str, Any]

ANNOTATION: Final = "kubernetes.io/limit-ranger"
_CONTAINER, _POD, _CLAIM = "Container", "Pod", "PersistentVolumeClaim"
_CONTAINERS: Final = (("containers", "container"), ("initContainers", "init container"))


def give_defaults(limit_range: Content, pod: Content) -> None:
    """Sets default requests and limits, and lists them in an annotation."""
    requests: Content = {}
    limits: Content = {}
    for item in _items(limit_range, _CONTAINER):
        requests.update(item.get("defaultRequest") or {})
        limits.update(item.get("default") or {})
    notes = []
    for field, called in _CONTAINERS:
        for container in pod["spec"].get(field) or ():
            resources = container.setdefault("resources", {})
            for which, defaults in (("requests", requests), ("limits", limits)):
                missing = sorted(defaults.keys() - (resources.get(which) or {}).keys())
                if missing:
                    given = resources.setdefault(which, {})
                    given.update({name: defaults[name] for name in missing})
                    notes.append(
                        f"{', '.join(missing)} {which[:-1]} for {called} {container.get('name', '')}"
                    )
    if notes:
        note = f"LimitRanger plugin set: {'; '.join(notes)}"
        pod["metadata"].setdefault("annotations", {})[ANNOTATION] = note


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
        for field, _ in _CONTAINERS:
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


def _text(nano: int, like: Any) -> str:
    """A quantity as text, with the suffixes that the bound has."""
    return quantity_text(nano, binary=is_binary(like))
