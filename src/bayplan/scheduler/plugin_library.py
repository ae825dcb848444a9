"""The plugins that come with bayplan but run only where they are configured.

Load them like plugins of your own, for example `--plugin bayplan.plugins.gpu_sharing:FGD`.
"""

from bayplan.plugin import Plugin
from bayplan.plugins.capacity_scheduling import CapacityScheduling
from bayplan.plugins.coscheduling import Coscheduling
from bayplan.plugins.gpu_sharing import (
    FGD,
    GpuBestFit,
    GpuClustering,
    GpuDotProd,
    GpuPacking,
    GpuRandom,
    GpuSharing,
)
from bayplan.plugins.load_aware import LoadVariationRiskBalancing, TargetLoadPacking
from bayplan.plugins.node_resource_topology_match import NodeResourceTopologyMatch
from bayplan.plugins.preemption_toleration import PreemptionToleration
from bayplan.plugins.qos_sort import QOSSort

LIBRARY_PLUGINS: tuple[type[Plugin], ...] = (
    Coscheduling,
    QOSSort,
    PreemptionToleration,
    CapacityScheduling,
    TargetLoadPacking,
    LoadVariationRiskBalancing,
    NodeResourceTopologyMatch,
    GpuSharing,
    FGD,
    GpuBestFit,
    GpuClustering,
    GpuDotProd,
    GpuPacking,
    GpuRandom,
)

__all__ = ["LIBRARY_PLUGINS"]
