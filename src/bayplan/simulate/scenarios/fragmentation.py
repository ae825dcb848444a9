"""Fragmentation: the share of free resources that the pods of the workload cannot use.

Free resources on a node are unusable for a pod if the pod does not fit there. For each resource,

    fragmentation = sum over shapes of (share of the shape) x (free on nodes where the shape does not fit)
                    ----------------------------------------------------------------------------------
                                                free on all nodes

A *shape* is a combination of resource requests, and its share is that of the pods that have arrived so far. A
shape that does not request the resource at all does not count. Only resources decide whether a shape fits:
taints, affinity and spreading are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.api.requests import fit_requests
from bayplan.plugins.library.gpu_sharing.request import GPU_MILLI, InvalidRequestError, gpu_request

MAX_SHAPES: Final = 64
"""The most frequent shapes are used; a trace can have thousands."""

Amounts = Mapping[str, NDArray[np.int64]]
"""An amount for each node, by resource."""


class RequestMix:
    """The distinct resource requests of the pods, numbered, with how many pods arrived with each."""

    def __init__(self) -> None:
        self.requests: list[dict[str, int]] = []
        self.gpu_milli: list[int] = []
        """What pods request by annotations: thousandths of GPUs."""
        self.arrived: Counter[int] = Counter()
        self._numbers: dict[tuple[tuple[str, int], ...], int] = {}
        self._of_template: dict[int, tuple[Pod, int]] = {}

    def of(self, template: Pod) -> int:
        """The number of a template's shape."""
        known = self._of_template.get(id(template))
        if known is not None:
            return known[1]
        requests = fit_requests(template)
        gpu_milli = shared_gpu_milli(template)
        key = (*sorted(requests.items()), (GPU_MILLI, gpu_milli))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.requests)
            self.requests.append(requests)
            self.gpu_milli.append(gpu_milli)
        # The template is kept with its number, so that no other object can get its id.
        self._of_template[id(template)] = template, number
        return number

    def most_frequent(self) -> list[tuple[dict[str, int], int]]:
        """Requests and number of pods of the most frequent shapes."""
        ordered = sorted(self.arrived.items(), key=lambda entry: (-entry[1], entry[0]))
        return [(self.requests[number], count) for number, count in ordered[:MAX_SHAPES]]


def shared_gpu_milli(pod: Pod) -> int:
    """Thousandths of GPUs that a pod requests by annotations; 0 if they are invalid, as for the plugins."""
    try:
        return gpu_request(pod).total_milli
    except InvalidRequestError:
        return 0


def fragmentation(
    free: Amounts, free_pods: NDArray[np.int64], shapes: Sequence[tuple[Mapping[str, int], int]]
) -> dict[str, float]:
    """The fragmentation of each resource, between 0 and 1; 0 where nothing is free or requested."""
    unusable = dict.fromkeys(free, 0.0)
    weights = dict.fromkeys(free, 0)
    totals = {resource: int(amounts.sum()) for resource, amounts in free.items()}
    for requests, count in shapes:
        fits = free_pods > 0
        for resource, amount in requests.items():
            if amount > 0:
                fits = fits & (free[resource] >= amount) if resource in free else np.zeros_like(fits)
        for resource, amounts in free.items():
            if requests.get(resource, 0) > 0:
                weights[resource] += count
                unusable[resource] += count * float(amounts[~fits].sum())
    return {
        resource: unusable[resource] / (weights[resource] * totals[resource])
        if weights[resource] and totals[resource]
        else 0.0
        for resource in free
    }
