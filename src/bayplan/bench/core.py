"""The decision core, as the benchmarks see it (`protocol.py`)."""

from __future__ import annotations

from bayplan.bench.errors import BenchError
from bayplan.bench.protocol import CoreUnderTest


def make_core() -> CoreUnderTest:
    """An empty cluster with the default configuration, all nodes scored."""
    raise BenchError("the decision core does not exist yet")
