"""Verdicts of a chain of filters over many rows, as two integers a row.

`who` is the place of the first plugin that rejects the row (PASS where none does), `why` the set of that
plugin's reasons, as bits. Texts are made only when somebody asks.
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
"""`who` of a row that nobody rejects: larger than any plugin's place, so the smaller of two verdicts wins."""

MOST_REASONS: Final = 62
"""Different reasons one plugin can give to pods of one shape: as many as an int64 has bits to spare."""

Who = NDArray[np.int8]
Why = NDArray[np.int64]


class Reasons:
    """The reasons that one plugin has given so far, each with a bit."""

    __slots__ = ("_bits", "_statuses", "entries", "has_errors", "plugin")

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.entries: list[tuple[str, Code]] = []
        self.has_errors = False
        self._bits: dict[tuple[str, Code], int] = {}
        self._statuses: dict[int, Status] = {}

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

    def status(self, why: int) -> Status:
        """The status that a set of reasons adds up to: an error wins, then unresolvable."""
        found = self._statuses.get(why)
        if found is None:
            given = [entry for place, entry in enumerate(self.entries) if why >> place & 1]
            codes = {code for _, code in given}
            if Code.ERROR in codes:
                code = Code.ERROR
                given = [entry for entry in given if entry[1] is Code.ERROR]
            else:
                code = Code.UNRESOLVABLE if Code.UNRESOLVABLE in codes else Code.UNSCHEDULABLE
            found = self._statuses[why] = Status(code, tuple(reason for reason, _ in given), self.plugin)
        return found


def collect(rejects: Iterable[Reject], reasons: Reasons, rows: int) -> Why | None:
    """The reasons of one plugin for each row, or None where it rejects nothing."""
    why: Why | None = None
    for reject in rejects:
        mask = np.asarray(reject.mask)
        if mask.ndim == 0:
            mask = np.full(rows, bool(mask))
        elif mask.shape != (rows,):
            raise PluginError(
                reasons.plugin,
                f"Filter gave a mask of shape {mask.shape} for {rows} nodes ({reject.reason})",
            )
        if mask.dtype != np.bool_:
            raise PluginError(
                reasons.plugin, f"Filter gave a mask of {mask.dtype}, not of bool ({reject.reason})"
            )
        if not mask.any():
            continue
        if why is None:
            why = np.zeros(rows, dtype=np.int64)
        why[mask] |= reasons.bit(reject)
    return why


class Verdicts:
    """What the filters say about some rows."""

    __slots__ = ("_reasons", "who", "why")

    def __init__(self, who: Who, why: Why, reasons: dict[int, Reasons]) -> None:
        self.who = who
        self.why = why
        self._reasons = reasons

    @property
    def passing(self) -> NDArray[np.bool_]:
        passing: NDArray[np.bool_] = self.who == PASS
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
        rejected = (self.who != PASS).nonzero()[0]
        if not len(rejected):
            return []
        who, why = self.who.take(rejected), self.why.take(rejected)
        order = np.lexsort((why, who))
        rejected, who, why = rejected.take(order), who.take(order), why.take(order)
        starts = np.concatenate(([0], ((who[1:] != who[:-1]) | (why[1:] != why[:-1])).nonzero()[0] + 1))
        groups = np.split(rejected, starts[1:])
        return [
            (self._reasons[int(who[start])].status(int(why[start])), group)
            for start, group in zip(starts, groups, strict=True)
        ]
