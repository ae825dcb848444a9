"""What was measured on each node, as arrays with a column for each node.

Mean and deviation are computed from the samples of a window. Measurements that are too old are not used: a
node without any has the lowest score, as in the model of these plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from bayplan.plugin import CPU, MEMORY
from bayplan.plugin._internal import Clock, Log, Topic

MAX_AGE_SECONDS: Final = 300.0
"""A node whose last measurement is older has no load."""
WINDOW_SECONDS: Final = 900.0
MAX_SAMPLES: Final = 32
"""Of each node, from which mean and deviation are computed."""
MAX_NODES: Final = 100_000

NEVER: Final = -np.inf
"""The time of a missing measurement."""
_FIRST_CAPACITY: Final = 64

FloatArray = NDArray[np.float64]
_Item = TypeVar("_Item", np.float64, np.bool_)


@dataclass(slots=True)
class Sample:
    """One measurement, in thousandths of a cpu and in bytes, or as shares of the node."""

    time: float
    amounts: dict[str, float]
    are_shares: bool = False


class UsageHistory:
    """The last samples of each node. Arrays have the samples in the first axis, the newest last."""

    def __init__(self) -> None:
        shape = (MAX_SAMPLES, _FIRST_CAPACITY)
        self.times: FloatArray = np.full(shape, NEVER)
        self.amounts: dict[str, FloatArray] = {name: np.full(shape, np.nan) for name in (CPU, MEMORY)}
        """Not a number: the sample does not have this resource."""
        self.are_shares: NDArray[np.bool_] = np.zeros(shape, dtype=np.bool_)
        self.place_of: dict[str, int] = {}
        """The column of each node."""
        self._free: list[int] = []
        self.clock = Clock()
        """Measurements do not belong to a cluster, so they have a clock of their own."""
        self.measured = Topic(self.clock)
        self.moved: Log[str] = Log(self.clock)
        """The nodes that got or lost their column."""

    def add(self, found: Mapping[str, Sample]) -> None:
        """New measurements; nodes without any are forgotten."""
        measured = dict(islice(found.items(), MAX_NODES))
        for name in self.place_of.keys() - measured.keys():
            self.moved.record(name)
            self._forget(self.place_of.pop(name))
        for name in measured.keys() - self.place_of.keys():
            self.moved.record(name)
            self.place_of[name] = self._new_place()
        places = np.array([self.place_of[name] for name in measured], dtype=np.intp)
        times = np.array([sample.time for sample in measured.values()], dtype=np.float64)
        newer = times > self.times[-1, places]
        places = places[newer]
        _append(self.times, places, times[newer])
        for resource, amounts in self.amounts.items():
            values = [sample.amounts.get(resource, np.nan) for sample in measured.values()]
            _append(amounts, places, np.array(values, dtype=np.float64)[newer])
        are_shares = [sample.are_shares for sample in measured.values()]
        _append(self.are_shares, places, np.array(are_shares, dtype=np.bool_)[newer])
        self.measured.change()

    def _new_place(self) -> int:
        if self._free:
            return self._free.pop()
        place = len(self.place_of)
        if place == self.times.shape[1]:
            self.times = _doubled(self.times, NEVER)
            self.are_shares = _doubled(self.are_shares, False)
            self.amounts = {name: _doubled(array, np.nan) for name, array in self.amounts.items()}
        return place

    def _forget(self, place: int) -> None:
        self.times[:, place] = NEVER
        for amounts in self.amounts.values():
            amounts[:, place] = np.nan
        self._free.append(place)


def _append(samples: NDArray[_Item], places: NDArray[np.intp], newest: NDArray[_Item]) -> None:
    """Adds a sample to some nodes, which lose their oldest."""
    samples[:-1, places] = samples[1:, places]
    samples[-1, places] = newest


def _doubled(array: NDArray[_Item], fill: float) -> NDArray[_Item]:
    return np.concatenate((array, np.full_like(array, fill)), axis=1)
