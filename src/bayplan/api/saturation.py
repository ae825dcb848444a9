"""Saturation of numbers that do not fit into 64 bits: one rule for all columns.

The scheduler keeps the cluster in columns of 64-bit integers and computes with whole columns at a time. A Pod
or Node object can name amounts whose sum does not fit there (two pods that request `7Ei`), and times that do
not fit in nanoseconds (the year 2300). Such a number saturates: it becomes the largest number of its kind.

The limits are chosen so that formulas over columns cannot overflow either: the results of
`allocatable - requested - request` and `allocatable * 100` fit into 64 bits. The limit of requests is far
above that of allocatable amounts: such a request fits no node, and a node with such requests has no room.

Sums must be exact again when the large pod is gone, so they are never computed from a saturated sum:
`state/cluster.py` adds up the pods of such a row again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

MAX_ALLOCATABLE: Final = 2**56
"""64Pi. A node that offers more of a resource is treated as offering this much."""

MAX_REQUEST: Final = 2**62 - 1
"""What a pod can request of a resource, and what all pods of a node can request together."""

LARGE_REQUEST: Final = 2**48
"""256Ti. Sums over pods that request less need no care: 16,384 of them on one node stay below MAX_REQUEST."""

MAX_NANOS: Final = 2**63 - 2
"""The latest time of a column (in the year 2262). One more means that there is no time."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def saturated_allocatable(amount: int) -> int:
    """An amount of a resource that a node offers, within the limits. A negative amount counts as none."""
    return min(max(amount, 0), MAX_ALLOCATABLE)


def saturated_request(amount: int) -> int:
    """A request, or a sum of requests, within the limits. A negative request counts as none."""
    return min(max(amount, 0), MAX_REQUEST)


def saturated_nanos(time: datetime) -> int:
    """Nanoseconds since the epoch, within the limits: 1677 for all earlier years, 2262 for all later ones."""
    since = time - _EPOCH
    nanos = ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
    return min(max(nanos, -MAX_NANOS), MAX_NANOS)
