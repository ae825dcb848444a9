"""Defaults that the API server sets in pods and pod templates.

`bayplan.api.defaults` does this for typed records and the fields that scheduling reads; a server sets all
defaults, so that kubectl shows the same as with a real server.
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.defaults import DEFAULT_GRACE_PERIOD_SECONDS, DEFAULT_SCHEDULER

_FILE_MODE: Final = 0o644
_TOKEN_SECONDS: Final = 3600
_FILES_OF: Final = ("secret", "configMap", "downwardAPI", "projected")
_CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")


def default_pod(pod: dict[str, Any]) -> None:
    spec = pod.setdefault("spec", {})
    for container in containers_of(spec):
        resources = container.setdefault("resources", {})
        if limits := resources.get("limits"):
            # A limit without a request is the request, too.
            requests = resources.setdefault("requests", {})
            for name, limit in limits.items():
                requests.setdefault(name, limit)
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)


def default_template(owner: dict[str, Any]) -> None:
    """The pod template of a workload."""
    template = owner.setdefault("spec", {}).setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_spec(spec: dict[str, Any]) -> None:
    for container in containers_of(spec):
        _default_container(container, bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_PERIOD_SECONDS)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    if not spec.get("schedulerName"):
        spec["schedulerName"] = DEFAULT_SCHEDULER
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def containers_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """All containers of a pod spec, of all kinds."""
    return [container for name in _CONTAINER_LISTS for container in spec.get(name) or ()]


def affinity_terms(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """All pod affinity and anti-affinity terms of a pod spec, required and preferred."""
    terms: list[dict[str, Any]] = []
    affinity = spec.get("affinity") or {}
    for name in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(name) or {}
        terms += part.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [
            weighted.get("podAffinityTerm") or {}
            for weighted in part.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        ]
    return terms


def _default_container(container: dict[str, Any], host_network: bool) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and not port.get("hostPort") and port.get("containerPort"):
            port["hostPort"] = port["containerPort"]
    for variable in container.get("env") or ():
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(name):
            _default_probe(probe)
    for action in (container.get("lifecycle") or {}).values():
        if isinstance(action, dict) and (request := action.get("httpGet")):
            _default_request(request)


def _default_probe(probe: dict[str, Any]) -> None:
    if request := probe.get("httpGet"):
        _default_request(request)
    for name, number in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(name):
            probe[name] = number


def _default_request(request: dict[str, Any]) -> None:
    request.setdefault("path", "/")
    request.setdefault("scheme", "HTTP")


def _default_volume(volume: dict[str, Any]) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for name in _FILES_OF:
        if (source := volume.get(name)) is not None:
            source.setdefault("defaultMode", _FILE_MODE)
    if (path := volume.get("hostPath")) is not None:
        path.setdefault("type", "")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", _TOKEN_SECONDS)
    if template := (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _pull_policy(image: str) -> str:
    _, _, last = image.rpartition("/")
    if "@" in last:
        return "IfNotPresent"
    _, colon, tag = last.partition(":")
    return "IfNotPresent" if colon and tag != "latest" else "Always"
