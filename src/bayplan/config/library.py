"""The plugins that come with bayplan and run only if a configuration names them.

A configuration is checked without importing plugins, so their extension points are written down here; a test
compares them with the classes. A plugin is imported when its arguments are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import msgspec

from bayplan.framework.points import Point


@dataclass(frozen=True, slots=True)
class LibraryPlugin:
    """One plugin of the library: an entry of a `TableCatalog`."""

    name: str
    module: str
    points: frozenset[Point]

    def load(self) -> type[Any]:
        """Its class."""
        found: type[Any] = getattr(import_module(self.module), self.name)
        return found

    @property
    def args_type(self) -> type[msgspec.Struct] | None:
        found: type[msgspec.Struct] | None = self.load().args_type
        return found


_PREEMPTION: Final = (Point.PRE_ENQUEUE, Point.POST_FILTER)
_GPU_SHARING: Final = (Point.PRE_FILTER, Point.FILTER, Point.RESERVE)
_GPU_POLICY: Final = (*_GPU_SHARING, Point.PRE_SCORE, Point.SCORE)

_TABLE: Final[tuple[tuple[str, str, tuple[Point, ...]], ...]] = (
    ("Coscheduling", "coscheduling", (*_PREEMPTION, Point.PRE_FILTER, Point.RESERVE, Point.PERMIT)),
    ("QOSSort", "qos_sort", (Point.QUEUE_SORT,)),
    ("PreemptionToleration", "preemption_toleration", _PREEMPTION),
    ("CapacityScheduling", "capacity_scheduling", (*_PREEMPTION, Point.PRE_FILTER, Point.FILTER)),
    ("TargetLoadPacking", "load_aware", (Point.SCORE, Point.RESERVE)),
    ("LoadVariationRiskBalancing", "load_aware", (Point.SCORE,)),
    ("NodeResourceTopologyMatch", "node_resource_topology_match", (Point.FILTER, Point.SCORE)),
    ("GpuSharing", "gpu_sharing", _GPU_SHARING),
    ("FGD", "gpu_sharing", _GPU_POLICY),
    ("GpuBestFit", "gpu_sharing", _GPU_POLICY),
    ("GpuClustering", "gpu_sharing", _GPU_POLICY),
    ("GpuDotProd", "gpu_sharing", _GPU_POLICY),
    ("GpuPacking", "gpu_sharing", _GPU_POLICY),
    ("GpuRandom", "gpu_sharing", _GPU_POLICY),
)

LIBRARY: Final[Mapping[str, LibraryPlugin]] = {
    name: LibraryPlugin(name, f"bayplan.plugins.library.{module}", frozenset(points))
    for name, module, points in _TABLE
}
