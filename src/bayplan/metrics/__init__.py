"""Counters and histograms of a scheduler, and their exposition on scrape.

    instruments.py          counters, gauges, histograms, families: cheap to write to
    scheduler_families.py   the scheduler's metrics by name
    release_families.py     those that only some releases of Kubernetes have
    process_families.py     those of the process around it
    metrics.py              the interface: `Metrics`, and `NULL_METRICS`, which records nothing
    scheduler.py            the one that counts: `SchedulerMetrics`
    exposition.py           from instruments to text, through prometheus-client
    resources.py            /metrics/resources

Nothing here depends on the scheduler. Of the rest of bayplan only `api` and `releases` are used.
"""

from bayplan.metrics.metrics import NULL_METRICS, Metrics, Observe, ignore
from bayplan.metrics.resources import resource_chunks, resource_exposition
from bayplan.metrics.scheduler import SchedulerMetrics

__all__ = [
    "NULL_METRICS",
    "Metrics",
    "Observe",
    "SchedulerMetrics",
    "ignore",
    "resource_chunks",
    "resource_exposition",
]
