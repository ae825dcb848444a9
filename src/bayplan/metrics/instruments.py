"""Counters, gauges and histograms that cost next to nothing to write to.

They are written to dozens of times for every pod and read twice a minute. So an observation is put on a list
and nothing else; some thousands of them are sorted into buckets at a time, with NumPy (`settle`). A series is
found with one dictionary lookup, and all that a scrape needs (cumulative buckets, label texts, order) is
worked out on scrape, in `exposition.py`. There are no locks: everything runs on one loop.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

MOST_NOTED: Final = 4096
"""Values of a histogram that are noted down before they are sorted in."""


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Level(StrEnum):
    """How far Kubernetes promises to keep a metric as it is; the first word of its HELP text."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    STABLE = "STABLE"


class Labelled(Protocol):
    """A label value that is not a text but has one, such as a status code."""

    @property
    def label(self) -> str: ...


LabelValue = str | Labelled


def label_text(value: LabelValue) -> str:
    return str(value) if isinstance(value, str) else value.label


class Counter:
    """Only ever grows. `value` may be added to directly."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def reset(self) -> None:
        self.value = 0.0


class Gauge:
    """What is so right now."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value

    def add(self, delta: float) -> None:
        self.value += delta

    def reset(self) -> None:
        """Nothing: a gauge says how things are, and they are so after a reset, too."""


class Histogram:
    """How often values fell into which bucket: `counts` has an entry for each bound, and one for the rest.

    Values are only noted down at first, and sorted in later: when somebody reads (`settle`), or when there
    are many. Whoever is in a hurry calls `note`, and must see to it that `settle` is called now and then.
    """

    __slots__ = ("_bounds", "_noted", "counts", "note", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = np.array(bounds)
        self._noted: list[float] = []
        self.note: Callable[[float], None] = self._noted.append
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._noted.append(value)
        if len(self._noted) >= MOST_NOTED:
            self.settle()

    def settle(self) -> None:
        """Sorts what was noted into the buckets."""
        if self._noted:
            values = np.array(self._noted)
            self._noted.clear()
            self.add(values)

    def add(self, values: NDArray[np.float64]) -> None:
        """Observes many values at once."""
        # A bound belongs to its own bucket (le: less or equal), hence left.
        places = self._bounds.searchsorted(values, side="left")
        added = np.bincount(places, minlength=len(self.counts)).tolist()
        self.counts = [before + more for before, more in zip(self.counts, added, strict=True)]
        self.sum += float(values.sum())

    def add_alike(self, number: int) -> None:
        """So many more observations that nobody took the time of: taken to be like those that are there.

        Without any they are taken to be short.
        """
        self.settle()
        known = sum(self.counts)
        if not known:
            self.counts[0] += number
            return
        self.sum += self.sum / known * number
        shares = [number * count / known for count in self.counts]
        whole = [int(share) for share in shares]
        rest = number - sum(whole)
        for place in sorted(range(len(shares)), key=lambda i: whole[i] - shares[i])[:rest]:
            whole[place] += 1
        self.counts = [before + more for before, more in zip(self.counts, whole, strict=True)]

    def reset(self) -> None:
        self._noted.clear()
        self.counts = [0] * len(self.counts)
        self.sum = 0.0


Readings: TypeAlias = "array[float]"
"""Of a clock; made with the type code `d`. An array, because thousands of lists of numbers cost more to keep
than all else here."""


class Laps:
    """Clock readings of things that go the same way, a row each: a histogram for each two next to each other.

    Who goes that way carries the row along and writes down the time, which is cheaper than to observe every
    lap. A reading that is not a number was not taken: there was no such lap.
    """

    __slots__ = ("_histograms", "_rows", "note")

    def __init__(self, histograms: Sequence[Histogram | None]) -> None:
        self._histograms = tuple(histograms)
        self._rows: list[Readings] = []
        self.note: Callable[[Readings], None] = self._rows.append
        """To be called with a row that is complete."""

    def settle(self) -> None:
        if not self._rows:
            return
        readings = np.frombuffer(b"".join(self._rows)).reshape(len(self._rows), -1)
        self._rows.clear()
        laps = np.diff(readings, axis=1)
        for histogram, taken in zip(self._histograms, laps.T, strict=True):
            if histogram is not None:
                histogram.add(taken[~np.isnan(taken)])


Instrument = Counter | Gauge | Histogram
InstrumentT = TypeVar("InstrumentT", bound=Instrument)


@dataclass(frozen=True, slots=True, eq=False)
class Spec(Generic[InstrumentT]):
    """What there is to know about a family of series before anything was counted."""

    name: str
    kind: Kind
    level: Level
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]
    make: Callable[[], InstrumentT]


def counter(name: str, level: Level, help_text: str, *labels: str) -> Spec[Counter]:
    return Spec(name, Kind.COUNTER, level, help_text, labels, (), Counter)


def gauge(name: str, level: Level, help_text: str, *labels: str) -> Spec[Gauge]:
    return Spec(name, Kind.GAUGE, level, help_text, labels, (), Gauge)


def histogram(
    name: str, level: Level, help_text: str, *labels: str, buckets: tuple[float, ...]
) -> Spec[Histogram]:
    return Spec(name, Kind.HISTOGRAM, level, help_text, labels, buckets, lambda: Histogram(buckets))


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """`count` bounds, each `factor` times the one before.

    Multiplied step by step as Prometheus' Go client does it: the rounding errors of that are part of the
    bounds, and of the texts that dashboards select them by (`le="9.999999999999999e-06"`).
    """
    bounds: list[float] = []
    bound = start
    for _ in range(count):
        bounds.append(bound)
        bound *= factor
    return tuple(bounds)


class Family(dict[tuple[LabelValue, ...], InstrumentT]):
    """All series of one name, found by their label values in the order of `spec.labels`.

    `family["scheduled", "default-scheduler"]` is that series; it comes into being at the first asking. A
    family without labels has its one series, `family[()]`, from the start. A status code and its text lead to
    the same series.
    """

    __slots__ = ("series", "spec")

    def __init__(self, spec: Spec[InstrumentT]) -> None:
        super().__init__()
        self.spec = spec
        self.series: dict[tuple[str, ...], InstrumentT] = {}
        """Each series once, by the texts of its labels."""
        if not spec.labels:
            self[()]

    def __missing__(self, key: tuple[LabelValue, ...]) -> InstrumentT:
        if len(key) != len(self.spec.labels):
            raise ValueError(f"{self.spec.name} has labels {self.spec.labels}, not {key}")
        texts = tuple(map(label_text, key))
        if texts not in self.series:
            self.series[texts] = self.spec.make()
        found = self[key] = self.series[texts]
        return found


class Families:
    """The families of one process, found by their spec."""

    def __init__(self, specs: Iterable[Spec[Any]]) -> None:
        self._by_name = {spec.name: Family(spec) for spec in specs}

    def __getitem__(self, spec: Spec[InstrumentT]) -> Family[InstrumentT]:
        return self._by_name[spec.name]

    def all(self) -> Iterable[Family[Any]]:
        return self._by_name.values()

    def settle(self) -> None:
        """Sorts into buckets what histograms have noted."""
        for family in self._by_name.values():
            if family.spec.kind is Kind.HISTOGRAM:
                for histogram in family.series.values():
                    histogram.settle()

    def reset(self) -> None:
        """Counters and histograms start anew; series stay, since whoever writes to them holds on to them."""
        for family in self._by_name.values():
            for instrument in family.series.values():
                instrument.reset()
