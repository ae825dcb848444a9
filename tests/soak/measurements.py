"""What a soak measures, and what has to hold in the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bayplan.embedded.server.documents import HISTORY
from bayplan.embedded.up.report import MAX_OUTCOMES
from bayplan.scheduler.recorder import MAX_REMEMBERED, QUIET_SECONDS

# Measured with tracemalloc, for the pods of the soak: a version of a pod (JSON and entry in the history; no
# record, but for the latest thousand), one of an event (half of them are deletions, which keep the version
# before them, too), an event that the scheduler could count again, and an outcome that
# `bayplan up` could show.
PODS_BYTES: Final = 2600
EVENTS_BYTES: Final = 2200
RECORDED_EVENT_BYTES: Final = 900
OUTCOME_BYTES: Final = 400

MAX_GROWTH_SHARE: Final = 0.10
MAX_GROWTH_BYTES: Final = 20_000_000
"""Memory may grow by a tenth and so many bytes over the whole window: allocators settle slowly."""
WARM_UP_SHARE: Final = 0.34
"""Of the last life: until all pods are there that are to be there at once."""
FULL_SECONDS: Final = 2 * QUIET_SECONDS
"""By then everything that is kept up to a bound is full. The scheduler's memory of events takes longest: it
scans every six minutes for those that are older than six minutes."""
MIN_WINDOW_SECONDS: Final = 300.0
"""A slope over less than this means nothing; a shorter life is checked while bounded stores still fill."""
FILLING_BYTES: Final = (
    2 * HISTORY * (PODS_BYTES + EVENTS_BYTES)
    + MAX_REMEMBERED * RECORDED_EVENT_BYTES
    + MAX_OUTCOMES * OUTCOME_BYTES
)
"""What these stores hold when they are full: a life that is too short for that may grow by so much more."""

# A warning of the interpreter, a traceback, and what the log calls an error; klog's lines begin with E.
_ERROR: Final = re.compile(r"^(E\d{4} |error:|Traceback |.*\bERROR\b|.*Warning: )", re.MULTILINE)


@dataclass
class Measured:
    """What the clients saw. Times are in seconds."""

    created: int = 0
    bound: int = 0
    deleted: int = 0
    watched: int = 0
    """Events that watchers have read."""
    relists: int = 0
    """Watches that ended, and were begun again after a list."""
    restarts: list[float] = field(default_factory=list)
    """How long each start took."""
    latencies: list[float] = field(default_factory=list)
    """From the acknowledged creation of a pod to the watch event that shows its node."""
    answers: list[float] = field(default_factory=list)
    """From a creation to its acknowledgement."""
    memory: list[tuple[float, int]] = field(default_factory=list)
    """Time and resident bytes in the last life."""
    problems: list[str] = field(default_factory=list)


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """Milliseconds; empty if nothing was measured."""
    ordered = sorted(values)
    if not ordered:
        return {}
    wanted = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {
        name: round(ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1e3, 1)
        for name, share in wanted.items()
    }


def fills_up(memory: Sequence[tuple[float, int]]) -> bool:
    """Whether the life was long enough to fill every bounded store, and to measure memory after that."""
    return bool(memory) and memory[-1][0] - memory[0][0] >= FULL_SECONDS + MIN_WINDOW_SECONDS


def steady_window(memory: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The samples after the warm-up; those with full stores where there are enough of them."""
    if not memory:
        return []
    start, end = memory[0][0], memory[-1][0]
    warm_up = WARM_UP_SHARE * (end - start)
    if fills_up(memory):
        warm_up = max(warm_up, FULL_SECONDS)
    return [sample for sample in memory if sample[0] >= start + warm_up]


def slope(samples: Sequence[tuple[float, int]]) -> float:
    """Bytes a second: the line through the samples with the least squares."""
    if len(samples) < 2:
        return 0.0
    mean_time = sum(time for time, _ in samples) / len(samples)
    mean_bytes = sum(size for _, size in samples) / len(samples)
    spread = sum((time - mean_time) ** 2 for time, _ in samples)
    return sum((time - mean_time) * (size - mean_bytes) for time, size in samples) / spread if spread else 0.0


def grows(samples: Sequence[tuple[float, int]], filling: int = 0) -> bool:
    """Whether memory grew by more than it may over the time of the samples, `filling` included."""
    if not samples:
        return False
    growth = slope(samples) * (samples[-1][0] - samples[0][0])
    mean = sum(size for _, size in samples) / len(samples)
    return growth > MAX_GROWTH_SHARE * mean + MAX_GROWTH_BYTES + filling


def errors_in(log: str) -> list[str]:
    """Lines of the log with an error."""
    return [line for line in log.splitlines() if _ERROR.match(line)]


def find_problems(measured: Measured, log: str) -> list[str]:
    """What is wrong; nothing if the soak was passed."""
    problems = list(measured.problems)
    problems += [f"log: {line}" for line in errors_in(log)[:10]]
    window = steady_window(measured.memory)
    if grows(window, 0 if fills_up(measured.memory) else FILLING_BYTES):
        problems.append(f"memory grows by {slope(window) * 60 / 1e6:.2f} MB a minute")
    if not measured.bound:
        problems.append("no pod was bound")
    return problems


def summary(measured: Measured) -> dict[str, Any]:
    window = steady_window(measured.memory)
    return {
        "created": measured.created,
        "bound": measured.bound,
        "deleted": measured.deleted,
        "watch_events": measured.watched,
        "relists": measured.relists,
        "start_s": [round(seconds, 1) for seconds in measured.restarts],
        "create_ms": percentiles(measured.answers),
        "create_to_bound_ms": percentiles(measured.latencies),
        "memory_mb": [round(size / 1e6) for _, size in (window[:1] + window[-1:])],
        "memory_max_mb": round(max((size for _, size in measured.memory), default=0) / 1e6),
        "memory_slope_kb_per_s": round(slope(window) / 1e3, 2),
        "stores_full": fills_up(measured.memory),
        "window_s": round(window[-1][0] - window[0][0]) if window else 0,
    }
