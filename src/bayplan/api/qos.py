"""Quality of service classes of pods.

https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
"""

from __future__ import annotations

from typing import Final

from bayplan.api.pod import Pod
from bayplan.api.quantity import CPU, MEMORY, parse_quantity

GUARANTEED: Final = 0
BURSTABLE: Final = 1
BEST_EFFORT: Final = 2
_COUNTED: Final = (CPU, MEMORY)


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
