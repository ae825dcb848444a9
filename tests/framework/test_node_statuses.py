"""What several rejections of one row come to."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from bayplan.framework.outcome import PASS, NodeStatuses, Reasons, collect
from bayplan.framework.status import Code, Status, WrongResultError
from bayplan.plugin import Reject, unschedulable


def reject(
    rows: Iterable[int], reason: str, of: int = 3, *, unresolvable: bool = False, error: bool = False
) -> Reject:
    mask = np.zeros(of, dtype=np.bool_)
    mask[list(rows)] = True
    code = Code.ERROR if error else Code.UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE
    return Reject(mask, Status(code, (reason,)))


def add_up(*rejects: Reject, reasons: Reasons | None = None) -> list[Status | None]:
    """The status of each of three rows."""
    reasons = Reasons("P") if reasons is None else reasons
    node_statuses = NodeStatuses(np.full(3, PASS, dtype=np.int8), np.zeros(3, dtype=np.int64), {0: reasons})
    found = collect(rejects, reasons, 3)
    if found is not None:
        node_statuses.add(0, found)
    return [node_statuses.status(row) for row in range(3)]


@pytest.mark.parametrize(
    ("rejects", "expected"),
    [
        pytest.param([], None, id="no rejection: it fits"),
        pytest.param([reject([0, 2], "a")], None, id="other rows are rejected"),
        pytest.param([reject([1], "a")], Status(Code.UNSCHEDULABLE, ("a",), "P"), id="one reason"),
        pytest.param(
            [reject([1], "a"), reject([0], "b"), reject([1], "c")],
            Status(Code.UNSCHEDULABLE, ("a", "c"), "P"),
            id="reasons add up in the order in which they came",
        ),
        pytest.param(
            [reject([1], "a"), reject([1], "a")],
            Status(Code.UNSCHEDULABLE, ("a",), "P"),
            id="the same reason twice counts once",
        ),
        pytest.param(
            [reject([1], "a", unresolvable=True), reject([1], "b")],
            Status(Code.UNRESOLVABLE, ("a", "b"), "P"),
            id="unresolvable wins",
        ),
        pytest.param(
            [reject([1], "a"), reject([1], "b", unresolvable=True)],
            Status(Code.UNRESOLVABLE, ("a", "b"), "P"),
            id="unresolvable wins when it comes later",
        ),
        pytest.param(
            [reject([1], "a", unresolvable=True), reject([1], "broke", error=True)],
            Status(Code.ERROR, ("broke",), "P"),
            id="an error wins and hides the other reasons",
        ),
        pytest.param(
            [Reject(True, unschedulable("all"))],
            Status(Code.UNSCHEDULABLE, ("all",), "P"),
            id="a mask may be True",
        ),
        pytest.param([Reject(False, unschedulable("none"))], None, id="a mask may be False"),
    ],
)
def test_status_of_a_row(rejects: list[Reject], expected: Status | None) -> None:
    assert add_up(*rejects)[1] == expected


def test_reasons_are_in_the_order_of_the_plugin_whatever_was_seen_first() -> None:
    """Kept results outlive a call; a reason that was seen earlier does not move to the front."""
    reasons = Reasons("P")
    assert add_up(reject([1], "gpu"), reasons=reasons)[1] == Status(Code.UNSCHEDULABLE, ("gpu",), "P")
    later = add_up(reject([1], "cpu"), reject([1], "gpu"), reasons=reasons)[1]
    assert later == Status(Code.UNSCHEDULABLE, ("cpu", "gpu"), "P")
    latest = add_up(reject([1], "cpu"), reject([1], "memory"), reject([1], "gpu"), reasons=reasons)[1]
    assert latest == Status(Code.UNSCHEDULABLE, ("cpu", "memory", "gpu"), "P")


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        pytest.param(
            np.zeros(2, dtype=np.bool_),
            "filter returned a mask of shape (2,) for 3 rows (why)",
            id="too short",
        ),
        pytest.param(
            np.zeros((3, 1), dtype=np.bool_),
            "filter returned a mask of shape (3, 1) for 3 rows (why)",
            id="a table",
        ),
        pytest.param(
            np.ones(3, dtype=np.int64),
            "filter returned dtype('int64') (Int64DType); mask must be True, False or an array of bool (why)",
            id="numbers",
        ),
        pytest.param(
            np.ones(3, dtype=object),
            "filter returned dtype('O') (ObjectDType); mask must be True, False or an array of bool (why)",
            id="objects",
        ),
    ],
)
def test_a_wrong_mask_is_reported(
    mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], message: str
) -> None:
    with pytest.raises(WrongResultError) as raised:
        collect([Reject(mask, unschedulable("why"))], Reasons("P"), 3)
    assert str(raised.value) == message


def test_the_first_plugin_to_reject_counts() -> None:
    """A row carries the reasons of one plugin, the first in order, whichever was run first."""
    reasons = {place: Reasons(name) for place, name in enumerate(("first", "second"))}
    node_statuses = NodeStatuses(np.full(3, PASS, dtype=np.int8), np.zeros(3, dtype=np.int64), reasons)
    for place, rows in ((1, [0, 1]), (0, [1, 2])):
        found = collect([reject(rows, f"reason {place}")], reasons[place], 3)
        assert found is not None
        node_statuses.add(place, found)
    assert [status.plugin for row in range(3) if (status := node_statuses.status(row))] == [
        "second",
        "first",
        "first",
    ]


def test_overruled_rows_carry_the_other_verdict() -> None:
    """Where pods nominated to a node change its status, the status with them counts."""
    reasons = {0: Reasons("P")}

    def statuses_of(rows: int, *rejects: Reject) -> NodeStatuses:
        made = NodeStatuses(np.full(rows, PASS, dtype=np.int8), np.zeros(rows, dtype=np.int64), reasons)
        found = collect(rejects, reasons[0], rows)
        if found is not None:
            made.add(0, found)
        return made

    plain = statuses_of(3, reject([0, 1], "full"))
    plain.overrule(np.array([2, 1], dtype=np.intp), statuses_of(2, reject([0], "nominated", of=2)))
    assert [status and status.message for status in map(plain.status, range(3))] == [
        "full",
        "full",
        "nominated",
    ]


def test_statuses_are_grouped_by_plugin_and_reason() -> None:
    reasons = Reasons("P")
    node_statuses = NodeStatuses(np.full(3, PASS, dtype=np.int8), np.zeros(3, dtype=np.int64), {0: reasons})
    found = collect([reject([0, 2], "a")], reasons, 3)
    assert found is not None
    node_statuses.add(0, found)
    assert [(status.message, rows.tolist()) for status, rows in node_statuses.statuses()] == [("a", [0, 2])]


def test_detached_verdicts_stay_as_they_are() -> None:
    """A decision that is kept does not change with the cluster."""
    plugins, reason_ids = np.zeros(3, dtype=np.int8), np.ones(3, dtype=np.int64)
    reasons = Reasons("P")
    reasons.with_reason(0, Reject(True, unschedulable("a")))
    kept = NodeStatuses(plugins, reason_ids, {0: reasons}).detached()
    plugins[:], reason_ids[:] = PASS, 0
    assert kept.status(1) == Status(Code.UNSCHEDULABLE, ("a",), "P")


def test_however_many_reasons_there_are_they_are_distinguished() -> None:
    rejects = [reject([1], f"reason {number}") for number in range(100)]
    status = add_up(*rejects)[1]
    assert status is not None
    assert status.reasons == tuple(f"reason {number}" for number in range(100))


def test_each_row_may_have_a_reason_of_its_own() -> None:
    rejects = [reject([row], f"row {row} is odd", of=200) for row in range(200)]
    reasons = Reasons("P")
    found = collect(rejects, reasons, 200)
    assert found is not None
    assert [reasons.status(int(reason_id)).message for reason_id in found.reason_ids()] == [
        f"row {row} is odd" for row in range(200)
    ]
