"""The resource requests of a pod: the sum over its containers, in five variants.

A pod's request is not one number. Sidecars run beside the containers, plain init containers before them, so
the pod needs the larger of the two peaks; a resize in progress counts at its largest; a pod-level request
replaces that of the containers; overhead is added. Callers need different variants (see the functions at the
top); the differences are upstream's, including that scoring ignores pod-level requests.

Sums are exact, in nano units; a pod's total is rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from bayplan.api.meta import ResourceList
from bayplan.api.pod import Container, ContainerStatus, Pod, PodSpec, ResourceRequirements
from bayplan.api.quantity import (
    CPU,
    HUGEPAGES_PREFIX,
    MEMORY,
    MILLI,
    NANO,
    is_tracked_resource,
    parse_quantity,
    resource_units,
)
from bayplan.api.saturation import saturated_request

DEFAULT_CPU_MILLI: Final = 100
"""The assumed cpu request of a container without one, where zero would distort spreading."""
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024

RESIZE_PENDING: Final = "PodResizePending"
INFEASIBLE: Final = "Infeasible"

_Amounts = dict[str, int]
"""Nano units by resource."""

_NO_DEFAULTS: Final[Mapping[str, int]] = {}
_DEFAULTS: Final[Mapping[str, int]] = {CPU: DEFAULT_CPU_MILLI * MILLI, MEMORY: DEFAULT_MEMORY_BYTES * NANO}


def fit_requests(pod: Pod) -> dict[str, int]:
    """What an incoming pod needs free on a node."""
    return pod_requests(pod, status=False, pod_level=True)


def assigned_requests(pod: Pod) -> dict[str, int]:
    """What a pod uses on its node, or on the node it is nominated to."""
    return pod_requests(pod, status=True, pod_level=True)


def balance_requests(pod: Pod) -> dict[str, int]:
    """What an incoming pod adds when the balance of resources is scored."""
    return assigned_requests(pod)


def scoring_requests(pod: Pod) -> dict[str, int]:
    """What an incoming pod adds when free resources are scored; ignores pod-level requests, as upstream."""
    return pod_requests(pod, status=False, pod_level=False, defaults=True)


def nonzero_requests(pod: Pod) -> tuple[int, int]:
    """Milli cpu and bytes of memory of an assigned pod, with defaults for containers without requests.

    If the pod has a pod-level request, a default is used only for what neither it nor a container names.
    """
    defaults = _DEFAULTS
    if _has_pod_level_requests(pod):
        plain = _requests(pod, status=True, pod_level=True, defaults=_NO_DEFAULTS)
        defaults = {name: amount for name, amount in _DEFAULTS.items() if name not in plain}
    total = _requests(pod, status=True, pod_level=True, defaults=defaults)
    return _counted(CPU, total.get(CPU, 0)), _counted(MEMORY, total.get(MEMORY, 0))


def pod_requests(pod: Pod, *, status: bool, pod_level: bool, defaults: bool = False) -> dict[str, int]:
    """The pod's request by resource: milli cpu, whole units of the rest; only what scheduling counts.

    Args:
        status: include what the kubelet reports as allocated and in use, for pods that are being resized.
        pod_level: spec.resources replaces the sum of the containers.
        defaults: use the defaults for containers without cpu or memory requests.

    A resource that is named with 0 is included with 0.
    """
    total = _requests(
        pod, status=status, pod_level=pod_level, defaults=_DEFAULTS if defaults else _NO_DEFAULTS
    )
    return {name: _counted(name, amount) for name, amount in total.items()}


def _counted(name: str, nano: int) -> int:
    return saturated_request(resource_units(name, nano))


def container_requests(spec: PodSpec) -> dict[str, int]:
    """The sum of the containers' requests, in nano units, without pod-level resources."""
    return _containers(spec, {}, False, _NO_DEFAULTS)


def container_limits(spec: PodSpec) -> dict[str, int]:
    """The limits of the containers together, in nano units: summed like requests."""

    def as_requests(container: Container) -> Container:
        return replace(container, resources=ResourceRequirements(requests=container.resources.limits))

    containers = tuple(map(as_requests, spec.containers))
    init_containers = tuple(map(as_requests, spec.init_containers))
    return container_requests(replace(spec, containers=containers, init_containers=init_containers))


def _requests(pod: Pod, *, status: bool, pod_level: bool, defaults: Mapping[str, int]) -> _Amounts:
    statuses: dict[str, ContainerStatus] = {}
    infeasible = False
    if status:
        statuses = {s.name: s for s in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
        infeasible = _resize_is_infeasible(pod)
    total = _containers(pod.spec, statuses, infeasible, defaults)
    if pod_level and _has_pod_level_requests(pod):
        total.update(_pod_level(pod, status=status, infeasible=infeasible))
    if pod.spec.overhead:
        _add(total, _amounts(pod.spec.overhead))
    return total


def _containers(
    spec: PodSpec, statuses: Mapping[str, ContainerStatus], infeasible: bool, defaults: Mapping[str, int]
) -> _Amounts:
    total: _Amounts = {}
    for container in spec.containers:
        _add(total, _container(container, statuses.get(container.name), infeasible, defaults))
    if spec.init_containers:
        sidecars: _Amounts = {}
        peak: _Amounts = {}
        for container in spec.init_containers:
            if container.restart_policy == "Always":
                needs = _container(container, statuses.get(container.name), infeasible, defaults)
                _add(total, needs)
                _add(sidecars, needs)
                _raise_to(peak, sidecars)
            else:
                # It ended before any resize, so its status is irrelevant.
                needs = _container(container, None, infeasible, defaults)
                _add(needs, sidecars)
                _raise_to(peak, needs)
        _raise_to(total, peak)
    return total


def _container(
    container: Container, status: ContainerStatus | None, infeasible: bool, defaults: Mapping[str, int]
) -> _Amounts:
    needs = _amounts(container.resources.requests)
    if status is not None and status.resources is not None:
        reported = (_amounts(status.resources.requests), _amounts(status.allocated_resources))
        needs = _largest(reported if infeasible else (needs, *reported))
    for name, amount in defaults.items():
        needs.setdefault(name, amount)
    return needs


def _pod_level(pod: Pod, *, status: bool, infeasible: bool) -> _Amounts:
    resources = pod.spec.resources
    needs = _amounts(resources.requests) if resources is not None else {}
    if status and pod.status.resources is not None:
        reported = (_amounts(pod.status.resources.requests), _amounts(pod.status.allocated_resources))
        needs = _largest(reported if infeasible else (needs, *reported))
    return {name: amount for name, amount in needs.items() if _is_pod_level_resource(name)}


def _has_pod_level_requests(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(map(_is_pod_level_resource, resources.requests))


def _is_pod_level_resource(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX)


def _resize_is_infeasible(pod: Pod) -> bool:
    """Whether the node will never grant the resize: then the desired resources do not count."""
    for condition in pod.status.conditions:
        if condition.type == RESIZE_PENDING:
            return condition.reason == INFEASIBLE
    return False


def _amounts(resources: ResourceList) -> _Amounts:
    return {
        name: parse_quantity(quantity) for name, quantity in resources.items() if is_tracked_resource(name)
    }


def _largest(lists: Iterable[_Amounts]) -> _Amounts:
    largest: _Amounts = {}
    for amounts in lists:
        _raise_to(largest, amounts)
    return largest


def _add(total: _Amounts, amounts: _Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(peak: _Amounts, amounts: _Amounts) -> None:
    for name, amount in amounts.items():
        known = peak.get(name)
        if known is None or amount > known:
            peak[name] = amount
