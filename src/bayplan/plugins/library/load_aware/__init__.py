"""Scheduling by measured load: TargetLoadPacking and LoadVariationRiskBalancing.

usage.py       where measurements come from (metrics-server or Prometheus)
history.py     the measurements of each node
columns.py     the load of each node, by row
placements.py  predicted usage of pods that were assigned since the last measurement
packing.py     TargetLoadPacking
balancing.py   LoadVariationRiskBalancing
"""

from bayplan.plugins.library.load_aware.balancing import LoadVariationRiskBalancing
from bayplan.plugins.library.load_aware.packing import TargetLoadPacking

__all__ = ["LoadVariationRiskBalancing", "TargetLoadPacking"]
