"""The rules of pods, of templates of pods, and of the resource claims of pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.api.names import (
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
)
from bayplan.embedded.server.preparation import quality_of_service
from bayplan.embedded.server.schema.types import NEWEST, go_struct, named_type
from bayplan.embedded.server.statuses import (
    FieldProblem,
    duplicate,
    forbidden_field,
    invalid_field,
    missing_reference,
    required,
    unsupported,
)
from bayplan.embedded.server.validation.values import (
    choice_problems,
    label_problems,
    node_term_problems,
    resource_problems,
    selector_problems,
)

_PORTS: Final = range(1, 65536)
_PORT_RANGE: Final = "must be between 1 and 65535, inclusive"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHTS: Final = range(1, 101)
_LABELS_OF_SPREADING: Final = ("DoNotSchedule", "ScheduleAnyway")
_CHANGEABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_problems(pod: Content) -> list[FieldProblem]:
    return pod_spec_problems(pod.get("spec") or {}, "spec")


def pod_spec_problems(spec: Content, path: str, claims: Iterable[str] = ()) -> list[FieldProblem]:
    """The problems of the spec of a pod or template.

    `claims` are volumes that the pods of a template will have and that it may therefore mount.
    """
    problems = _volumes(spec, path)
    problems += pod_claim_problems(spec, path)
    problems += _containers(spec, path, claims)
    problems += choice_problems(spec, named_type("PodSpec", NEWEST), path)
    problems += _numbers(spec, path)
    problems += label_problems(spec.get("nodeSelector"), f"{path}.nodeSelector")
    problems += _affinity(spec.get("affinity") or {}, f"{path}.affinity")
    problems += _tolerations(spec, path)
    problems += _gates(spec, path)
    problems += _spreading(spec, path)
    if name := spec.get("priorityClassName"):
        at = f"{path}.priorityClassName"
        problems += [invalid_field(at, name, why) for why in dns_subdomain_problems(name)]
    if name := spec.get("nodeName"):
        problems += [invalid_field(f"{path}.nodeName", name, why) for why in dns_subdomain_problems(name)]
    if (group := spec.get("schedulingGroup")) is not None:
        at, name = f"{path}.schedulingGroup.podGroupName", group.get("podGroupName")
        if not name:
            problems.append(invalid_field(at, name, "must specify one of: `podGroupName`"))
        else:
            problems += [invalid_field(at, name, why) for why in dns_subdomain_problems(name)]
    if overhead := spec.get("overhead"):
        problems += resource_problems({"limits": overhead}, f"{path}.overhead")
    return problems


def _numbers(spec: Content, path: str) -> list[FieldProblem]:
    problems = []
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        at = f"{path}.activeDeadlineSeconds"
        problems.append(invalid_field(at, deadline, "must be between 1 and 2147483647, inclusive"))
    return problems


def _volumes(spec: Content, path: str) -> list[FieldProblem]:
    problems = []
    seen: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or ()):
        at = f"{path}.volumes[{i}]"
        problems += _name(volume, at, seen)
        sources = [key for key in volume if key != "name"]
        for extra in sources[1:]:
            problems.append(forbidden_field(f"{at}.{extra}", "may not specify more than 1 volume type"))
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            problems.append(required(f"{at}.persistentVolumeClaim.claimName"))
    return problems


def _name(entry: Content, at: str, seen: set[str]) -> list[FieldProblem]:
    """The problems of the name of an entry in a list; `seen` are the names before it."""
    name = entry.get("name", "")
    if not name:
        return [required(f"{at}.name")]
    if name in seen:
        return [duplicate(f"{at}.name", name)]
    seen.add(name)
    return [invalid_field(f"{at}.name", name, why) for why in dns_label_problems(name)]


def _containers(spec: Content, path: str, claims: Iterable[str]) -> list[FieldProblem]:
    problems = []
    if not spec.get("containers"):
        problems.append(required(f"{path}.containers"))
    volumes = {*claims, *(volume.get("name") for volume in spec.get("volumes") or ())}
    names: set[str] = set()
    host_ports: set[tuple[Any, ...]] = set()
    for field in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field) or ()):
            at = f"{path}.{field}[{i}]"
            problems += _container(container, at, names, volumes)
            problems += container_claim_problems(container, at, spec)
            if field == "containers":
                problems += _ports(container, at, host_ports)
    return problems


def _container(container: Content, at: str, names: set[str], volumes: set[Any]) -> list[FieldProblem]:
    problems = _name(container, at, names)
    if not container.get("image"):
        problems.append(required(f"{at}.image"))
    for i, mount in enumerate(container.get("volumeMounts") or ()):
        if not mount.get("name"):
            problems.append(required(f"{at}.volumeMounts[{i}].name"))
        elif mount["name"] not in volumes:
            problems.append(missing_reference(f"{at}.volumeMounts[{i}].name", mount["name"]))
        if not mount.get("mountPath"):
            problems.append(required(f"{at}.volumeMounts[{i}].mountPath"))
    problems += resource_problems(container.get("resources") or {}, f"{at}.resources")
    return problems


def _ports(container: Content, at: str, host_ports: set[tuple[Any, ...]]) -> list[FieldProblem]:
    problems = []
    for i, port in enumerate(container.get("ports") or ()):
        here = f"{at}.ports[{i}]"
        number = port.get("containerPort", 0)
        if not number:
            problems.append(required(f"{here}.containerPort"))
        elif number not in _PORTS:
            problems.append(invalid_field(f"{here}.containerPort", number, _PORT_RANGE))
        host_port = port.get("hostPort", 0)
        if host_port and host_port not in _PORTS:
            problems.append(invalid_field(f"{here}.hostPort", host_port, _PORT_RANGE))
        if host_port:
            taken = (port.get("protocol", "TCP"), port.get("hostIP", ""), host_port)
            if taken in host_ports:
                shown = f"{taken[0]}/{taken[1]}/{host_port}"
                problems.append(duplicate(f"{here}.hostPort", shown))
            host_ports.add(taken)
    return problems


def _affinity(affinity: Content, path: str) -> list[FieldProblem]:
    problems = _node_affinity(affinity.get("nodeAffinity") or {}, f"{path}.nodeAffinity")
    for name in ("podAffinity", "podAntiAffinity"):
        part, at = affinity.get(name) or {}, f"{path}.{name}"
        for i, term in enumerate(part.get(_REQUIRED) or ()):
            problems += _pod_term(term, f"{at}.{_REQUIRED}[{i}]")
        for i, weighted in enumerate(part.get(_PREFERRED) or ()):
            here = f"{at}.{_PREFERRED}[{i}]"
            problems += _weight(weighted, here)
            problems += _pod_term(weighted.get("podAffinityTerm") or {}, f"{here}.podAffinityTerm")
    return problems


def _node_affinity(affinity: Content, path: str) -> list[FieldProblem]:
    problems = []
    needed = affinity.get(_REQUIRED)
    if needed is not None:
        at = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        terms = needed.get("nodeSelectorTerms") or ()
        if not terms:
            problems.append(required(at, "must have at least one node selector term"))
        for i, term in enumerate(terms):
            problems += node_term_problems(term, f"{at}[{i}]")
    for i, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{path}.{_PREFERRED}[{i}]"
        problems += _weight(weighted, at)
        problems += node_term_problems(weighted.get("preference") or {}, f"{at}.preference")
    return problems


def _weight(weighted: Content, path: str) -> list[FieldProblem]:
    weight = weighted.get("weight", 0)
    return (
        [] if weight in _WEIGHTS else [invalid_field(f"{path}.weight", weight, "must be in the range 1-100")]
    )


def _pod_term(term: Content, path: str) -> list[FieldProblem]:
    problems = selector_problems(term.get("labelSelector"), f"{path}.labelSelector")
    problems += selector_problems(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or ():
        problems += [invalid_field(f"{path}.namespace", name, why) for why in dns_label_problems(name)]
    key = term.get("topologyKey", "")
    if not key:
        problems.append(required(f"{path}.topologyKey", "can not be empty"))
    problems += [invalid_field(f"{path}.topologyKey", key, why) for why in label_key_problems(key)]
    return problems


def _tolerations(spec: Content, path: str) -> list[FieldProblem]:
    problems = []
    for i, toleration in enumerate(spec.get("tolerations") or ()):
        at = f"{path}.tolerations[{i}]"
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        text = toleration.get("value", "")
        if key:
            problems += [invalid_field(f"{at}.key", key, why) for why in label_key_problems(key)]
        elif operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            problems.append(invalid_field(f"{at}.operator", operator, why))
        if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            problems.append(invalid_field(f"{at}.effect", toleration.get("effect", ""), why))
        if operator in ("", "Equal"):
            why_not = "; ".join(label_value_problems(text))
            if why_not:
                problems.append(invalid_field(f"{at}.operator", text, why_not))
        elif operator == "Exists" and text:
            why = "value must be empty when `operator` is 'Exists'"
            problems.append(invalid_field(f"{at}.operator", text, why))
        elif operator != "Exists":
            problems.append(unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
    return problems


def _gates(spec: Content, path: str) -> list[FieldProblem]:
    gates = spec.get("schedulingGates") or ()
    problems = []
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        at, name = f"{path}.schedulingGates[{i}]", gate.get("name", "")
        problems += [
            invalid_field(f"{path}.schedulingGates[{i}]", name, why) for why in label_key_problems(name)
        ]
        if name in seen:
            problems.append(duplicate(at, name))
        seen.add(name)
    if gates and spec.get("nodeName"):
        why = "cannot be set until all schedulingGates have been cleared"
        problems.append(forbidden_field(f"{path}.nodeName", why))
    return problems


def _spreading(spec: Content, path: str) -> list[FieldProblem]:
    problems = []
    constraints = spec.get("topologySpreadConstraints") or []
    for i, constraint in enumerate(constraints):
        at = f"{path}.topologySpreadConstraints[{i}]"
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        action = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            problems.append(invalid_field(f"{at}.maxSkew", skew, "must be greater than zero"))
        if not key:
            problems.append(required(f"{at}.topologyKey", "can not be empty"))
        else:
            problems += [invalid_field(f"{at}.topologyKey", key, why) for why in label_key_problems(key)]
        if not action:
            problems.append(unsupported(f"{at}.whenUnsatisfiable", action, _LABELS_OF_SPREADING))
        if any(_same_spreading(constraint, later) for later in constraints[i + 1 :]):
            problems.append(duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                problems.append(invalid_field(f"{at}.minDomains", domains, "must be greater than zero"))
            if action != "DoNotSchedule":
                why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                problems.append(invalid_field(f"{at}.minDomains", domains, why))
        problems += selector_problems(constraint.get("labelSelector"), f"{at}.labelSelector")
    return problems


def _same_spreading(one: Content, other: Content) -> bool:
    return all(one.get(field) == other.get(field) for field in ("topologyKey", "whenUnsatisfiable"))


def pod_update_problems(pod: Content, old: Content) -> list[FieldProblem]:
    """Changes of a pod that are not allowed."""
    spec, known = pod.get("spec") or {}, old.get("spec") or {}
    gates = {gate.get("name") for gate in known.get("schedulingGates") or ()}
    problems = [
        forbidden_field(
            f"spec.schedulingGates[{i}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for i, gate in enumerate(spec.get("schedulingGates") or ())
        if gate.get("name") not in gates
    ]
    tolerations = spec.get("tolerations") or []
    for toleration in known.get("tolerations") or ():
        if not any(_same_toleration(each, toleration) for each in tolerations):
            why = "existing toleration can not be modified except its tolerationSeconds"
            problems.append(forbidden_field("spec.tolerations", why))
            break
    if _fixed(spec, known, gated=bool(gates)) != _fixed(known, known, gated=bool(gates)):
        problems.append(forbidden_field("spec", _CHANGEABLE))
    return problems


def pod_resize_problems(pod: Content, old: Content) -> list[FieldProblem]:
    """The problems of new resources of a pod's containers."""
    problems = []
    for i, (new, known) in enumerate(zip(pod["spec"]["containers"], old["spec"]["containers"], strict=True)):
        at = f"spec.containers[{i}].resources"
        problems += resource_problems(new.get("resources") or {}, at)
        if _not_resizable(new) != _not_resizable(known):
            problems.append(forbidden_field(at, "only cpu and memory resources are mutable"))
    if not problems and quality_of_service(pod["spec"]) != (known_class := quality_of_service(old["spec"])):
        why = "Pod QOS Class may not change as a result of resizing"
        problems.append(invalid_field("spec", known_class, why))
    return problems


def _not_resizable(container: Content) -> list[tuple[str, str, Any]]:
    resources = container.get("resources") or {}
    parts = ((field, resources.get(field) or {}) for field in ("requests", "limits"))
    return sorted(
        (field, name, amount)
        for field, part in parts
        for name, amount in part.items()
        if name not in ("cpu", "memory")
    )


def _same_toleration(one: Content, other: Content) -> bool:
    fields = ("key", "operator", "value", "effect")
    return all(one.get(field, "") == other.get(field, "") for field in fields)


def _fixed(spec: Content, known: Content, *, gated: bool) -> Content:
    """A spec with the old values of fields that may change."""
    free = {"tolerations", "activeDeadlineSeconds", "schedulingGates"}
    if gated:
        free |= {"nodeSelector", "affinity"}
    if known.get("terminationGracePeriodSeconds", 0) < 0:
        free.add("terminationGracePeriodSeconds")
    fixed = {name: part for name, part in spec.items() if name not in free}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in c.items() if k != "image"} for c in fixed[field]]
    return fixed


_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")


def pod_claim_problems(spec: Content, path: str) -> list[FieldProblem]:
    """The problems of spec.resourceClaims."""
    problems = []
    seen: set[str] = set()
    for i, claim in enumerate(spec.get("resourceClaims") or ()):
        at, name = f"{path}.resourceClaims[{i}]", claim.get("name", "")
        if not name:
            problems.append(required(f"{at}.name"))
        elif name in seen:
            problems.append(duplicate(f"{at}.name", name))
        else:
            problems += [invalid_field(f"{at}.name", name, why) for why in dns_label_problems(name)]
        seen.add(name)
        given = [source for source in _SOURCES if source in claim]
        shown = go_struct(claim, named_type("PodResourceClaim"))
        if len(given) > 1:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            problems.append(invalid_field(at, shown, why))
        elif not given:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            problems.append(invalid_field(at, shown, why))
        for source in given:
            whys = dns_subdomain_problems(claim[source])
            problems += [invalid_field(f"{at}.{source}", claim[source], why) for why in whys]
    return problems


def container_claim_problems(container: Content, path: str, spec: Content) -> list[FieldProblem]:
    """The problems of a container's resources.claims."""
    problems = []
    known = {claim["name"] for claim in spec.get("resourceClaims") or () if claim.get("name")}
    seen: set[tuple[str, str]] = set()
    for i, claim in enumerate((container.get("resources") or {}).get("claims") or ()):
        at = f"{path}.resources.claims[{i}]"
        name, request = claim.get("name", ""), claim.get("request", "")
        if not name:
            problems.append(required(at))
            continue
        if (name, "") in seen or (not request and any(each == name for each, _ in seen)):
            problems.append(duplicate(at, name))
        else:
            if request:
                whys = dns_label_problems(request)
                problems += [invalid_field(f"{at}.request", request, why) for why in whys]
            if (name, request) in seen:
                problems.append(duplicate(at, f"{name}/{request}"))
        seen.add((name, request))
        if name not in known:
            rest = f": {', '.join(sorted(known))}" if known else " which is empty"
            why = f"must be one of the names in pod.spec.resourceClaims{rest}"
            problems.append(missing_reference(at, name, why))
    return problems


def pod_claim_status_problems(pod: Content, old: Content) -> list[FieldProblem]:
    """The problems of the claims in a pod's status."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    problems = []
    known = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for i, claim in enumerate(status.get("resourceClaimStatuses") or ()):
        at, name = f"status.resourceClaimStatuses[{i}]", claim.get("name", "")
        if name not in known:
            why = "must match the name of an entry in `spec.resourceClaims`"
            problems.append(invalid_field(f"{at}.name", name, why))
        if name in seen:
            problems.append(duplicate(f"{at}.name", name))
        seen.add(name)
        if (claim_name := claim.get("resourceClaimName")) is not None:
            whys = dns_subdomain_problems(claim_name)
            problems += [invalid_field(f"{at}.resourceClaimName", claim_name, why) for why in whys]
    extended = status.get("extendedResourceClaimStatus")
    return problems if extended is None else problems + _extended_problems(extended, spec)


def _extended_problems(extended: Content, spec: Content) -> list[FieldProblem]:
    path = "status.extendedResourceClaimStatus"
    containers = {
        container.get("name"): container
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    }
    mappings = extended.get("requestMappings") or []
    problems = []
    if not mappings:
        problems.append(required(f"{path}.requestMappings", "at least one request mapping is required"))
    for i, mapping in enumerate(mappings):
        at = f"{path}.requestMappings[{i}]"
        container, resource = mapping.get("containerName", ""), mapping.get("resourceName", "")
        if container not in containers:
            why = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            problems.append(invalid_field(f"{at}.containerName", container, why))
        elif resource not in ((containers[container].get("resources") or {}).get("requests") or {}):
            why = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"  # noqa: E501
            problems.append(invalid_field(f"{at}.resourceName", resource, why))
        request = mapping.get("requestName", "")
        problems += [
            invalid_field(f"{path}.requestName", request, why) for why in dns_label_problems(request)
        ]
        if mapping in mappings[:i]:
            names = ("containerName", "resourceName", "requestName")
            problems += [duplicate(f"{at}.{name}", mapping.get(name, "")) for name in names]
    name = extended.get("resourceClaimName", "")
    if not name:
        return [*problems, required(f"{path}.resourceClaimName")]
    whys = dns_subdomain_problems(name)
    return problems + [invalid_field(f"{path}.resourceClaimName", name, why) for why in whys]
