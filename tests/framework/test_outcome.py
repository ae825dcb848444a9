"""The message of a pod that fits nowhere, and what is known about nodes that were not evaluated."""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.framework.outcome import PASS, Diagnosis, NodeStatuses, Reasons, fit_error, histogram
from bayplan.framework.status import Code, Status
from bayplan.plugin import Cluster, Reject, unresolvable, unschedulable
from bayplan.testing.builders import make_node

CPU = Status(Code.UNSCHEDULABLE, ("Insufficient cpu",), "Fit")
BOTH = Status(Code.UNSCHEDULABLE, ("Insufficient cpu", "Too many pods"), "Fit")
ABSENT = Status(Code.UNRESOLVABLE, ("node(s) didn't satisfy plugin(s) [NodeAffinity]",))


@pytest.mark.parametrize(
    ("nodes", "statuses", "more", "expected"),
    [
        pytest.param(3, [(CPU, 3)], {}, "0/3 nodes are available: 3 Insufficient cpu.", id="one reason"),
        pytest.param(
            12,
            [(CPU, 2), (BOTH, 10)],
            {},
            "0/12 nodes are available: 10 Too many pods, 12 Insufficient cpu.",
            id="each reason of a node counts",
        ),
        pytest.param(
            21,
            [(Status(Code.UNSCHEDULABLE, ("y",)), 2), (Status(Code.UNSCHEDULABLE, ("x",)), 10), (CPU, 9)],
            {},
            "0/21 nodes are available: 10 x, 2 y, 9 Insufficient cpu.",
            id="sorted as text, so that 10 comes before 2",
        ),
        pytest.param(
            5,
            [(CPU, 2)],
            {"absent_nodes_status": ABSENT},
            "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) didn't satisfy plugin(s) [NodeAffinity].",
            id="nodes that were not evaluated",
        ),
        pytest.param(
            2,
            [(CPU, 2)],
            {"absent_nodes_status": ABSENT},
            "0/2 nodes are available: 2 Insufficient cpu.",
            id="all were evaluated",
        ),
        pytest.param(4, [], {}, "0/4 nodes are available:", id="nothing is known"),
        pytest.param(
            4,
            [(CPU, 4)],
            {"pre_filter_message": "pod has unbound claims"},
            "0/4 nodes are available: pod has unbound claims.",
            id="PreFilter rejected all nodes",
        ),
        pytest.param(
            1,
            [(CPU, 1)],
            {"post_filter_message": "preemption: not eligible."},
            "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible.",
            id="with what PostFilter adds",
        ),
        pytest.param(
            4, [], {"post_filter_message": "not found"}, "0/4 nodes are available: not found", id="only that"
        ),
    ],
)
def test_fit_error(
    nodes: int, statuses: list[tuple[Status, int]], more: dict[str, str], expected: str
) -> None:
    assert fit_error(nodes, statuses, **more) == expected  # type: ignore[arg-type]  # by name


def test_equal_reasons_of_different_statuses_are_added_up() -> None:
    assert histogram([("a", 2), ("b", 1), ("a", 3)]) == "1 b, 5 a"


def diagnosis(absent: Status | None = None) -> Diagnosis:
    """Four nodes: two unschedulable, one unresolvable, and one, the first, that was not evaluated."""
    cluster = Cluster()
    for number in range(4):
        cluster.set_node(make_node(f"n{number}"))
    reasons = {0: Reasons("P")}
    now = reasons[0].with_reason(0, Reject(True, unschedulable("for now")))
    good = reasons[0].with_reason(0, Reject(True, unresolvable("for good")))
    reason_ids = np.array([now, now, good, now], dtype=np.int64)
    node_statuses = NodeStatuses(np.zeros(4, dtype=np.int8), reason_ids, reasons)
    found = Diagnosis(cluster, 4, np.array([3, 2, 1], dtype=np.intp), node_statuses)
    if absent is not None:
        found.absent_nodes_status = absent
    return found


def test_a_node_has_its_own_status_or_that_of_all_others() -> None:
    found = diagnosis()
    assert [found.status(row).message for row in range(4)] == ["", "for now", "for good", "for now"]
    assert found.explicit_status(0) is None
    assert found.status(0).code is Code.UNRESOLVABLE


def test_rows_by_code_are_in_the_order_of_the_node_list() -> None:
    assert diagnosis().rows_with(Code.UNSCHEDULABLE).tolist() == [1, 3]
    assert diagnosis().rows_with(Code.UNRESOLVABLE).tolist() == [0, 2]
    everywhere = Status(Code.UNSCHEDULABLE, ("claimed",), "P")
    assert diagnosis(everywhere).rows_with(Code.UNSCHEDULABLE).tolist() == [0, 1, 3]


def test_a_node_that_passes_has_no_status() -> None:
    found = diagnosis()
    assert found.node_statuses is not None
    found.node_statuses.rejecting_plugin[3] = PASS
    assert found.explicit_status(3) is None


def test_statuses_of_extenders_have_precedence() -> None:
    found = diagnosis()
    found.extender_statuses[1] = Status(Code.UNRESOLVABLE, ("rejected",), "Extender")
    assert found.status(1).message == "rejected"
    assert found.rows_with(Code.UNSCHEDULABLE).tolist() == [3]
