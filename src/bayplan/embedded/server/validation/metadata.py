"""Names, labels, annotations, owners and finalizers: the rules of all kinds."""

from __future__ import annotations

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
from bayplan.embedded.server.statuses import FieldProblem, forbidden_field, invalid_field, required

Content = dict[str, Any]

_STANDARD_FINALIZERS: Final = ("foregroundDeletion", "kubernetes", "orphan")
_RBAC: Final = "rbac.authorization.k8s.io"
_MOST_ANNOTATIONS: Final = 256 * 1024


def metadata_problems(resource: Resource, content: Content) -> list[FieldProblem]:
    meta = content["metadata"]
    problems = []
    name = meta.get("name", "")
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    else:
        problems += [invalid_field("metadata.name", name, why) for why in name_problems(resource, name)]
    problems += label_problems(meta.get("labels"), "metadata.labels")
    problems += _annotation_problems(meta.get("annotations"))
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
    """What is wrong with the name of an object."""
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


def _annotation_problems(annotations: dict[str, str] | None) -> list[FieldProblem]:
    problems = []
    size = 0
    for key, text in (annotations or {}).items():
        problems += [
            invalid_field("metadata.annotations", key, why) for why in label_key_problems(key.lower())
        ]
        size += len(key) + len(text)
    if size > _MOST_ANNOTATIONS:
        problems.append(
            FieldProblem(
                "metadata.annotations",
                f"Too long: may not be more than {_MOST_ANNOTATIONS} bytes",
                "FieldValueTooLong",
            )
        )
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
