"""How many pods match a query on each node and in each domain."""

from bayplan.snapshot.domains import (
    DomainSums,
)
from bayplan.snapshot.pod_counts import (
    PodCount,
)
from bayplan.snapshot.row_mask import (
    RowMask,
)

__all__ = [
    "DomainSums",
    "PodCount",
    "RowMask",
]
