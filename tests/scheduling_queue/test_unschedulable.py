"""UnschedulablePods: found by their rejectors, and by how long they have waited."""

from __future__ import annotations

from typing import cast

import pytest

from bayplan.api.pod import Pod
from bayplan.scheduling_queue.queued import QueuedGroup, QueuedPod
from bayplan.scheduling_queue.waiting import UnschedulablePods
from bayplan.state.groups import Group
from bayplan.testing.builders import make_pod

from .queues import PROFILE, names


def rejected(name: str, *plugins: str, profile: str = PROFILE, since: float = 0.0) -> QueuedPod:
    info = QueuedPod(make_pod(name, scheduler_name=profile), f"default/{name}", since, 0)
    info.unschedulable_plugins = frozenset(plugins)
    return info


def waiting(*infos: QueuedPod) -> UnschedulablePods:
    pods = UnschedulablePods()
    for info in infos:
        pods.put(info)
    return pods


@pytest.mark.parametrize(
    ("rejectors", "expected"),
    [
        pytest.param([(PROFILE, "Fit")], {"fit", "both"}, id="those that it rejected, alone or with others"),
        pytest.param([(PROFILE, "Fit"), (PROFILE, "Ports")], {"fit", "both", "ports"}, id="each once"),
        pytest.param([("other", "Fit")], {"foreign"}, id="of its own profile"),
        pytest.param([(PROFILE, "Absent")], set(), id="none where it rejected none"),
        pytest.param([], set(), id="none without plugins"),
    ],
)
def test_rejected_by(rejectors: list[tuple[str, str]], expected: set[str]) -> None:
    pods = waiting(
        rejected("fit", "Fit"),
        rejected("ports", "Ports"),
        rejected("both", "Fit", "Ports"),
        rejected("foreign", "Fit", profile="other"),
    )
    found = names(pods.rejected_by(rejectors))
    assert (set(found), len(found)) == (expected, len(expected))


def test_a_pod_is_indexed_again_when_it_gains_a_rejector() -> None:
    info = rejected("p", "Fit")
    pods = waiting(info)
    info.unschedulable_plugins |= {"Gate"}
    pods.put(info)
    assert pods.rejected_by([(PROFILE, "Gate")]) == [info]
    assert len(pods) == 1


def test_nothing_is_left_of_a_pod_that_is_taken_out() -> None:
    info = rejected("p", "Fit", "Ports")
    pods = waiting(info)
    pods.remove(info)
    assert (len(pods), pods.rejected_by([(PROFILE, "Fit"), (PROFILE, "Ports")]), info.sub_queue) == (
        0,
        [],
        None,
    )


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(300.0, [], id="none at exactly the limit"),
        pytest.param(300.1, ["old"], id="beyond the limit"),
        pytest.param(400.0, ["old"], id="not another one that is at exactly the limit"),
        pytest.param(401.0, ["old", "young"], id="each from when it came back"),
        pytest.param(1001.0, ["flushed", "old", "young"], id="or from when it was flushed last"),
    ],
)
def test_overdue(now: float, expected: list[str]) -> None:
    flushed = rejected("flushed", "Fit", since=0.0)
    flushed.flush_timestamp = 700.0
    pods = waiting(flushed, rejected("old", "Fit", since=0.0), rejected("young", "Fit", since=100.0))
    assert sorted(names(pods.overdue(now, 300.0))) == expected


def test_no_pod_is_overdue_before_the_lower_bound() -> None:
    """It is a lower bound that gets better: when the oldest has left, after the next scan."""
    old, young = rejected("old", "Fit", since=0.0), rejected("young", "Fit", since=100.0)
    pods = waiting(old, young)
    assert pods.earliest_overdue(300.0) == 300.0
    pods.remove(old)
    assert pods.overdue(301.0, 300.0) == []
    assert pods.earliest_overdue(300.0) == 400.0
    pods.remove(young)
    assert pods.earliest_overdue(300.0) is None


def test_of_a_group_only_the_member_that_changed_is_indexed_again() -> None:
    wanted = {"a": "claim-1", "b": "claim-2", "c": "claim-2"}
    asked: list[str] = []

    def keys_of(_: tuple[str, str], pod: Pod) -> list[str]:
        asked.append(pod.name)
        return [wanted[pod.name]]

    pods = UnschedulablePods(keys_of)
    members = [rejected(name, "Claims") for name in wanted]
    group = QueuedGroup(cast(Group, None), "podgroup/default/g", 0.0, 0, members)
    pods.put(group)
    asked.clear()
    pods.member_changed(group, members[0])
    assert asked == ["a"]
    wanted["a"] = "claim-3"
    pods.member_changed(group, members[0])
    for claim, expected in {"claim-1": [], "claim-2": [group], "claim-3": [group]}.items():
        assert pods.rejected_by([(PROFILE, "Claims", claim)]) == expected
