"""Total requests and limits of a pod, from its spec as plain values. Quantities in nano units.

The same sum as `bayplan.api.requests`, which reads typed records and counts only what scheduling uses: limit
ranges and quotas count every resource, and limits as well as requests.
"""

from __future__ import annotations

from typing import Any, Final

from bayplan.api.quantity import parse_quantity

Amounts = dict[str, int]
"""Nano units by resource."""

_POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
"""Resources that can be requested for the pod as a whole."""


def amounts(quantities: Any) -> Amounts:
    """A ResourceList as numbers."""
    return {name: parse_quantity(quantity) for name, quantity in (quantities or {}).items()}


def pod_amounts(spec: dict[str, Any], which: str, *, with_overhead: bool) -> Amounts:
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
