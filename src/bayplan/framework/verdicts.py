"""Verdicts of a chain of filters over many rows, as two integers a row.

`who` is the place of the first plugin that rejects the row (PASS where none does), `why` the set of that
plugin's reasons, as bits. Texts are made only when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.errors import PluginError
from bayplan.framework.plugin_api import Reject
from bayplan.framework.status import Code, Status

PASS: Final = 127
"""`who` of a row that nobody rejects: larger than any plugin's place, so the smaller of two verdicts wins."""

MOST_REASONS: Final = 62
"""Different reasons one plugin can give to pods of one shape: as many as an int64 has bits to spare."""

Who = NDArray[np.int8]
Why = NDArray[np.int64]


class Reasons:
    """The reasons that one plugin has given so far, each with a bit."""

    __slots__ = ("_before", "_bits", "_statuses", "entries", "has_errors", "plugin")

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.entries: list[tuple[str, Code]] = []
        self.has_errors = False
        self._bits: dict[tuple[str, Code], int] = {}
        self._statuses: dict[int, Status] = {}
        self._before: set[tuple[int, int]] = set()

    def bit(self, reject: Reject) -> int:
        key = (reject.reason, reject.code)
        found = self._bits.get(key)
        if found is None:
            if len(self.entries) >= MOST_REASONS:
                raise PluginError(
                    self.plugin, f"gave more than {MOST_REASONS} different reasons for pods of one shape"
                )
            found = self._bits[key] = 1 << len(self.entries)
            self.entries.append(key)
            self.has_errors = self.has_errors or reject.error
        return found

    def note_order(self, bits: Sequence[int]) -> None:
        """In which order the plugin gave its reasons just now, which is how users see them.

        Bits are given out at first sight, which may have been in another order.
        """
        for place, later in enumerate(bits):
            for earlier in bits[:place]:
                if earlier > later:
                    self._before.add((earlier.bit_length() - 1, later.bit_length() - 1))
                    self._statuses.clear()

    def _compare(self, one: int, other: int) -> int:
        if (one, other) in self._before:
            return -1
        return 1 if (other, one) in self._before else one - other

    def status(self, why: int) -> Status:
        """The status that a set of reasons adds up to: an error wins, then unresolvable."""
        found = self._statuses.get(why)
        if found is None:
            places = [place for place in range(len(self.entries)) if why >> place & 1]
            given = [self.entries[place] for place in sorted(places, key=cmp_to_key(self._compare))]
            codes = {code for _, code in given}
            if Code.ERROR in codes:
                code = Code.ERROR
                given = [entry for entry in given if entry[1] is Code.ERROR]
            else:
                code = Code.UNRESOLVABLE if Code.UNRESOLVABLE in codes else Code.UNSCHEDULABLE
            found = self._statuses[why] = Status(code, tuple(reason for reason, _ in given), self.plugin)
        return found


class Collected:
    """What one plugin rejects: which rows, and (made only when somebody asks) for which reasons."""

    __slots__ = ("_parts", "mask")

    def __init__(self, mask: NDArray[np.bool_], parts: list[tuple[NDArray[np.bool_], int]]) -> None:
        self.mask = mask
        self._parts = parts

    @classmethod
    def from_bits(cls, bits: Why) -> Collected:
        """From reasons that are already put together for each row."""
        return cls(bits != 0, [(bits == found, int(found)) for found in np.unique(bits) if found])

    def why(self) -> Why:
        bits = np.zeros(len(self.mask), dtype=np.int64)
        for mask, bit in self._parts:
            bits |= np.where(mask, bit, 0)
        return bits

    def among(self, positions: NDArray[np.intp], rows: int) -> Collected:
        """The same for all rows, where only those at `positions` were asked about."""
        return Collected(
            _spread(self.mask, positions, rows),
            [(_spread(mask, positions, rows), bit) for mask, bit in self._parts],
        )


def _spread(mask: NDArray[np.bool_], positions: NDArray[np.intp], rows: int) -> NDArray[np.bool_]:
    wide = np.zeros(rows, dtype=np.bool_)
    wide[positions] = mask
    return wide


def collect(rejects: Iterable[Reject], reasons: Reasons, rows: int) -> Collected | None:
    """All that one plugin rejects, or None where it rejects nothing."""
    parts: list[tuple[NDArray[np.bool_], int]] = []
    rejected: NDArray[np.bool_] | None = None
    for reject in rejects:
        mask = np.asarray(reject.mask)
        if mask.shape != (rows,):
            if mask.ndim:
                raise PluginError(
                    reasons.plugin,
                    f"Filter gave a mask of shape {mask.shape} for {rows} nodes ({reject.reason})",
                )
            mask = np.full(rows, bool(mask))
        if mask.dtype != np.bool_:
            raise PluginError(
                reasons.plugin, f"Filter gave a mask of {mask.dtype}, not of bool ({reject.reason})"
            )
        if mask.any():
            parts.append((mask, reasons.bit(reject)))
            rejected = mask if rejected is None else rejected | mask
    if len(parts) > 1:
        reasons.note_order([bit for _, bit in parts])
    return None if rejected is None else Collected(rejected, parts)


class Verdicts:
    """What the filters say about some rows."""

    __slots__ = ("_layers", "_reasons", "_who", "_why")

    def __init__(self, who: Who, why: Why, reasons: dict[int, Reasons]) -> None:
        self._who = who
        self._why = why
        self._reasons = reasons
        self._layers: list[tuple[int, Collected]] = []

    def add(self, index: int, found: Collected) -> None:
        """What one more plugin rejects, where nobody before it has spoken."""
        self._layers.append((index, found))

    @property
    def who(self) -> Who:
        self._settle()
        return self._who

    @property
    def why(self) -> Why:
        self._settle()
        return self._why

    def _settle(self) -> None:
        """Finds out who spoke first. A search that finds a node never needs to know."""
        if not self._layers:
            return
        self._who, self._why = self._who.copy(), self._why.copy()
        for index, found in self._layers:
            first = found.mask & (self._who > index)
            np.copyto(self._who, index, where=first)
            np.copyto(self._why, found.why(), where=first)
        self._layers.clear()

    def overrule(self, rows: NDArray[np.intp], other: Verdicts) -> None:
        """Where `other` (about these rows) rejects, its word counts."""
        failing = (other.who != PASS).nonzero()[0]
        if len(failing):
            self._who, self._why = self.who.copy(), self.why.copy()
            self._who[rows.take(failing)] = other.who.take(failing)
            self._why[rows.take(failing)] = other.why.take(failing)

    def detached(self) -> Verdicts:
        """A copy that stays as it is when the cluster goes on."""
        return Verdicts(self.who.copy(), self.why.copy(), self._reasons)

    def restricted(self, rows: NDArray[np.intp]) -> Verdicts:
        """The same, with all other rows passing."""
        who = np.full(len(self.who), PASS, dtype=np.int8)
        who[rows] = self.who[rows]
        return Verdicts(who, self.why, self._reasons)

    @property
    def passing(self) -> NDArray[np.bool_]:
        passing: NDArray[np.bool_] = self._who == PASS
        for _, found in self._layers:
            passing &= ~found.mask
        return passing

    @property
    def may_have_errors(self) -> bool:
        """Whether some plugin has ever answered that it broke."""
        return any(reasons.has_errors for reasons in self._reasons.values())

    def status(self, position: int) -> Status | None:
        """Why a row was rejected; None where it was not."""
        who = int(self.who[position])
        return None if who == PASS else self._reasons[who].status(int(self.why[position]))

    def statuses(self) -> list[tuple[Status, NDArray[np.intp]]]:
        """Each distinct status with the positions that have it."""
        left = (self.who != PASS).nonzero()[0]
        who, why = self.who.take(left), self.why.take(left)
        found = []
        while len(left):
            # There are few distinct ones as a rule: taking them out one by one beats sorting.
            same = (who == who[0]) & (why == why[0])
            found.append((self._reasons[int(who[0])].status(int(why[0])), left[same]))
            rest = ~same
            left, who, why = left[rest], who[rest], why[rest]
        return found
