"""Taints and tolerations.

https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bayplan.api.node import Taint
from bayplan.api.pod import Toleration

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"

EQUAL: Final = "Equal"
EXISTS: Final = "Exists"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether this toleration covers this taint.

    An empty key or effect matches all. The operators Gt and Lt exist upstream behind a feature
    gate that is off by default; like every unknown operator they tolerate nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", EQUAL):
        # Also with an empty key: then only the values are compared.
        return toleration.value == taint.value
    return toleration.operator == EXISTS


def any_tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers this taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated_taint(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that keeps a pod with these tolerations off the node."""
    tolerations = tuple(tolerations)
    for taint in taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not any_tolerates(tolerations, taint):
            return taint
    return None


def count_untolerated_preferences(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> int:
    """The number of PreferNoSchedule taints that no toleration covers: the fewer, the better the node."""
    tolerations = tuple(tolerations)
    return sum(
        taint.effect == PREFER_NO_SCHEDULE and not any_tolerates(tolerations, taint) for taint in taints
    )
