"""Names, labels, annotations, owners and finalizers: the rules of all kinds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from bayplan.api.names import (
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
    path_segment_problems,
)
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.statuses import (
    FieldProblem,
    duplicate,
    forbidden_field,
    invalid_field,
    required,
    too_long,
    unsupported,
)

Content = dict[str, Any]

_STANDARD_FINALIZERS: Final = ("foregroundDeletion", "kubernetes", "orphan")
_RBAC: Final = "rbac.authorization.k8s.io"
_MAX_ANNOTATIONS: Final = 256 * 1024
_CONDITION_STATUSES: Final = ("False", "True", "Unknown")
_MAX_REASON: Final = 1024
_MAX_MESSAGE: Final = 32 * 1024
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_is_reason = re.compile(_REASON, re.ASCII).fullmatch
_REASON_RULE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  "
    "or 'MY_NAME',  "
    f"or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
)


def metadata_problems(resource: Resource, content: Content) -> list[FieldProblem]:
    meta = content["metadata"]
    problems = []
    name = meta.get("name", "")
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    else:
        problems += [invalid_field("metadata.name", name, why) for why in name_problems(resource, name)]
    problems += label_problems(meta.get("labels"), "metadata.labels")
    problems += annotation_problems(meta.get("annotations"), "metadata.annotations")
    problems += _owner_problems(meta.get("ownerReferences") or ())
    for i, finalizer in enumerate(meta.get("finalizers") or ()):
        problems += [
            invalid_field("metadata.finalizers", finalizer, why) for why in label_key_problems(finalizer)
        ]
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            problems.append(invalid_field(f"metadata.finalizers[{i}]", finalizer, why))
    return problems


def name_problems(resource: Resource, name: str) -> list[str]:
    """The problems of an object's name."""
    if resource in (kinds.NAMESPACES, kinds.SERVICES):
        return dns_label_problems(name)
    if resource.group == _RBAC:
        return path_segment_problems(name)
    return dns_subdomain_problems(name)


def label_problems(labels: dict[str, str] | None, path: str) -> list[FieldProblem]:
    problems = []
    for key, label in (labels or {}).items():
        problems += [invalid_field(path, key, why) for why in label_key_problems(key)]
        problems += [invalid_field(path, label, why) for why in label_value_problems(label)]
    return problems


def annotation_problems(annotations: dict[str, str] | None, path: str) -> list[FieldProblem]:
    problems = []
    size = 0
    for key, text in (annotations or {}).items():
        problems += [invalid_field(path, key, why) for why in label_key_problems(key.lower())]
        size += len(key) + len(text)
    if size > _MAX_ANNOTATIONS:
        problems.append(too_long(path, _MAX_ANNOTATIONS))
    return problems


def condition_problems(conditions: Sequence[Content], path: str) -> list[FieldProblem]:
    """Conditions of the common form (type, status, reason, message and times)."""
    problems = []
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        at, kind, reason = f"{path}[{i}]", condition.get("type", ""), condition.get("reason", "")
        if kind in seen:
            problems.append(duplicate(f"{at}.type", kind))
        seen.add(kind)
        problems += [invalid_field(f"{at}.type", kind, why) for why in label_key_problems(kind)]
        if (status := condition.get("status", "")) not in _CONDITION_STATUSES:
            problems.append(unsupported(f"{at}.status", status, _CONDITION_STATUSES))
        if (generation := condition.get("observedGeneration", 0)) < 0:
            why = "must be greater than or equal to zero"
            problems.append(invalid_field(f"{at}.observedGeneration", generation, why))
        problems += [
            required(f"{at}.{name}") for name in ("lastTransitionTime", "reason") if not condition.get(name)
        ]
        if reason and not _is_reason(reason):
            problems.append(invalid_field(f"{at}.reason", reason, _REASON_RULE))
        problems += [
            too_long(f"{at}.{name}", limit)
            for name, limit in (("reason", _MAX_REASON), ("message", _MAX_MESSAGE))
            if len(condition.get(name, "").encode()) > limit
        ]
    return problems


def _owner_problems(owners: Any) -> list[FieldProblem]:
    path = "metadata.ownerReferences"
    problems = []
    controllers = []
    for owner in owners:
        if not owner.get("apiVersion"):
            problems.append(invalid_field(f"{path}.apiVersion", "", "version must not be empty"))
        problems += [
            invalid_field(f"{path}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
    if len(controllers) > 1:
        problems.append(
            invalid_field(
                path,
                list(owners),
                'Only one reference can have Controller set to true. Found "true" in references for '
                f"{controllers[0]} and {controllers[1]}",
            )
        )
    return problems


def metadata_update_problems(content: Content, old: Content) -> list[FieldProblem]:
    """What cannot change: an object that is being deleted gets no new finalizers."""
    meta, known = content["metadata"], old["metadata"]
    if "deletionTimestamp" not in known:
        return []
    there = set(known.get("finalizers") or ())
    added = [name for name in meta.get("finalizers") or () if name not in there]
    if not added:
        return []
    names = ", ".join(f'"{name}"' for name in added)
    why = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
    problem = forbidden_field("metadata.finalizers", f"{why}{{{names}}}")
    return [problem, problem]  # a real server names it twice among the causes
