"""How many pods match a query on each node and in each domain."""

from bayplan.snapshot.domains import (
    DomainSums,
)
from bayplan.snapshot.pod_counts import (
    PodCount,
)

__all__ = [
    "DomainSums",
    "PodCount",
]
