"""Counters, gauges and histograms that are cheap to write to.

They are written dozens of times per pod and read twice a minute. An observation is therefore only appended to
a list; thousands of observations are sorted into buckets at a time, with NumPy (`flush`). A series is found
with one dictionary lookup, and everything else that a scrape needs (cumulative buckets, label texts, order)
is computed on scrape, in `exposition.py`. There are no locks: everything runs on one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

MAX_PENDING: Final = 4096
"""The number of observations of a histogram that are kept before they are sorted into buckets."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of a scrape."""


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Level(StrEnum):
    """The stability level of a metric in Kubernetes; the first word of its HELP text."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    STABLE = "STABLE"


class Labelled(Protocol):
    """A label value that is not a string but has one, such as a status code."""

    @property
    def label(self) -> str: ...


LabelValue = str | Labelled


def label_text(value: LabelValue) -> str:
    return str(value) if isinstance(value, str) else value.label


class Counter:
    """A value that only grows. `value` may be increased directly."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def reset(self) -> None:
        self.value = 0.0


class Gauge:
    """A current value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value

    def add(self, delta: float) -> None:
        self.value += delta

    def reset(self) -> None:
        """Does nothing: the current value is the same after a reset."""


class Histogram:
    """Observations by bucket: `counts` has one entry per bound, and one for larger values.

    Observations are kept in a list and sorted into buckets later: on scrape (`flush`), or when there are
    `MAX_PENDING`. `note` is the fastest way to observe; its callers must call `flush` from time to time.
    """

    __slots__ = ("_bounds", "_pending", "counts", "note", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = np.array(bounds)
        self._pending: list[float] = []
        self.note: Callable[[float], None] = self._pending.append
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._pending.append(value)
        if len(self._pending) >= MAX_PENDING:
            self.flush()

    def flush(self) -> None:
        """Sorts the pending observations into buckets."""
        if self._pending:
            values = np.array(self._pending)
            self._pending.clear()
            self.add(values)

    def add(self, values: NDArray[np.float64]) -> None:
        """Observes many values at once."""
        # A bound belongs to its own bucket (le: less or equal), hence left.
        places = self._bounds.searchsorted(values, side="left")
        added = np.bincount(places, minlength=len(self.counts)).tolist()
        self.counts = [before + more for before, more in zip(self.counts, added, strict=True)]
        self.sum += float(values.sum())

    def reset(self) -> None:
        self._pending.clear()
        self.counts = [0] * len(self.counts)
        self.sum = 0.0


Instrument = Counter | Gauge | Histogram
InstrumentT = TypeVar("InstrumentT", bound=Instrument)


@dataclass(frozen=True, slots=True, eq=False)
class Spec(Generic[InstrumentT]):
    """The definition of a family of series."""

    name: str
    kind: Kind
    level: Level
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]
    make: Callable[[], InstrumentT]


def counter(name: str, level: Level, help_text: str, labels: tuple[str, ...] = ()) -> Spec[Counter]:
    return Spec(name, Kind.COUNTER, level, help_text, labels, (), Counter)


def gauge(name: str, level: Level, help_text: str, labels: tuple[str, ...] = ()) -> Spec[Gauge]:
    return Spec(name, Kind.GAUGE, level, help_text, labels, (), Gauge)


def histogram(
    name: str, level: Level, help_text: str, labels: tuple[str, ...] = (), *, buckets: tuple[float, ...]
) -> Spec[Histogram]:
    return Spec(name, Kind.HISTOGRAM, level, help_text, labels, buckets, lambda: Histogram(buckets))


def specs_in(namespace: Mapping[str, object], *others: Spec[Any]) -> tuple[Spec[Any], ...]:
    """The specs that a module has defined so far, without `others`: a list written by hand would miss one."""
    return tuple(each for each in namespace.values() if isinstance(each, Spec) and each not in others)


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

    `family["scheduled", "default-scheduler"]` is that series; it is created on first access. A family without
    labels has its one series, `family[()]`, from the start. A status code and its label text select the same
    series.
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
    """The families of one process, found by their spec.

    A family whose spec is not among them can be written to, but is not shown: code that records something
    need not know which release has a metric for it.
    """

    def __init__(self, specs: Iterable[Spec[Any]]) -> None:
        self._by_name = {spec.name: Family(spec) for spec in specs}
        self._not_shown: dict[str, Family[Any]] = {}

    def __getitem__(self, spec: Spec[InstrumentT]) -> Family[InstrumentT]:
        family = self._by_name.get(spec.name)
        if family is None:
            family = self._not_shown.get(spec.name)
        if family is None:
            family = self._not_shown[spec.name] = Family(spec)
        return family

    def all(self) -> Iterable[Family[Any]]:
        return self._by_name.values()

    def flush(self) -> None:
        """Sorts the pending observations of all histograms into buckets."""
        for family in self._by_name.values():
            if family.spec.kind is Kind.HISTOGRAM:
                for histogram in family.series.values():
                    histogram.flush()

    def reset(self) -> None:
        """Sets counters and histograms to zero. The series stay: their writers hold references to them."""
        for family in self._by_name.values():
            for instrument in family.series.values():
                instrument.reset()


# Numbers and label values as they are in a scrape


def go_float(value: float) -> str:
    """The shortest text of a number, formatted as in Go: with an exponent from 1e+06 on."""
    text = repr(float(value))
    if "e" in text or abs(value) < 1e6:
        return text.removesuffix(".0")
    digits, _, fraction = text.partition(".")
    sign = "-" if value < 0 else ""
    digits = digits.removeprefix("-")
    mantissa = f"{digits}{fraction}".rstrip("0")
    point = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
    return f"{sign}{mantissa[0]}{point}e+{len(digits) - 1:02d}"


def escaped(label_value: str) -> str:
    """A label value, escaped to be quoted."""
    return label_value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
