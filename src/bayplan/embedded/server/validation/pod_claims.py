"""The rules of a pod's resource claims: in its spec, in its containers and in its status."""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.names import dns_label_problems, dns_subdomain_problems
from bayplan.embedded.server.schema.go_structs import go_struct
from bayplan.embedded.server.schema.types import named_type
from bayplan.embedded.server.statuses import (
    FieldProblem,
    duplicate,
    invalid_field,
    missing_reference,
    required,
)

Content = dict[str, Any]

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
