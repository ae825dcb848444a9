"""Converts our instruments to the text that Prometheus scrapes, with prometheus-client.

Families are sorted by name and their series by label values, as upstream; a family without a series is
omitted. Bounds of buckets are written as in Go (`1`, `2.592e+06`), because Prometheus identifies series by
that text.

Most metrics of the operating system about this process (`process_*`) are prometheus-client's; those that it
lacks and kube-scheduler has are added here. Without /proc there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.metrics.instruments import Families, Family, Histogram, Kind, go_float

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


_LIMITS: Final = Path("/proc/self/limits")
_NETSTAT: Final = Path("/proc/self/net/netstat")
_UNLIMITED: Final = float(2**64 - 1)
"""How Go shows that there is no limit."""

_collector: Final = ProcessCollector(registry=None)


def process_metrics() -> Iterator[Metric]:
    yield from _collector.collect()
    max_bytes = _address_space()
    if max_bytes is not None:
        yield GaugeMetricFamily(
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.",
            max_bytes,
        )
    octets = _octets()
    if octets is not None:
        yield CounterMetricFamily(
            "process_network_receive_bytes_total", "Number of bytes received by the process.", octets[0]
        )
        yield CounterMetricFamily(
            "process_network_transmit_bytes_total", "Number of bytes sent by the process.", octets[1]
        )


def _address_space() -> float | None:
    """Bytes of virtual memory that the process may have; None if unknown."""
    try:
        (line,) = (line for line in _LIMITS.read_text().splitlines() if line.startswith("Max address space"))
        soft = line.split()[3]
        return _UNLIMITED if soft == "unlimited" else float(soft)
    except (OSError, ValueError):
        return None


def _octets() -> tuple[float, float] | None:
    """Bytes received and sent over IP by the process' network namespace; None if unknown."""
    try:
        lines = [line.split() for line in _NETSTAT.read_text().splitlines() if line.startswith("IpExt:")]
        names, values = lines
        table = dict(zip(names, values, strict=True))
        return float(table["InOctets"]), float(table["OutOctets"])
    except (OSError, ValueError, KeyError):
        return None
