"""Metrics of the operating system about this process (`process_*`), read on scrape.

prometheus-client has most of them; the others of kube-scheduler are added here. Without /proc there are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

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
