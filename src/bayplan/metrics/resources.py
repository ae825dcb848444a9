"""/metrics/resources: requests and limits of every pod, as kube-scheduler computes them.

There is a series for each pod and resource: in a large cluster half a million lines, which prometheus-client
could not write in a second or two. So the lines are written here, in chunks, so that a server can do other
work in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from bayplan.api.pod import Pod
from bayplan.api.quantity import (
    ATTACHABLE_VOLUMES_PREFIX,
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    parse_quantity,
    resource_units,
)
from bayplan.api.requests import container_limits, fit_requests
from bayplan.metrics.instruments import escaped, go_float

PODS_PER_CHUNK: Final = 500

_HELP: Final = (
    "[STABLE] Resource {what} of each pod, as the scheduler and the kubelet compute them; "
    "the label unit is the unit of the resource, if it has one."
)


def resource_exposition(pods: Sequence[Pod]) -> bytes:
    """The response to GET /metrics/resources."""
    return b"".join(resource_chunks(pods))


def resource_chunks(pods: Sequence[Pod]) -> Iterator[bytes]:
    """The response in chunks of a few hundred pods."""
    yield from _family("kube_pod_resource_limit", "limits", pods, pod_limits)
    yield from _family("kube_pod_resource_request", "requests", pods, fit_requests)


def pod_limits(pod: Pod) -> dict[str, int]:
    """The pod's limit by resource, in the units of requests.

    A limit of the pod as a whole replaces those of its containers; overhead is added only to existing limits.
    """
    limits = container_limits(pod.spec)
    if pod.spec.resources is not None:
        for name, quantity in pod.spec.resources.limits.items():
            if name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX):
                limits[name] = parse_quantity(quantity)
    for name, quantity in pod.spec.overhead.items():
        if limits.get(name):
            limits[name] += parse_quantity(quantity)
    return {name: resource_units(name, amount) for name, amount in limits.items()}


def _family(
    name: str, what: str, pods: Sequence[Pod], amounts: Callable[[Pod], Mapping[str, int]]
) -> Iterator[bytes]:
    head = f"# HELP {name} {_HELP.format(what=what)}\n# TYPE {name} gauge\n"
    for start in range(0, len(pods), PODS_PER_CHUNK):
        lines = [
            line
            for pod in pods[start : start + PODS_PER_CHUNK]
            # A pod that never ran cannot have finished, whatever its phase.
            if not (pod.is_finished and pod.spec.node_name)
            for line in _lines(name, pod, amounts(pod))
        ]
        if lines:
            yield (head + "".join(lines)).encode()
            head = ""


def _lines(name: str, pod: Pod, amounts: Mapping[str, int]) -> Iterator[str]:
    spec = pod.spec
    priority = "" if spec.priority is None else spec.priority
    head_of_line = (
        f'{name}{{namespace="{escaped(pod.namespace)}",node="{escaped(spec.node_name)}",'
        f'pod="{escaped(pod.name)}",priority="{priority}",'
    )
    for resource, amount in amounts.items():
        if amount:
            value = amount / 1000 if resource == CPU else amount
            yield (
                f'{head_of_line}resource="{escaped(resource)}",scheduler="{escaped(spec.scheduler_name)}",'
                f'unit="{_unit(resource)}"}} {go_float(value)}\n'
            )


def _unit(resource: str) -> str:
    if resource == CPU:
        return "cores"
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith(HUGEPAGES_PREFIX):
        return "bytes"
    return "integer" if resource.startswith(ATTACHABLE_VOLUMES_PREFIX) else ""
