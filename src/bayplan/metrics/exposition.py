"""Converts our instruments to the text that Prometheus scrapes, with prometheus-client.

Families are sorted by name and their series by label values, as upstream; a family without a series is
omitted. Bounds of buckets are written as in Go (`1`, `2.592e+06`), because Prometheus identifies series by
that text.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from bayplan.metrics.instruments import Families, Family, Histogram, Kind
from bayplan.metrics.process import process_metrics
from bayplan.metrics.text import go_float

_TOTAL: Final = "_total"


def exposition(families: Families) -> bytes:
    """All series, those of the operating system included."""
    families.flush()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FamilyCollector(families))
    return generate_latest(registry)


class FamilyCollector(Collector):
    """Provides our families to prometheus-client."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        ours = [as_metric(family) for family in self._families.all() if family.series]
        return sorted((*ours, *process_metrics()), key=lambda metric: metric.name)


def as_metric(family: Family[Any]) -> Metric:
    """A family as prometheus-client expects it. It adds the `_total` of a counter's name itself."""
    spec = family.spec
    name = spec.name.removesuffix(_TOTAL) if spec.kind is Kind.COUNTER else spec.name
    metric = Metric(name, f"[{spec.level}] {spec.help}", spec.kind.value)
    bounds = (*map(go_float, spec.buckets), "+Inf")
    for values, instrument in sorted(family.series.items(), key=itemgetter(0)):
        labels = dict(zip(spec.labels, values, strict=True))
        if isinstance(instrument, Histogram):
            _add_histogram(metric, labels, instrument, bounds)
        else:
            metric.add_sample(spec.name, labels, instrument.value)
    return metric


def _add_histogram(
    metric: Metric, labels: dict[str, str], histogram: Histogram, bounds: Iterable[str]
) -> None:
    below = list(accumulate(histogram.counts))
    for bound, count in zip(bounds, below, strict=True):
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, count)
    metric.add_sample(f"{metric.name}_sum", labels, histogram.sum)
    metric.add_sample(f"{metric.name}_count", labels, below[-1])
