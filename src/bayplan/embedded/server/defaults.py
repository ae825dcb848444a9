"""Defaults of kinds that scheduling does not read, of custom resources and of a release; in place.

Those of all other kinds are in `bayplan.api.defaults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from bayplan.api.defaults import DEFAULTS
from bayplan.api.meta import Content
from bayplan.api.pod_defaults import default_template
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.validation.custom import fill_in


def apply_defaults(resource: Resource, content: Content) -> None:
    """Sets defaults. It is idempotent."""
    fill = _OTHERS.get(resource) or DEFAULTS.get((resource.group, resource.kind))
    if fill is not None:
        fill(content)
    elif resource.schema is not None:
        fill_in(content, resource.schema)
    _fill(content, resource.defaults)


def _fill(content: Content, defaults: Mapping[str, Any]) -> None:
    """Sets the defaults of a tree in parent objects that exist."""
    for name, value in defaults.items():
        if not isinstance(value, Mapping):
            content.setdefault(name, value)
        elif not value:
            content.setdefault(name, {})
        elif isinstance(within := content.get(name), dict):
            _fill(within, value)


def _event(content: Content) -> None:
    content.setdefault("source", {})


def _secret(content: Content) -> None:
    content.setdefault("type", "Opaque")
    if plain := content.pop("stringData", None):
        from base64 import b64encode

        data = content.setdefault("data", {})
        for name, text in plain.items():
            data[name] = b64encode(text.encode()).decode()


def _service(content: Content) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _definition(content: Content) -> None:
    spec = content.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


def _pod_group(content: Content) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("schedulingPolicy", {})
    spec.setdefault("disruptionMode", {"single": {}})


def default_taint_times(content: Content, now: str) -> None:
    """Sets timeAdded of device taints without one to now."""
    if (taint := (content.get("spec") or {}).get("taint")) is not None:
        taint.setdefault("timeAdded", now)
    for device in (content.get("spec") or {}).get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now)


def _device_class(content: Content) -> None:
    content.setdefault("spec", {})


def _taint_rule(content: Content) -> None:
    content.setdefault("spec", {}).setdefault("taint", {})


def _device_slice(content: Content) -> None:
    spec = content.setdefault("spec", {})
    if spec.get("devices") == [] and "sharedCounters" not in spec:
        del spec["devices"]
    for device in spec.get("devices") or ():
        for capacity in (device.get("capacity") or {}).values():
            capacity.setdefault("value", "0")


_RBAC: Final = "rbac.authorization.k8s.io"
_SELECTORS: Final = ("namespaceSelector", "objectSelector")
_SCALE_UP: Final = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN: Final = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}
_CPU_UTILIZATION: Final = 80


def cpu_metric(percentage: int = _CPU_UTILIZATION) -> Content:
    """The defaults of an autoscaler."""
    target = {"type": "Utilization", "averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _autoscaler(content: Content) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric()]
    if (behavior := spec.get("behavior")) is not None:
        for name, rules in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            behavior[name] = {**rules, **(behavior.get(name) or {})}


def _binding(content: Content) -> None:
    content.setdefault("roleRef", {}).setdefault("apiGroup", _RBAC)
    for subject in content.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", _RBAC)


def _cron_job(content: Content) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    job = spec.setdefault("jobTemplate", {})
    job.setdefault("metadata", {})
    default_template(job)


def _pod_template(content: Content) -> None:
    # `default_template` expects the template in `spec`, as workloads have it.
    workload = {"spec": {"template": content.get("template") or {}}}
    default_template(workload)
    content["template"] = workload["spec"]["template"]


def _ingress_class(content: Content) -> None:
    if parameters := content.setdefault("spec", {}).get("parameters"):
        parameters.setdefault("scope", "Cluster")


def _network_policy(content: Content) -> None:
    spec = content.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        _default_protocols(rule.get("ports") or ())


def _endpoints(content: Content) -> None:
    for subset in content.get("subsets") or ():
        _default_protocols(subset.get("ports") or ())


def _endpoint_slice(content: Content) -> None:
    for endpoint in content.get("endpoints") or ():
        endpoint.setdefault("conditions", {})
    for port in content.get("ports") or ():
        port.setdefault("name", "")
    _default_protocols(content.get("ports") or ())


def _default_protocols(ports: Iterable[Content]) -> None:
    for port in ports:
        port.setdefault("protocol", "TCP")


def _webhooks(**more: str) -> Callable[[Content], None]:
    def fill(content: Content) -> None:
        for webhook in content.get("webhooks") or ():
            defaults = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10, **more}
            for name, default in {**defaults, **{name: {} for name in _SELECTORS}}.items():
                webhook.setdefault(name, default)
            for rule in webhook.get("rules") or ():
                rule.setdefault("scope", "*")
            if service := (webhook.get("clientConfig") or {}).get("service"):
                service.setdefault("port", 443)

    return fill


def _policy(content: Content) -> None:
    spec = content.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    _match_resources(spec.get("matchConstraints"))


def _policy_binding(content: Content) -> None:
    _match_resources(content.setdefault("spec", {}).get("matchResources"))


def _match_resources(match: Content | None) -> None:
    if match is None:
        return
    match.setdefault("matchPolicy", "Equivalent")
    for name in _SELECTORS:
        match.setdefault(name, {})
    for rule in (*(match.get("resourceRules") or ()), *(match.get("excludeResourceRules") or ())):
        rule.setdefault("scope", "*")


def _priority_level(content: Content) -> None:
    spec = content.setdefault("spec", {})
    limited = spec.get("limited") or spec.get("exempt")
    if limited is not None:
        limited.setdefault("lendablePercent", 0)
        if "limited" in spec:
            limited.setdefault("nominalConcurrencyShares", 30)


def _api_service(content: Content) -> None:
    if service := content.setdefault("spec", {}).get("service"):
        service.setdefault("port", 443)


_BY_KIND: Final[dict[str, Callable[[Content], None]]] = {
    "APIService": _api_service,
    "ClusterRoleBinding": _binding,
    "CronJob": _cron_job,
    "EndpointSlice": _endpoint_slice,
    "Endpoints": _endpoints,
    "HorizontalPodAutoscaler": _autoscaler,
    "IngressClass": _ingress_class,
    "MutatingAdmissionPolicy": _policy,
    "MutatingAdmissionPolicyBinding": _policy_binding,
    "MutatingWebhookConfiguration": _webhooks(reinvocationPolicy="Never"),
    "NetworkPolicy": _network_policy,
    "PodTemplate": _pod_template,
    "PriorityLevelConfiguration": _priority_level,
    "RoleBinding": _binding,
    "ValidatingAdmissionPolicy": _policy,
    "ValidatingAdmissionPolicyBinding": _policy_binding,
    "ValidatingWebhookConfiguration": _webhooks(),
}

_OTHERS: Final[dict[Resource, Callable[[Content], None]]] = {
    **{resource: _BY_KIND[resource.kind] for resource in kinds.BUILT_IN if resource.kind in _BY_KIND},
    kinds.CUSTOM_RESOURCE_DEFINITIONS: _definition,
    kinds.DEVICE_CLASSES: _device_class,
    kinds.COMPOSITE_POD_GROUPS: _pod_group,
    kinds.DEVICE_TAINT_RULES: _taint_rule,
    kinds.POD_GROUPS: _pod_group,
    kinds.EVENTS: _event,
    kinds.RESOURCE_SLICES: _device_slice,
    kinds.SECRETS: _secret,
    kinds.SERVICES: _service,
}
