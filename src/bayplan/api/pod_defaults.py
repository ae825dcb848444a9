"""Defaults that the API server sets in pods and pod templates, on plain values, and sums of their resources.

`pod_amounts` is the same sum as `bayplan.api.requests`, which reads typed records and counts only what
scheduling uses: limit ranges and quotas count every resource, and limits as well as requests.
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.api.quantity import CPU, HUGEPAGES_PREFIX, MEMORY, MILLI, milli_units, parse_quantity

DEFAULT_SCHEDULER: Final = "default-scheduler"
DEFAULT_GRACE_PERIOD_SECONDS: Final = 30
_FILE_MODE: Final = 0o644
_TOKEN_SECONDS: Final = 3600
_FILES_OF: Final = ("secret", "configMap", "downwardAPI", "projected")
_CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_POD_LEVEL: Final = (CPU, MEMORY, HUGEPAGES_PREFIX)
"""Resources that can be requested for the pod as a whole."""

Amounts = dict[str, int]
"""Nano units by resource."""


def default_pod(pod: Content) -> None:
    spec = pod.setdefault("spec", {})
    for container in containers_of(spec):
        resources = container.setdefault("resources", {})
        if limits := resources.get("limits"):
            # A limit without a request is the request, too.
            requests = resources.setdefault("requests", {})
            for name, limit in limits.items():
                requests.setdefault(name, limit)
    default_pod_spec(spec)
    if spec.get("resources"):
        _default_pod_level(spec)
    spec.setdefault("enableServiceLinks", True)


def default_template(owner: Content) -> None:
    """The pod template of a workload."""
    template = owner.setdefault("spec", {}).setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_spec(spec: Content) -> None:
    for container in containers_of(spec):
        _default_container(container, bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    round_up(spec, "overhead")
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


def _default_pod_level(spec: Content) -> None:
    """Completes the resources of the pod as a whole.

    Limits on huge pages are derived from the containers. A pod with limits gets the missing requests: the sum
    of its containers' requests or, if they have none, the limit.
    """
    # defaults.go: defaultHugePagePodLimits, defaultPodRequests
    resources = spec["resources"]
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    for name, nano in pod_amounts(spec, "limits", with_overhead=False).items():
        if name.startswith(HUGEPAGES_PREFIX):
            limits.setdefault(name, _text(nano))
    if limits:
        for name, nano in pod_amounts(spec, "requests", with_overhead=False).items():
            if name in (CPU, MEMORY):
                requests.setdefault(name, _text(nano))
        for name, limit in limits.items():
            if name.startswith(_POD_LEVEL):
                requests.setdefault(name, limit)
    for which, amounts_of in (("requests", requests), ("limits", limits)):
        if amounts_of:
            resources[which] = amounts_of
            round_up(resources, which)


def _text(nano: int) -> str:
    """A quantity that parses to this number of nano units, in the largest unit without a fraction."""
    for suffix, unit in (("", 10**9), ("m", 10**6), ("u", 10**3)):
        if nano % unit == 0:
            return f"{nano // unit}{suffix}"
    return f"{nano}n"


def round_up(parent: Content, field: str) -> None:
    """Rounds amounts smaller than a thousandth up, as the API has done since its first version."""
    # defaults.go: SetDefaults_ResourceList
    amounts = parent.get(field)
    if not isinstance(amounts, dict):
        return  # reading the object reports it
    for name, quantity in amounts.items():
        if (nano := parse_quantity(quantity)) % MILLI:
            parent[field][name] = f"{milli_units(nano)}m"


def containers_of(spec: Content) -> list[Content]:
    """All containers of a pod spec, of all kinds."""
    return [container for name in _CONTAINER_LISTS for container in spec.get(name) or ()]


def affinity_terms(spec: Content) -> list[Content]:
    """All pod affinity and anti-affinity terms of a pod spec, required and preferred."""
    terms: list[Content] = []
    affinity = spec.get("affinity") or {}
    for name in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(name) or {}
        terms += part.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [
            weighted.get("podAffinityTerm") or {}
            for weighted in part.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        ]
    return terms


def _default_container(container: Content, host_network: bool) -> None:
    resources = container.setdefault("resources", {})
    for which in ("requests", "limits"):
        round_up(resources, which)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
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


def _default_probe(probe: Content) -> None:
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


def _default_request(request: Content) -> None:
    request.setdefault("path", "/")
    request.setdefault("scheme", "HTTP")


def _default_volume(volume: Content) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for name in _FILES_OF:
        if (source := volume.get(name)) is not None:
            source.setdefault("defaultMode", _FILE_MODE)
    if (path := volume.get("hostPath")) is not None:
        path.setdefault("type", "")
    if (disk := volume.get("rbd")) is not None and not disk.get("pool"):
        disk["pool"] = "rbd"
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


def amounts(quantities: Any) -> Amounts:
    """A ResourceList as numbers."""
    return {name: parse_quantity(quantity) for name, quantity in (quantities or {}).items()}


def pod_amounts(spec: Content, which: str, *, with_overhead: bool) -> Amounts:
    """The pod's `requests` or `limits`: its containers and sidecars, or its init containers, if more."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, amounts((container.get("resources") or {}).get(which)))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in spec.get("initContainers") or ():
        wanted = amounts((container.get("resources") or {}).get(which))
        if container.get("restartPolicy") == "Always":
            _add(total, wanted)
            _add(sidecars, wanted)
            _raise(starting, sidecars)
        else:
            _add(wanted, sidecars)
            _raise(starting, wanted)
    _raise(total, starting)
    for name, amount in amounts((spec.get("resources") or {}).get(which)).items():
        if name.startswith(_POD_LEVEL):
            total[name] = amount
    if with_overhead:
        # Overhead does not add a limit where there is none.
        overhead = amounts(spec.get("overhead"))
        _add(total, {name: one for name, one in overhead.items() if which == "requests" or total.get(name)})
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)
