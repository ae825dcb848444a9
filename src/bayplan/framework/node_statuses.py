"""NodeStatuses of a chain of filters over many rows, as two integers a row.

`who` is the place of the first plugin that rejects the row (PASS where none does), `why` the number of that
plugin's reasons (`Reasons`). Texts are made only when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayplan.errors import PluginError
from bayplan.framework.plugin_api import Reject
from bayplan.framework.status import Code, Status

PASS: Final = 127
"""`who` of a row that passes: larger than the index of any plugin, so the smaller of two values wins."""

Who = NDArray[np.int8]
Why = NDArray[np.int64]


class Reasons:
    """What one plugin has said so far: every combination of reasons has a number, 0 that of no reason."""

    __slots__ = ("_given", "_numbers", "_statuses", "has_errors", "plugin")

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.has_errors = False
        self._given: list[tuple[tuple[str, Code], ...]] = [()]
        self._numbers: dict[tuple[tuple[str, Code], ...], int] = {(): 0}
        self._statuses: dict[int, Status] = {}

    def __len__(self) -> int:
        return len(self._given)

    def with_reason(self, before: int, reject: Reject) -> int:
        """The number of a combination with one more reason at its end."""
        reason = (reject.reason, reject.code)
        given = self._given[before]
        if reason in given:
            return before
        given = (*given, reason)
        found = self._numbers.get(given)
        if found is None:
            found = self._numbers[given] = len(self._given)
            self._given.append(given)
            self.has_errors = self.has_errors or reject.error
        return found

    def status(self, why: int) -> Status:
        """The status that a combination of reasons comes to: an error wins, then unresolvable."""
        found = self._statuses.get(why)
        if found is None:
            given = self._given[why]
            codes = {code for _, code in given}
            if Code.ERROR in codes:
                code = Code.ERROR
                given = tuple(reason for reason in given if reason[1] is Code.ERROR)
            else:
                code = Code.UNRESOLVABLE if Code.UNRESOLVABLE in codes else Code.UNSCHEDULABLE
            found = self._statuses[why] = Status(code, tuple(reason for reason, _ in given), self.plugin)
        return found


class Rejections:
    """What one plugin rejects: which rows, and (made only when somebody asks) for which reasons."""

    __slots__ = ("_parts", "_reasons", "_why", "mask")

    def __init__(
        self, mask: NDArray[np.bool_], reasons: Reasons, parts: list[tuple[NDArray[np.bool_], Reject]]
    ) -> None:
        self.mask = mask
        self._reasons = reasons
        self._parts = parts
        self._why: Why | None = None

    @classmethod
    def from_numbers(cls, why: Why, reasons: Reasons) -> Rejections:
        """From reasons that are already put together for each row."""
        made = cls(why != 0, reasons, [])
        made._why = why
        return made

    def why(self) -> Why:
        """The number of each row's reasons."""
        if self._why is None:
            self._why = np.zeros(len(self.mask), dtype=np.int64)
            for mask, reject in self._parts:
                self._join(self._why, mask, reject)
        return self._why

    def _join(self, why: Why, mask: NDArray[np.bool_], reject: Reject) -> None:
        before = why[mask]
        if not before.any():
            why[mask] = self._reasons.with_reason(0, reject)
            return
        for number in np.unique(before).tolist():
            before[before == number] = -self._reasons.with_reason(number, reject)
        why[mask] = -before

    def among(self, positions: NDArray[np.intp], rows: int) -> Rejections:
        """The same for all rows, where only those at `positions` were asked about."""
        why = np.zeros(rows, dtype=np.int64)
        why[positions] = self.why()
        return Rejections.from_numbers(why, self._reasons)


def collect(rejects: Iterable[Reject], reasons: Reasons, rows: int) -> Rejections | None:
    """All that one plugin rejects, or None where it rejects nothing."""
    parts: list[tuple[NDArray[np.bool_], Reject]] = []
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
            parts.append((mask, reject))
            rejected = mask if rejected is None else rejected | mask
            if reject.error:
                reasons.has_errors = True
    return None if rejected is None else Rejections(rejected, reasons, parts)


class NodeStatuses:
    """What the filters say about some rows."""

    __slots__ = ("_layers", "_plain", "_reasons", "_who", "_why")

    def __init__(self, who: Who, why: Why, reasons: dict[int, Reasons]) -> None:
        self._who = who
        self._why = why
        self._reasons = reasons
        self._layers: list[tuple[int, Rejections]] = []
        self._plain = True

    def add(self, index: int, found: Rejections) -> None:
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
        self._plain = False
        self._who, self._why = self._who.copy(), self._why.copy()
        for index, found in self._layers:
            first = found.mask & (self._who > index)
            np.copyto(self._who, index, where=first)
            np.copyto(self._why, found.why(), where=first)
        self._layers.clear()

    def overrule(self, rows: NDArray[np.intp], other: NodeStatuses) -> None:
        """Where `other` (about these rows) rejects, its word counts."""
        failing = (other.who != PASS).nonzero()[0]
        if len(failing):
            self._plain = False
            self._who, self._why = self.who.copy(), self.why.copy()
            self._who[rows.take(failing)] = other.who.take(failing)
            self._why[rows.take(failing)] = other.why.take(failing)

    def overrule_all(self, who: Who, why: Why) -> None:
        """The same with a verdict for every row."""
        failing = who != PASS
        if failing.any():
            self._plain = False
            self._who, self._why = np.where(failing, who, self.who), np.where(failing, why, self.why)

    def detached(self) -> NodeStatuses:
        """A copy that stays as it is when the cluster goes on."""
        return NodeStatuses(self.who.copy(), self.why.copy(), dict(self._reasons))

    @property
    def masks(self) -> tuple[NDArray[np.bool_], ...] | None:
        """What was added to `who`: which rows each further plugin rejects; None where it is mixed up."""
        return tuple(found.mask for _, found in self._layers) if self._plain else None

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

    def statuses(self, among: NDArray[np.intp] | None = None) -> list[tuple[Status, NDArray[np.intp]]]:
        """Each distinct status with the positions that have it, of all positions or of these."""
        who, why = self.who, self.why
        left = np.arange(len(who)) if among is None else among
        if among is not None:
            who, why = who.take(among), why.take(among)
        rest = who != PASS
        found: list[tuple[Status, NDArray[np.intp]]] = []
        while True:
            if not rest.all():
                left, who, why = left[rest], who[rest], why[rest]
            if not len(left):
                return found
            # There are few distinct ones as a rule: taking them out one by one beats sorting.
            same = (who == who[0]) & (why == why[0])
            found.append((self._reasons[int(who[0])].status(int(why[0])), left[same]))
            rest = ~same
