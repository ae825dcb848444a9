"""The resource requests of a pod: the sum over its containers, in several variants.

A pod's request is not one number. Sidecars run beside the containers, plain init containers before them, so
the pod needs the larger of the two peaks; a resize in progress counts at its largest; a pod-level request
replaces that of the containers; overhead is added. Callers need different variants; the differences are
upstream's, including that scoring ignores pod-level requests. How a resize in progress counts differs between
releases (`RequestAccounting`).

The quality of service class (https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/) follows from the
requests.

Sums are exact, in nano units; a pod's total is rounded once, at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
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
    saturated_request,
)

DEFAULT_CPU_MILLI: Final = 100
"""The assumed cpu request of a container without one, where zero would distort spreading."""
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024

ALWAYS: Final = "Always"
"""The restartPolicy of sidecars."""

RESIZE_PENDING: Final = "PodResizePending"
INFEASIBLE: Final = "Infeasible"

_Amounts = dict[str, int]
"""Nano units by resource."""

_NO_DEFAULTS: Final[Mapping[str, int]] = {}
_DEFAULTS: Final[Mapping[str, int]] = {CPU: DEFAULT_CPU_MILLI * MILLI, MEMORY: DEFAULT_MEMORY_BYTES * NANO}


def fit_requests(pod: Pod) -> dict[str, int]:
    """What an incoming pod needs free on a node."""
    return _in_units(exact_requests(pod))


def exact_requests(pod: Pod) -> dict[str, int]:
    """The same in nano units, however large."""
    total = container_requests(pod.spec)
    if _has_pod_level_requests(pod):
        assert pod.spec.resources is not None
        total.update(_pod_level_part(_amounts(pod.spec.resources.requests)))
    if pod.spec.overhead:
        _add(total, _amounts(pod.spec.overhead))
    return total


def scoring_requests(pod: Pod) -> dict[str, int]:
    """What an incoming pod adds when free resources are scored; ignores pod-level requests, as upstream."""
    total = _sum_of_containers(pod.spec, _specified, _DEFAULTS)
    if pod.spec.overhead:
        _add(total, _amounts(pod.spec.overhead))
    return _in_units(total)


class RequestAccounting(ABC):
    """What pods that have a node use there, including what the kubelet reports while they are resized.

    Releases differ in this (`Release.accounting`).
    """

    @abstractmethod
    def containers(self, pod: Pod, defaults: Mapping[str, int]) -> _Amounts:
        """What the containers need together, in nano units, without pod-level requests and overhead."""

    def assigned_requests(self, pod: Pod) -> dict[str, int]:
        """What a pod uses on its node, or on the node it is nominated to."""
        return _in_units(self._requests(pod, _NO_DEFAULTS))

    def balance_requests(self, pod: Pod) -> dict[str, int]:
        """What an incoming pod adds when the balance of resources is scored."""
        return self.assigned_requests(pod)

    def nonzero_requests(self, pod: Pod) -> tuple[int, int]:
        """Milli cpu and bytes of memory of an assigned pod, with defaults for containers without requests.

        If the pod has a pod-level request, a default is used only for what neither it nor a container names.
        """
        defaults = _DEFAULTS
        if _has_pod_level_requests(pod):
            plain = self._requests(pod, _NO_DEFAULTS)
            defaults = {name: amount for name, amount in _DEFAULTS.items() if name not in plain}
        total = self._requests(pod, defaults)
        return _counted(CPU, total.get(CPU, 0)), _counted(MEMORY, total.get(MEMORY, 0))

    def _requests(self, pod: Pod, defaults: Mapping[str, int]) -> _Amounts:
        total = self.containers(pod, defaults)
        if _has_pod_level_requests(pod):
            total.update(_pod_level_amounts(pod))
        if pod.spec.overhead:
            _add(total, _amounts(pod.spec.overhead))
        return total


class ContainerAccounting(RequestAccounting):
    """v1.36: the largest of desired, allocated and actual resources, container by container."""

    def containers(self, pod: Pod, defaults: Mapping[str, int]) -> _Amounts:
        statuses = _statuses(pod)
        infeasible = bool(statuses) and resize_is_infeasible(pod)

        def needs(container: Container) -> _Amounts:
            status = statuses.get(container.name)
            requests = _amounts(container.resources.requests)
            # An init container that is no sidecar ended before any resize, so its status is irrelevant.
            if status is None or status.resources is None or container.name in plain:
                return requests
            reported = (_amounts(status.resources.requests), _amounts(status.allocated_resources))
            return _largest(reported if infeasible else (requests, *reported))

        plain = {c.name for c in pod.spec.init_containers if c.restart_policy != ALWAYS}
        return _sum_of_containers(pod.spec, needs, defaults)


class PodAccounting(RequestAccounting):
    """From v1.37 on: the largest of three totals over all containers, which are the desired, the allocated
    and the actual resources.

    While one container grows and another shrinks, this is less than the sum of their maxima.
    """

    def containers(self, pod: Pod, defaults: Mapping[str, int]) -> _Amounts:
        statuses, infeasible = _statuses(pod), resize_is_infeasible(pod)

        def specified(container: Container) -> _Amounts:
            return _amounts(container.resources.requests)

        if not statuses and not infeasible and not _has_pod_status(pod):
            return _sum_of_containers(pod.spec, specified, defaults)

        def fallback(container: Container) -> _Amounts:
            return {} if infeasible else specified(container)

        def allocated(container: Container) -> _Amounts:
            status = statuses.get(container.name)
            if status is None or not status.allocated_resources:
                return fallback(container)
            return _amounts(status.allocated_resources)

        def actuated(container: Container) -> _Amounts:
            status = statuses.get(container.name)
            if status is None or status.resources is None or not status.resources.requests:
                return allocated(container)
            return _amounts(status.resources.requests)

        if _has_pod_status(pod):
            assert pod.status.resources is not None
            totals = [_amounts(pod.status.resources.requests), _amounts(pod.status.allocated_resources)]
        else:
            totals = [_sum_of_containers(pod.spec, part, defaults) for part in (actuated, allocated)]
        if not infeasible:
            totals.append(_sum_of_containers(pod.spec, specified, defaults))
        return _largest(totals)


def resize_is_infeasible(pod: Pod) -> bool:
    """Whether the node will never grant the resize: then the desired resources do not count."""
    for condition in pod.status.conditions:
        if condition.type == RESIZE_PENDING:
            return condition.reason == INFEASIBLE
    return False


def _in_units(amounts: _Amounts) -> dict[str, int]:
    return {name: _counted(name, amount) for name, amount in amounts.items()}


def _counted(name: str, nano: int) -> int:
    return saturated_request(resource_units(name, nano))


def container_requests(spec: PodSpec) -> dict[str, int]:
    """The sum of the containers' requests, in nano units, without pod-level resources."""
    return _sum_of_containers(spec, _specified, _NO_DEFAULTS)


def container_limits(spec: PodSpec) -> dict[str, int]:
    """The limits of the containers together, in nano units: summed like requests."""

    def as_requests(container: Container) -> Container:
        return replace(container, resources=ResourceRequirements(requests=container.resources.limits))

    containers = tuple(map(as_requests, spec.containers))
    init_containers = tuple(map(as_requests, spec.init_containers))
    return container_requests(replace(spec, containers=containers, init_containers=init_containers))


def _specified(container: Container) -> _Amounts:
    return _amounts(container.resources.requests)


def _sum_of_containers(
    spec: PodSpec, needs_of: Callable[[Container], _Amounts], defaults: Mapping[str, int]
) -> _Amounts:
    """The larger of the two peaks: the containers with all sidecars, and the init containers."""

    def with_defaults(container: Container) -> _Amounts:
        needs = needs_of(container)
        for name, amount in defaults.items():
            needs.setdefault(name, amount)
        return needs

    total: _Amounts = {}
    for container in spec.containers:
        _add(total, with_defaults(container))
    if spec.init_containers:
        sidecars: _Amounts = {}
        peak: _Amounts = {}
        for container in spec.init_containers:
            needs = with_defaults(container)
            if container.restart_policy == ALWAYS:
                _add(total, needs)
                _add(sidecars, needs)
                _raise_to(peak, sidecars)
            else:
                _add(needs, sidecars)
                _raise_to(peak, needs)
        _raise_to(total, peak)
    return total


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    status = pod.status
    if not status.container_statuses and not status.init_container_statuses:
        return {}
    return {s.name: s for s in (*status.init_container_statuses, *status.container_statuses)}


def _has_pod_status(pod: Pod) -> bool:
    """Whether the kubelet reports resources of the pod as a whole."""
    status = pod.status
    return (
        bool(status.allocated_resources) and status.resources is not None and bool(status.resources.requests)
    )


def _pod_level_amounts(pod: Pod) -> _Amounts:
    resources, status = pod.spec.resources, pod.status
    needs = _amounts(resources.requests) if resources is not None else {}
    if status.resources is not None:
        reported = (_amounts(status.resources.requests), _amounts(status.allocated_resources))
        needs = _largest(reported if resize_is_infeasible(pod) else (needs, *reported))
    return _pod_level_part(needs)


def _pod_level_part(amounts: _Amounts) -> _Amounts:
    return {name: amount for name, amount in amounts.items() if _is_pod_level_resource(name)}


def _has_pod_level_requests(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(map(_is_pod_level_resource, resources.requests))


def _is_pod_level_resource(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX)


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


GUARANTEED: Final = 0
BURSTABLE: Final = 1
BEST_EFFORT: Final = 2
_COUNTED: Final = (CPU, MEMORY)


def qos_class(pod: Pod, *, pod_level: bool = True) -> int:
    """The quality of service class that the API server computes from the requests for cpu and memory.

    Guaranteed: every container limits both, and requests as much. BestEffort: none requests or limits either.
    Requests at the level of the pod replace those of the containers, unless `pod_level` is false.
    """
    spec = pod.spec
    if pod_level and spec.resources is not None and (spec.resources.requests or spec.resources.limits):
        demands = [spec.resources]
    else:
        demands = [container.resources for container in (*spec.containers, *spec.init_containers)]
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    all_limited = True
    for demand in demands:
        limited = set()
        for resource in _COUNTED:
            request = parse_quantity(demand.requests.get(resource))
            limit = parse_quantity(demand.limits.get(resource))
            if request > 0:
                requests[resource] = requests.get(resource, 0) + request
            if limit > 0:
                limited.add(resource)
                limits[resource] = limits.get(resource, 0) + limit
        all_limited = all_limited and len(limited) == len(_COUNTED)
    if not requests and not limits:
        return BEST_EFFORT
    if all_limited and len(limits) == len(requests) == len(_COUNTED) and requests == limits:
        return GUARANTEED
    return BURSTABLE
