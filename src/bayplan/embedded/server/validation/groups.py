"""Validation of PodGroups, CompositePodGroups and Workloads, in the order of their fields.

Upstream these rules are generated from tags on the types. Of a group only minCount may change; an update says
so for each field that differs, and checks what changed. The same rules hold for what a Workload has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.api.names import dns_label_problems, dns_subdomain_problems, label_key_problems
from bayplan.embedded.server.statuses import (
    FieldProblem,
    duplicate,
    forbidden_field,
    invalid_field,
    required,
    too_many,
    unsupported,
)
from bayplan.embedded.server.validation.values import IMMUTABLE

Problems = list[FieldProblem]

MAX_CLAIMS: Final = 4
MAX_TEMPLATES: Final = 8
MAX_DEPTH: Final = 4
MAX_PRIORITY: Final = 1_000_000_000
_POLICIES: Final = ("PreemptLowerPriority", "Never")
_CLAIM_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_TEMPLATE_LISTS: Final = ("podGroupTemplates", "compositePodGroupTemplates")
_SEVERAL_PRIORITIES: Final = "detected multiple priority configurations"
_OTHER_PRIORITIES: Final = (
    "all priority and priorityClassName values must be identical, detected multiple values"
)


# Groups


def pod_group_problems(item: Content, old: Content | None = None) -> Problems:
    return _spec_problems(item.get("spec") or {}, None if old is None else old["spec"], _GROUP_FIELDS)


def composite_group_problems(item: Content, old: Content | None = None) -> Problems:
    spec = item.get("spec") or {}
    if old is None and spec.get("workloadRef") is None:
        return [required("spec.workloadRef"), *_spec_problems(spec, None, _COMPOSITE_FIELDS)]
    return _spec_problems(spec, None if old is None else old["spec"], _COMPOSITE_FIELDS)


def group_status_problems(item: Content, old: Content) -> Problems:
    status = item.get("status") or {}
    problems = []
    for i, condition in enumerate(status.get("conditions") or ()):
        at = f"status.conditions[{i}]"
        names = ("type", "status", "lastTransitionTime", "reason")
        problems += [required(f"{at}.{name}") for name in names if not condition.get(name)]
    claims = {claim.get("name") for claim in (item.get("spec") or {}).get("resourceClaims") or ()}
    for i, claim in enumerate(status.get("resourceClaimStatuses") or ()):
        if claim.get("name") not in claims:
            why = "must match the name of an entry in `spec.resourceClaims`"
            problems.append(invalid_field(f"status.resourceClaimStatuses[{i}].name", claim.get("name"), why))
    return problems


def _spec_problems(
    spec: Content, old: Content | None, fields: dict[str, Callable[[Any, str], Problems]]
) -> Problems:
    problems: Problems = []
    if spec.get("parentCompositePodGroupName") is not None and spec.get("workloadRef") is None:
        why = "must be set when parentCompositePodGroupName is set"
        problems.append(required("spec.workloadRef", why))
    for name, check in fields.items():
        part, path = spec.get(name), f"spec.{name}"
        if old is None:
            problems += check(part, path)
        elif part == old.get(name):
            continue
        elif name == "schedulingPolicy" and check is _policy:
            problems += _policy_update(part or {}, old.get(name) or {}, path)
        else:
            problems.append(invalid_field(path, None, IMMUTABLE))
    return problems


def _policy_update(policy: Content, old: Content, path: str) -> Problems:
    """minCount may change, the policy may not."""
    problems = _union(policy, ("basic", "gang"), path)
    if policy.get("basic") != old.get("basic"):
        problems.append(invalid_field(f"{path}.basic", None, IMMUTABLE))
    gang, known = policy.get("gang"), old.get("gang")
    if gang is None and known is not None:
        problems.append(invalid_field(f"{path}.gang", None, "field cannot be cleared once set"))
    elif gang is not None and known is None:
        problems.append(invalid_field(f"{path}.gang", None, "field cannot be set once created"))
    elif gang is not None:
        problems += _count(gang, "minCount", f"{path}.gang")
    return problems


# Fields


def _union(content: Content, members: tuple[str, ...], path: str) -> Problems:
    """Exactly one of these is set."""
    given = [name for name in members if content.get(name) not in (None, [])]
    names = ", ".join(f"`{name}`" for name in members)
    if not given:
        return [invalid_field(path, "", f"must specify one of: {names}")]
    if len(given) > 1:
        return [invalid_field(path, f"{{{', '.join(given)}}}", f"must specify exactly one of: {names}")]
    return []


def _count(content: Content, name: str, path: str) -> Problems:
    number = content.get(name) or 0
    if not number:
        return [required(f"{path}.{name}")]
    why = "must be greater than or equal to 1"
    return [invalid_field(f"{path}.{name}", number, why)] if number < 1 else []


def _policy(policy: Any, path: str) -> Problems:
    policy = policy or {}
    problems = _union(policy, ("basic", "gang"), path)
    if policy.get("gang") is not None:
        problems += _count(policy["gang"], "minCount", f"{path}.gang")
    return problems


def _composite_policy(policy: Any, path: str) -> Problems:
    policy = policy or {}
    problems = _union(policy, ("basic", "gang"), path)
    if policy.get("gang") is not None:
        problems += _count(policy["gang"], "minGroupCount", f"{path}.gang")
    return problems


def _disruption_mode(mode: Any, path: str) -> Problems:
    return [] if mode is None else _union(mode, ("single", "all"), path)


def _subdomain(name: Any, path: str) -> Problems:
    return [invalid_field(path, name, why) for why in dns_subdomain_problems(name)] if name else []


def _workload(reference: Any, path: str) -> Problems:
    if reference is None:
        return []
    problems = []
    for field, rule in (("workloadName", dns_subdomain_problems), ("templateName", dns_label_problems)):
        name = reference.get(field)
        if not name:
            problems.append(required(f"{path}.{field}"))
        else:
            problems += [invalid_field(f"{path}.{field}", name, why) for why in rule(name)]
    return problems


def _constraints(constraints: Any, path: str) -> Problems:
    topology = (constraints or {}).get("topology") or ()
    if len(topology) > 1:
        message = f"Too many: {len(topology)}: must have at most 1 item"
        return [FieldProblem(f"{path}.topology", message, "FieldValueTooMany")]
    problems = []
    for i, one in enumerate(topology):
        at, key = f"{path}.topology[{i}].key", one.get("key")
        problems += (
            [required(at)] if not key else [invalid_field(at, key, w) for w in label_key_problems(key)]
        )
    return problems


def _claims(claims: Any, path: str) -> Problems:
    claims = claims or ()
    if len(claims) > MAX_CLAIMS:
        return [too_many(path, len(claims), MAX_CLAIMS)]
    problems = _duplicates(claims, path)
    for i, claim in enumerate(claims):
        at = f"{path}[{i}]"
        problems += _union(claim, _CLAIM_SOURCES, at)
        if not claim.get("name"):
            problems.append(required(f"{at}.name"))
        else:
            problems += [
                invalid_field(f"{at}.name", claim["name"], w) for w in dns_label_problems(claim["name"])
            ]
        for source in _CLAIM_SOURCES:
            problems += _subdomain(claim.get(source), f"{at}.{source}")
    return problems


def _duplicates(items: Any, path: str, **more: Any) -> Problems:
    seen: set[Any] = set()
    problems = []
    for i, item in enumerate(items):
        if item.get("name") in seen:
            problems.append(duplicate(f"{path}[{i}]", {**item, **more}))
        seen.add(item.get("name"))
    return problems


def _priority(priority: Any, path: str) -> Problems:
    if priority is None or priority <= MAX_PRIORITY:
        return []
    return [invalid_field(path, priority, f"must be less than or equal to {MAX_PRIORITY}")]


def _preemption_policy(policy: Any, path: str) -> Problems:
    return [] if policy is None or policy in _POLICIES else [unsupported(path, policy, sorted(_POLICIES))]


_GROUP_FIELDS: Final[dict[str, Callable[[Any, str], Problems]]] = {
    "parentCompositePodGroupName": _subdomain,
    "workloadRef": _workload,
    "schedulingPolicy": _policy,
    "schedulingConstraints": _constraints,
    "resourceClaims": _claims,
    "disruptionMode": _disruption_mode,
    "priorityClassName": _subdomain,
    "priority": _priority,
    "preemptionPolicy": _preemption_policy,
}
_COMPOSITE_FIELDS: Final[dict[str, Callable[[Any, str], Problems]]] = {
    name: _composite_policy if name == "schedulingPolicy" else check
    for name, check in _GROUP_FIELDS.items()
    if name != "resourceClaims"
}


# Workloads


def workload_problems(item: Content) -> Problems:
    spec = item.get("spec") or {}
    problems = _name_problems(spec) + _priority_problems(spec)
    problems += _union(spec, _TEMPLATE_LISTS, "spec")
    reference = spec.get("controllerRef")
    if reference is not None:
        at = "spec.controllerRef"
        problems += [required(f"{at}.{name}") for name in ("kind", "name") if not reference.get(name)]
    return problems + _list_problems(spec, "spec", depth=1)


def workload_update_problems(item: Content, old: Content) -> Problems:
    """minCount may change, nothing else of a template, and templates are not added or removed."""
    spec, known = item.get("spec") or {}, old.get("spec") or {}
    problems: Problems = []
    if spec.get("controllerRef") != known.get("controllerRef"):
        problems.append(invalid_field("spec.controllerRef", None, IMMUTABLE))
    return problems + _list_update(spec, known, "spec")


def _list_problems(content: Content, path: str, depth: int) -> Problems:
    problems: Problems = []
    for name in _TEMPLATE_LISTS:
        templates, fields = (
            content.get(name) or (),
            _GROUP_FIELDS if name == "podGroupTemplates" else _COMPOSITE_FIELDS,
        )
        at = f"{path}.{name}"
        if len(templates) > MAX_TEMPLATES:
            problems.append(too_many(at, len(templates), MAX_TEMPLATES))
            continue
        if name == "compositePodGroupTemplates" and templates and depth >= MAX_DEPTH:
            why = f"maximum template hierarchy depth is {MAX_DEPTH}"
            problems.append(invalid_field(f"{at}[0]", None, why))
            continue
        problems += _duplicates(templates, at, schedulingConstraints=None)
        for i, template in enumerate(templates):
            problems += _template_problems(template, f"{at}[{i}]", fields)
            if name == "compositePodGroupTemplates":
                if not any(template.get(below) for below in _TEMPLATE_LISTS):
                    why = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
                    problems.append(invalid_field(f"{at}[{i}]", template.get("name", ""), why))
                problems += _list_problems(template, f"{at}[{i}]", depth + 1)
    return problems


def _template_problems(
    template: Content, path: str, fields: dict[str, Callable[[Any, str], Problems]]
) -> Problems:
    name = template.get("name")
    problems = [required(f"{path}.name")] if not name else []
    problems += [invalid_field(f"{path}.name", name, why) for why in dns_label_problems(name)] if name else []
    for field, check in fields.items():
        if field not in ("parentCompositePodGroupName", "workloadRef"):
            problems += check(template.get(field), f"{path}.{field}")
    return problems


def _list_update(content: Content, old: Content, path: str) -> Problems:
    problems: Problems = []
    for name in _TEMPLATE_LISTS:
        known = {template.get("name"): template for template in old.get(name) or ()}
        left = set(known)
        for i, template in enumerate(content.get(name) or ()):
            at = f"{path}.{name}[{i}]"
            before = known.get(template.get("name"))
            left.discard(template.get("name"))
            if before is None:
                problems.append(forbidden_field(at, "item may not be added"))
            else:
                problems += _template_update(template, before, at)
        problems += [forbidden_field(f"{path}.{name}", "item may not be removed") for _ in left]
    return problems


def _template_update(template: Content, old: Content, path: str) -> Problems:
    problems = _list_update(template, old, path)
    for field in _GROUP_FIELDS:
        part, known = template.get(field), old.get(field)
        if part == known:
            continue
        if field == "schedulingPolicy" and "minGroupCount" not in (known or {}).get("gang", {}):
            problems += _policy_update(part or {}, known or {}, f"{path}.{field}")
        else:
            problems.append(invalid_field(f"{path}.{field}", None, IMMUTABLE))
    return problems


def _name_problems(spec: Content) -> Problems:
    """Names are unique in the whole tree; those of one list are checked with the list."""
    names = {template.get("name") for template in spec.get("podGroupTemplates") or ()}
    problems: Problems = []

    def visit(templates: Any, path: str, checked: bool) -> None:
        for i, template in enumerate(templates or ()):
            name = template.get("name")
            if checked and name in names:
                problems.append(duplicate(f"{path}[{i}].name", name))
            names.add(name)
            for below in _TEMPLATE_LISTS:
                visit(template.get(below), f"{path}[{i}].{below}", checked=True)

    visit(spec.get("compositePodGroupTemplates"), "spec.compositePodGroupTemplates", checked=False)
    return problems


def _priority_problems(spec: Content) -> Problems:
    """All templates of the tree have the same priority and class."""

    def classes(templates: Any) -> Iterator[tuple[str, int | None]]:
        for template in templates or ():
            yield template.get("priorityClassName") or "", template.get("priority")
            for below in _TEMPLATE_LISTS:
                yield from classes(template.get(below))

    plain = set(classes(spec.get("podGroupTemplates")))
    if len(plain) > 1:
        return [invalid_field("spec", None, _SEVERAL_PRIORITIES)]
    if len(plain | set(classes(spec.get("compositePodGroupTemplates")))) > 1:
        return [invalid_field("spec", None, _OTHER_PRIORITIES)]
    return []
