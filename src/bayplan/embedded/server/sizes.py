"""How many values an object may have, and how many rules for scheduling a pod may have.

A value is a field, an entry of a list or of a map. kube-apiserver has no such limit; it has a core to spare
for each request. Here controllers, kubelets and the scheduler read the objects of built-in kinds in one event
loop, and each of them takes about a microsecond for a value. Nothing but their schemas is known of custom
resources, so they may have more. `python -m tests.soak.stalls` measures what the limits cost.
"""

from __future__ import annotations

import re
from typing import Any, Final

from bayplan.api.pod_defaults import containers_of
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.statuses import too_large

MAX_VALUES: Final = 15_000
"""Of an object, without its status and the names of its managers, and of its status. An EndpointSlice with
all of its 1,000 endpoints has 14,000."""
MAX_POD_VALUES: Final = 5_000
"""Of a pod, a workload (all its pods are as large, and several are created at once), or a ResourceQuota (its
status has all resources twice)."""
MAX_RULES: Final = 100
"""Of a pod: terms of affinity, topology spread constraints and names of resources. The scheduler needs a
column for each, which takes up to 0.5 ms to create."""
MAX_NODE_RESOURCES: Final = 1000
"""Names of resources of a node. The scheduler has a column for each."""
LABELS_PER_RULE: Final = 10
"""Labels and expressions that select nodes count as a tenth of a rule each."""
MAX_CUSTOM_VALUES: Final = 100_000
"""Of a custom resource, and of its definition."""
MAX_NAME_CHARACTERS: Final = 1024
"""Of the name of a field or the key of a map. Every message about a value has the names that lead to it."""
MAX_UNCOUNTED_BYTES: Final = 4_000
"""Objects whose JSON is no longer than this are not counted. The shortest entry of a list has three bytes,
and defaults make eight values of it at most."""

_CONTAINERS: Final = (dict, list)
_WITH_TEMPLATE: Final = frozenset(
    {
        kinds.DAEMON_SETS, kinds.DEPLOYMENTS, kinds.JOBS, kinds.REPLICA_SETS, kinds.REPLICATION_CONTROLLERS,
        kinds.STATEFUL_SETS,
    }
)  # fmt: skip
_SMALLER: Final = frozenset({*_WITH_TEMPLATE, kinds.PODS, kinds.RESOURCE_QUOTAS})
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_STRING: Final = re.compile(rb'"(?:[^"\\]+|\\.)*"')


def check_values(resource: Resource, content: dict[str, Any], *, status: bool) -> None:
    """Checks the status of an object, or all the rest of it.

    Raises:
        StatusError: it has too many values; 413.
    """
    is_custom = resource.schema is not None or resource == kinds.CUSTOM_RESOURCE_DEFINITIONS
    limit = MAX_CUSTOM_VALUES if is_custom else MAX_VALUES
    if not status and resource in _SMALLER:
        limit = MAX_POD_VALUES
    if status:
        counted = content.get("status")
    else:
        counted = dict(content)
        if resource.subresource("status") is not None:
            counted.pop("status", None)
        if isinstance(meta := counted.get("metadata"), dict) and "managedFields" in meta:
            counted["metadata"] = {name: part for name, part in meta.items() if name != "managedFields"}
    if count_values(counted, limit) > limit:
        raise too_large(f"more than {limit} values in {'the status of ' if status else ''}a {resource.kind}")


def check_rules(resource: Resource, content: dict[str, Any]) -> None:
    """Checks a pod, the template of a workload, or a node. Their types have been checked.

    Raises:
        StatusError: it has too many rules for scheduling, or resources; 413.
    """
    if resource == kinds.PODS:
        spec = content.get("spec")
    elif resource in _WITH_TEMPLATE:
        spec = ((content.get("spec") or {}).get("template") or {}).get("spec")
    else:
        if resource == kinds.NODES:
            _check_node(content.get("status") or {})
        return
    if spec and _rules(spec) > MAX_RULES:
        raise too_large(
            f"more than {MAX_RULES} rules for scheduling in a {resource.kind} (affinity terms, topology "
            f"spread constraints, names of resources; {LABELS_PER_RULE} labels or expressions that select "
            "nodes are one rule)"
        )


def _check_node(status: dict[str, Any]) -> None:
    if any(len(status.get(field) or ()) > MAX_NODE_RESOURCES for field in ("capacity", "allocatable")):
        raise too_large(f"more than {MAX_NODE_RESOURCES} resources of a Node")


def _rules(spec: dict[str, Any]) -> float:
    rules = len(spec.get("topologySpreadConstraints") or ()) + len(_resource_names(spec))
    labels = len(spec.get("nodeSelector") or ())
    if affinity := spec.get("affinity"):
        for kind in ("podAffinity", "podAntiAffinity"):
            among_pods = affinity.get(kind) or {}
            rules += len(among_pods.get(_REQUIRED) or ()) + len(among_pods.get(_PREFERRED) or ())
        nodes = affinity.get("nodeAffinity") or {}
        terms = [
            *((nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()),
            *(preferred.get("preference") or {} for preferred in nodes.get(_PREFERRED) or ()),
        ]
        rules += len(terms)
        labels += sum(
            len(term.get("matchExpressions") or ()) + len(term.get("matchFields") or ()) for term in terms
        )
    return rules + labels / LABELS_PER_RULE


def _resource_names(spec: dict[str, Any]) -> set[str]:
    names: set[str] = set(spec.get("overhead") or ())
    for part in (spec, *containers_of(spec)):
        if resources := part.get("resources"):
            names.update(resources.get("requests") or (), resources.get("limits") or ())
    return names


def check_json(body: bytes) -> None:
    """Checks JSON before it is decoded, which is one call that nothing interrupts.

    Raises:
        StatusError: no object can have so many values; 413.
    """
    # Every value but the first is behind a comma or an opening bracket.
    if sum(map(body.count, b",[{")) <= MAX_CUSTOM_VALUES:
        return
    plain = _STRING.sub(b"", body)
    if sum(map(plain.count, b",[{")) > MAX_CUSTOM_VALUES:
        raise too_large(f"more than {MAX_CUSTOM_VALUES} values")


def check_names(content: Any) -> None:
    """Checks the names of fields and the keys of maps, but not those of managers, which have values in them.

    Raises:
        StatusError: one is too long; 413.
    """
    level = [content]
    while level:
        inner: list[Any] = []
        for container in level:
            if type(container) is dict:
                if container and max(map(len, container)) > MAX_NAME_CHARACTERS:
                    raise too_large(f"a name of more than {MAX_NAME_CHARACTERS} characters")
                inner += [
                    part
                    for name, part in container.items()
                    if type(part) in _CONTAINERS and name != "managedFields"
                ]
            elif type(container) is list:
                inner += [part for part in container if type(part) in _CONTAINERS]
        level = inner


def count_values(content: Any, limit: int = MAX_CUSTOM_VALUES) -> int:
    """How many values there are; a larger number than `limit` where there are more."""
    level, count = [content] if type(content) in _CONTAINERS else [], 1
    while level and count <= limit:
        inner: list[Any] = []
        for container in level:
            count += len(container)
            parts = container.values() if type(container) is dict else container
            inner += [part for part in parts if type(part) in _CONTAINERS]
        level = inner
    return count
