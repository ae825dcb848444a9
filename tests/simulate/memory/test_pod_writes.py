"""What a write makes of a pod: conditions, nominations, grace periods."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.meta import Condition
from bayplan.api.pod import Pod
from bayplan.simulate.memory.pod_writes import (
    bound_status,
    grace_period,
    initial_status,
    merge_condition,
    patched_status,
)
from bayplan.testing.builders import make_pod

EARLIER = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
LATER = datetime(2026, 1, 3, tzinfo=UTC)
UNSCHEDULABLE = Condition(
    type="PodScheduled",
    status="False",
    reason="Unschedulable",
    message="0/1 nodes are available",
    last_transition_time=EARLIER,
    observed_generation=1,
)
READY = Condition(type="Ready", status="False", last_transition_time=EARLIER)


def scheduled(
    status: str = "False",
    reason: str = "Unschedulable",
    message: str = "0/1 nodes are available",
    since: datetime | None = None,
    generation: int = 1,
) -> Condition:
    return Condition(
        type="PodScheduled",
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )


@pytest.mark.parametrize(
    ("before", "condition", "after"),
    [
        pytest.param((), scheduled(), (scheduled(since=NOW),), id="a first condition is added, as of now"),
        pytest.param(
            (READY,),
            scheduled(since=EARLIER),
            (READY, scheduled(since=EARLIER)),
            id="a time that is given stays",
        ),
        pytest.param(
            (UNSCHEDULABLE, READY),
            scheduled(message="0/2 nodes are available"),
            (scheduled(message="0/2 nodes are available", since=EARLIER), READY),
            id="another message keeps position and time",
        ),
        pytest.param(
            (UNSCHEDULABLE,),
            scheduled(message="new", since=NOW),
            (scheduled(message="new", since=EARLIER),),
            id="the time moves only with the status, whatever the client sends",
        ),
        pytest.param(
            (READY, UNSCHEDULABLE),
            scheduled("True", "", ""),
            (READY, scheduled("True", "", "", since=NOW)),
            id="another status is a transition",
        ),
        pytest.param(
            (UNSCHEDULABLE,),
            scheduled("True", "", "", since=LATER),
            (scheduled("True", "", "", since=LATER),),
            id="which the client may date",
        ),
    ],
)
def test_merges_a_condition(
    before: tuple[Condition, ...], condition: Condition, after: tuple[Condition, ...]
) -> None:
    assert merge_condition(before, condition, NOW) == after


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param(scheduled(), id="the same again"),
        pytest.param(scheduled(since=NOW), id="a later time"),
        pytest.param(scheduled(generation=2), id="an observed generation"),
    ],
)
def test_is_no_news(condition: Condition) -> None:
    before = (UNSCHEDULABLE,)
    assert merge_condition(before, condition, NOW) is before


@pytest.mark.parametrize(
    ("patch", "nominated"),
    [
        pytest.param(PodStatusPatch(nominated_node_name="n2"), "n2", id="a name sets it"),
        pytest.param(PodStatusPatch(nominated_node_name=""), "", id="an empty name clears it"),
        pytest.param(PodStatusPatch(condition=scheduled(message="new")), "n1", id="None leaves it"),
    ],
)
def test_patches_the_nomination(patch: PodStatusPatch, nominated: str) -> None:
    status = make_pod(nominated_node="n1", conditions=[UNSCHEDULABLE]).status
    assert patched_status(status, patch, NOW).nominated_node_name == nominated


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(PodStatusPatch(), id="an empty patch"),
        pytest.param(PodStatusPatch(scheduled(), "n1"), id="what is there already"),
    ],
)
def test_a_patch_without_changes_is_no_update(patch: PodStatusPatch) -> None:
    status = make_pod(nominated_node="n1", conditions=[UNSCHEDULABLE]).status
    assert patched_status(status, patch, NOW) is status


def test_a_bound_pod_is_scheduled_and_nominated_no_more() -> None:
    status = bound_status(make_pod(nominated_node="n1", conditions=[READY, UNSCHEDULABLE]).status, NOW)
    assert status.nominated_node_name == ""
    assert status.conditions == (
        READY,
        Condition(type="PodScheduled", status="True", last_transition_time=NOW),
    )


def test_a_new_pod_with_gates_has_the_condition() -> None:
    (condition,) = initial_status(make_pod(gates=["wait"]), NOW).conditions
    assert condition == Condition(
        type="PodScheduled",
        status="False",
        reason="SchedulingGated",
        message="Scheduling is blocked due to non-empty scheduling gates",
        last_transition_time=NOW,
    )


@pytest.mark.parametrize(
    ("pod", "requested", "seconds"),
    [
        pytest.param(make_pod(), 60, 0, id="a pod without a node has nothing to end"),
        pytest.param(make_pod(node="n1", phase="Failed"), 60, 0, id="nor has one that has ended"),
        pytest.param(make_pod(node="n1"), None, 30, id="half a minute unless the pod sets another"),
        pytest.param(make_pod(node="n1", termination_grace_period_seconds=5), None, 5, id="that of the pod"),
        pytest.param(make_pod(node="n1", termination_grace_period_seconds=5), 7, 7, id="that of the request"),
        pytest.param(make_pod(node="n1"), 0, 0, id="none if that is requested"),
        pytest.param(
            make_pod(node="n1", termination_grace_period_seconds=-3), None, 1, id="at least a second"
        ),
    ],
)
def test_grace_period(pod: Pod, requested: int | None, seconds: int) -> None:
    assert grace_period(pod, requested) == seconds
