"""GPU sharing: pods on parts of GPUs, with per-device state, and six policies that score nodes.

request.py        what pods request, and which devices they were assigned (annotations)
devices.py        the devices of all nodes
sharing.py        GpuSharing: Filter and Reserve
policies.py       scores and choices of devices, as functions of arrays
fragmentation.py  how much free GPU is useless to the pods that are expected
scoring.py        the policies as plugins
"""

from bayplan.plugins.library.gpu_sharing.scoring import (
    FGD,
    GpuBestFit,
    GpuClustering,
    GpuDotProd,
    GpuPacking,
    GpuRandom,
)
from bayplan.plugins.library.gpu_sharing.sharing import GpuSharing

__all__ = ["FGD", "GpuBestFit", "GpuClustering", "GpuDotProd", "GpuPacking", "GpuRandom", "GpuSharing"]
