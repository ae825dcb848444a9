"""Counters and histograms of a scheduler, and their exposition on scrape.

    instruments.py   counters, gauges, histograms, families: cheap to write to
    families.py      every metric of the scheduler by name; process_families.py: of the process around it
    scheduler.py     the interface (`Metrics`, and `NULL_METRICS`, which records nothing) and the
                     implementation that counts: `SchedulerMetrics`
    exposition.py    from instruments to text, through prometheus-client
    resources.py     /metrics/resources

Nothing here depends on the scheduler. Of the rest of bayplan only `api` is used.
"""

from bayplan.metrics.resources import resource_chunks, resource_exposition
from bayplan.metrics.scheduler import NULL_METRICS, Metrics, Observe, SchedulerMetrics, ignore

__all__ = [
    "NULL_METRICS",
    "Metrics",
    "Observe",
    "SchedulerMetrics",
    "ignore",
    "resource_chunks",
    "resource_exposition",
]
