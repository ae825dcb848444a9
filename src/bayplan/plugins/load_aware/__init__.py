"""Scheduling by measured load: TargetLoadPacking and LoadVariationRiskBalancing.

usage.py       a cached source of what nodes really use (metrics-server or Prometheus)
packing.py     TargetLoadPacking
balancing.py   LoadVariationRiskBalancing
"""

from bayplan.plugins.load_aware.balancing import LoadVariationRiskBalancing
from bayplan.plugins.load_aware.packing import TargetLoadPacking

__all__ = ["LoadVariationRiskBalancing", "TargetLoadPacking"]
