"""How many pods match a query on each node and in each domain."""

from bayplan.state.domains import (
    DomainSums,
)
from bayplan.state.pod_counts import (
    PodCount,
)
from bayplan.state.row_mask import (
    RowMask,
)

__all__ = [
    "DomainSums",
    "PodCount",
    "RowMask",
]
