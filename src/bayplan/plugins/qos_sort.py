"""QOSSort: among pods of equal priority, Guaranteed pods are scheduled before Burstable and BestEffort ones.

A QueueSort plugin in place of PrioritySort, as in the scheduler-plugins project. Among pods of the same
priority and class the one that has waited longest comes first.

https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
"""

from __future__ import annotations

from typing import ClassVar, Final

from bayplan.plugin import CPU, MEMORY, Plugin, Pod, QueueSortPlugin
from bayplan.plugin.resources import parse_quantity

GUARANTEED: Final = 0
BURSTABLE: Final = 1
BEST_EFFORT: Final = 2
_COUNTED: Final = (CPU, MEMORY)


class QOSSort(Plugin, QueueSortPlugin):
    """Orders the queue by priority, class and time."""

    name: ClassVar = "QOSSort"

    def sort_key(self, pod: Pod, timestamp: float) -> tuple[int, int, float]:
        return -pod.priority, qos_class(pod), timestamp


def qos_class(pod: Pod) -> int:
    """The quality of service class that the API server computes from the requests for cpu and memory.

    Guaranteed: every container limits both, and requests as much. BestEffort: none requests or limits either.
    Requests at the level of the pod replace those of the containers.
    """
    spec = pod.spec
    if spec.resources is not None and (spec.resources.requests or spec.resources.limits):
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
