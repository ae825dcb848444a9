"""Queueing hints: which plugins registered for an event, and the hints of a pod's rejectors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.errors import SelectorError
from bayplan.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
    event_with_hint,
)
from bayplan.framework.plugin_api import Plugin
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.scheduling_queue.hints import ALL_EVENTS, EXTENDER, QueueingHints, Strategy, registrations
from bayplan.scheduling_queue.object_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    ASSIGNED_POD_UPDATE,
    FORCE_ACTIVATE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_TIMEOUT,
    PodEvents,
)
from bayplan.scheduling_queue.queued import QueuedPod, QueueObserver, Recorded
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import make_plugin

from .queues import PROFILE, Gate, make_filter, make_profile

SKIP, AFTER_BACKOFF, IMMEDIATELY = Strategy.SKIP, Strategy.AFTER_BACKOFF, Strategy.IMMEDIATELY
hints_of = partial(QueueingHints, rules=V1_36.queue)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)


def rejected(*plugins: str, pending: Sequence[str] = (), profile: str = PROFILE) -> QueuedPod:
    info = QueuedPod(make_pod("p", scheduler_name=profile), "default/p", 0.0, 0)
    info.unschedulable_plugins = frozenset({*plugins, *pending})
    info.pending_plugins = frozenset(pending)
    return info


def yes(pod: Pod, old: Any, new: Any) -> bool:
    return True


def no(pod: Pod, old: Any, new: Any) -> bool:
    return False


def broken(pod: Pod, old: Any, new: Any) -> bool:
    raise RuntimeError("no idea")


# Registrations


@pytest.mark.parametrize(
    "name",
    [
        "NodeName", "NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions", "VolumeBinding",
        "VolumeZone", "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures",
    ],
)  # fmt: skip
def test_built_in_plugins_that_wait_for_nodes_also_wait_for_taints_to_be_removed(name: str) -> None:
    plugin = next(plugin for plugin in BUILTIN_PLUGINS if plugin.name == name)
    assert registrations(make_plugin(plugin), V1_36.queue)[-1] == ClusterEventWithHint(NODE_TAINT)


@pytest.mark.parametrize(
    ("events", "implicit"),
    [
        pytest.param(
            [event_with_hint(Resource.NODE, Action.ADD)], True, id="nodes added, and nothing about taints"
        ),
        pytest.param(
            [event_with_hint(Resource.NODE, Action.ADD | Action.DELETE, no)],
            True,
            id="whatever the hint returns",
        ),
        pytest.param(
            [
                event_with_hint(Resource.NODE, Action.ADD),
                event_with_hint(Resource.NODE, Action.UPDATE_NODE_TAINT, no),
            ],
            False,
            id="not where taints are registered elsewhere",
        ),
        pytest.param(
            [event_with_hint(Resource.NODE, Action.UPDATE_NODE_LABEL)], False, id="not without added nodes"
        ),
        pytest.param([event_with_hint(Resource.POD, Action.ADD)], False, id="not for pods added"),
        pytest.param([event_with_hint(Resource.ANY, Action.ADD)], False, id="not for anything added"),
        pytest.param([], False, id="not for a plugin that waits for nothing"),
    ],
)
def test_the_implicit_registration(events: list[ClusterEventWithHint], implicit: bool) -> None:
    expected = (*events, ClusterEventWithHint(NODE_TAINT)) if implicit else tuple(events)
    assert registrations(make_filter("F", events), V1_36.queue) == expected


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("SchedulingGates", Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
        ("NodeUnschedulable", Action.UPDATE_POD_TOLERATION),
        ("TaintToleration", Action.UPDATE_POD_TOLERATION),
        ("PodTopologySpread", Action.UPDATE_POD_TOLERATION),
        ("DynamicResources", Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM),
        ("NodeDeclaredFeatures", Action.UPDATE),
    ],
)
def test_hints_for_own_updates_are_not_called_for_other_pods_from_v1_37_on(name: str, action: Action) -> None:
    plugin = make_plugin(next(plugin for plugin in BUILTIN_PLUGINS if plugin.name == name))
    events = {resource: ClusterEvent(resource, action) for resource in ("AssignedPod", "TargetPod")}

    def called(release: Release) -> set[str]:
        found = [each.event for each in registrations(plugin, release.queue)]
        return {name for name, event in events.items() if any(one.matches(event) for one in found)}

    assert called(V1_36) == {"AssignedPod", "TargetPod"}
    assert called(V1_37) == {"TargetPod"}


def test_a_plugin_without_events_to_register_waits_for_nearly_anything() -> None:
    assert registrations(make_filter("F", None), V1_36.queue) == ALL_EVENTS
    assert {each.event.resource for each in ALL_EVENTS} == {
        "Pod",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "storage.k8s.io/CSINode",
        "storage.k8s.io/CSIDriver",
        "storage.k8s.io/CSIStorageCapacity",
        "storage.k8s.io/StorageClass",
        "resource.k8s.io/ResourceClaim",
        "resource.k8s.io/DeviceClass",
    }
    assert {(each.event.action, each.hint) for each in ALL_EVENTS} == {(Action.ALL, None)}


class Scorer(Plugin):
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [event_with_hint(Resource.NODE, Action.ADD)]

    def score(self, state: Any, pod: Pod, nodes: Any) -> Any:
        return 0


class ScorerWithPermit(Scorer):
    def permit(self, state: Any, pod: Pod, node_name: str) -> None:
        return None


class ScorerWithReserve(Scorer):
    def reserve(self, state: Any, pod: Pod, node_name: str) -> None:
        return None

    def unreserve(self, state: Any, pod: Pod, node_name: str) -> None:
        return None


class ScorerWithPreFilter(Scorer):
    def pre_filter(self, state: Any, pod: Pod, nodes: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("plugin", "registered"),
    [
        pytest.param(make_plugin(Scorer), False, id="a plugin that can reject nothing is not registered"),
        pytest.param(make_plugin(ScorerWithPreFilter), True, id="one with PreFilter is"),
        pytest.param(make_plugin(ScorerWithReserve), True, id="one with Reserve is"),
        pytest.param(make_plugin(ScorerWithPermit), True, id="one with Permit is"),
        pytest.param(make_filter("F"), True, id="one with Filter is"),
        pytest.param(Gate(), True, id="one with PreEnqueue is"),
    ],
)
def test_plugins_that_contribute(plugin: Plugin, registered: bool) -> None:
    hints = hints_of([make_profile(plugin)])
    assert (hints.listeners(NODE_ADD) is not None) is registered


def test_methods_count_even_where_their_point_is_disabled() -> None:
    profile = make_profile(make_plugin(ScorerWithPermit))
    for point in profile.plugins:
        if point != "Score":
            profile.plugins[point] = ()
    assert hints_of([profile]).registered(PROFILE, "ScorerWithPermit")[0] == NODE_ADD


@pytest.mark.parametrize(
    ("extenders", "expected"),
    [
        pytest.param(False, (), id="not without extenders"),
        pytest.param(True, tuple(each.event for each in ALL_EVENTS), id="for anything where there are some"),
    ],
)
def test_extenders_are_registered(extenders: bool, expected: tuple[ClusterEvent, ...]) -> None:
    hints = hints_of([make_profile()], extenders=extenders)
    assert hints.registered(PROFILE, EXTENDER) == expected


def test_a_plugin_that_fails_to_register_stops_the_start() -> None:
    class Failing(Plugin):
        def events_to_register(self) -> Sequence[ClusterEventWithHint]:
            raise RuntimeError("no idea")

        def filter(self, state: Any, pod: Pod, nodes: Any) -> Any:
            return ()

    with pytest.raises(RuntimeError, match="no idea"):
        hints_of([make_profile(make_plugin(Failing))])


@pytest.mark.parametrize(
    ("resource", "action", "incoming", "expected"),
    [
        pytest.param(Resource.NODE, Action.ADD, NODE_ADD, True, id="the event itself"),
        pytest.param(Resource.NODE, Action.ADD | Action.DELETE, NODE_DELETE, True, id="one of several"),
        pytest.param(Resource.NODE, Action.ADD, NODE_DELETE, False, id="not another action"),
        pytest.param(Resource.CSI_NODE, Action.ADD, NODE_ADD, False, id="not another resource"),
        pytest.param(Resource.POD, Action.DELETE, ASSIGNED_POD_DELETE, True, id="pods cover assigned pods"),
        pytest.param(
            Resource.POD, Action.UPDATE, PodEvents(V1_36).update, True, id="pods cover waiting pods"
        ),
        pytest.param(
            Resource.ASSIGNED_POD, Action.UPDATE, PodEvents(V1_36).update, False, id="not crosswise"
        ),
        pytest.param(
            Resource.POD,
            Action.UPDATE_POD_LABEL,
            ASSIGNED_POD_UPDATE,
            False,
            id="no general update for one bit",
        ),
        pytest.param(Resource.POD, Action.ALL, ASSIGNED_POD_UPDATE, True, id="a general update for all bits"),
        pytest.param(
            Resource.POD,
            Action.UPDATE,
            ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL),
            True,
            id="a specific update for all bits",
        ),
        pytest.param(Resource.ANY, Action.ADD, NODE_ADD, True, id="any resource"),
        pytest.param(Resource.ANY, Action.ALL, NODE_DELETE, True, id="anything at all"),
    ],
)
def test_matching(resource: Resource, action: Action, incoming: ClusterEvent, expected: bool) -> None:
    plugin = make_filter("F", [event_with_hint(resource, action)])
    assert (hints_of([make_profile(plugin)]).listeners(incoming) is not None) is expected


def test_a_wildcard_concerns_all_pods_even_without_registrations() -> None:
    assert hints_of([make_profile()]).listeners(UNSCHEDULABLE_TIMEOUT) is not None


# What becomes of a pod


@pytest.mark.parametrize(
    ("info", "hint", "expected"),
    [
        pytest.param(rejected("F"), None, AFTER_BACKOFF, id="without a hint the event helps"),
        pytest.param(rejected("F"), yes, AFTER_BACKOFF, id="the hint returns true"),
        pytest.param(rejected("F"), no, SKIP, id="the hint returns false"),
        pytest.param(rejected("F"), broken, AFTER_BACKOFF, id="a hint that raises counts as true"),
        pytest.param(
            rejected("Other"), yes, SKIP, id="the hint of a plugin that did not reject it is not called"
        ),
        pytest.param(rejected(pending=["F"]), yes, IMMEDIATELY, id="a pending plugin brings it back at once"),
        pytest.param(rejected(pending=["F"]), no, SKIP, id="if its hint returns false"),
        pytest.param(rejected("F", pending=["Other"]), yes, AFTER_BACKOFF, id="another plugin is pending"),
        pytest.param(rejected("F", profile="unknown"), yes, SKIP, id="an unknown profile"),
        pytest.param(rejected(), no, AFTER_BACKOFF, id="a pod without rejectors"),
    ],
)
def test_worth_requeuing(info: QueuedPod, hint: Hint | None, expected: Strategy) -> None:
    hints = hints_of([make_profile(make_filter("F", [event_with_hint(Resource.NODE, Action.ADD, hint)]))])
    assert hints.worth_requeuing(info, NODE_ADD, None, None) is expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(NODE_DELETE, SKIP, id="an event without registrations"),
        pytest.param(ASSIGNED_POD_ADD, SKIP, id="an event of other registrations"),
        pytest.param(NODE_TAINT, AFTER_BACKOFF, id="the implicit registration has no hint"),
    ],
)
def test_events(event: ClusterEvent, expected: Strategy) -> None:
    plugins = make_filter("F", [event_with_hint(Resource.NODE, Action.ADD, no)]), make_filter("G", None)
    assert hints_of([make_profile(*plugins)]).worth_requeuing(rejected("F"), event, 1, 2) is expected


def test_a_later_pending_plugin_still_brings_the_pod_back_at_once() -> None:
    plugins = make_filter("F"), make_filter("G")
    info = rejected("F", pending=["G"])
    assert hints_of([make_profile(*plugins)]).worth_requeuing(info, NODE_ADD, None, None) is IMMEDIATELY


def test_any_of_several_hints_of_a_plugin_will_do() -> None:
    plugin = make_filter(
        "F", [event_with_hint(Resource.NODE, Action.ADD, no), event_with_hint(Resource.NODE, Action.ALL, yes)]
    )
    assert hints_of([make_profile(plugin)]).worth_requeuing(rejected("F"), NODE_ADD, 1, 2) is AFTER_BACKOFF


def test_hints_are_those_of_the_pods_own_profile() -> None:
    ours = make_profile(make_filter("F", [event_with_hint(Resource.NODE, Action.ADD, no)]))
    theirs = make_profile(make_filter("F", [event_with_hint(Resource.NODE, Action.ADD, yes)]), name="other")
    hints = hints_of([ours, theirs])
    answers = [
        hints.worth_requeuing(rejected("F", profile=name), NODE_ADD, 1, 2) for name in (PROFILE, "other")
    ]
    assert answers == [SKIP, AFTER_BACKOFF]


def test_a_hint_sees_the_waiting_pod_and_both_objects() -> None:
    seen: list[tuple[str, object, object]] = []

    def hint(pod: Pod, old: Any, new: Any) -> bool:
        seen.append((pod.name, old, new))
        return False

    plugin = make_filter("F", [event_with_hint(Resource.NODE, Action.ADD, hint)])
    hints_of([make_profile(plugin)]).worth_requeuing(rejected("F"), NODE_ADD, "old", "new")
    assert seen == [("p", "old", "new")]


@pytest.mark.parametrize(
    ("new", "info", "expected"),
    [
        pytest.param(None, rejected("F"), AFTER_BACKOFF, id="registered for all"),
        pytest.param(make_pod("p"), rejected("F"), AFTER_BACKOFF, id="registered for this one"),
        pytest.param(make_pod("other"), rejected("F"), SKIP, id="registered for another one"),
        pytest.param(make_pod("other"), rejected(), AFTER_BACKOFF, id="a pod without rejectors"),
        pytest.param(None, rejected(pending=["F"]), AFTER_BACKOFF, id="pending makes no difference"),
    ],
)
def test_wildcards(new: Pod | None, info: QueuedPod, expected: Strategy) -> None:
    assert hints_of([make_profile()]).worth_requeuing(info, FORCE_ACTIVATE, None, new) is expected


@pytest.mark.parametrize(
    ("info", "events", "expected"),
    [
        pytest.param(rejected("F"), [], SKIP, id="nothing happened"),
        pytest.param(rejected("F"), [NODE_DELETE, NODE_ADD], AFTER_BACKOFF, id="one of the events helps"),
        pytest.param(rejected("F"), [NODE_DELETE], SKIP, id="none does"),
        pytest.param(
            rejected("F", pending=["G"]), [NODE_ADD, ASSIGNED_POD_ADD], IMMEDIATELY, id="the soonest wins"
        ),
        pytest.param(
            rejected("F", pending=["G"]), [ASSIGNED_POD_ADD, NODE_ADD], IMMEDIATELY, id="in whatever order"
        ),
    ],
)
def test_strategy_after_an_attempt(info: QueuedPod, events: list[ClusterEvent], expected: Strategy) -> None:
    hints = hints_of(
        [make_profile(make_filter("F"), make_filter("G", [event_with_hint(Resource.POD, Action.ADD)]))]
    )
    assert hints.strategy_after(info, [Recorded(event, None, None) for event in events]) is expected


def test_an_observer_gets_each_hint_and_one_that_raises_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorded: list[tuple[str, str, str]] = []

    class RecordingObserver(QueueObserver):
        def hint(self, plugin: str, event: str, outcome: str, seconds: float) -> None:
            recorded.append((plugin, event, outcome))

    events = [event_with_hint(Resource.NODE, Action.ADD, hint) for hint in (no, broken)]
    hints = hints_of([make_profile(make_filter("F", events))], observer=RecordingObserver())
    with caplog.at_level(logging.ERROR):
        hints.worth_requeuing(rejected("F"), NODE_ADD, None, None)
        hints.worth_requeuing(rejected("F"), NODE_TAINT, None, None)
    assert recorded == [
        ("F", "NodeAdd", "QueueSkip"),
        ("F", "NodeAdd", "Error"),
        ("F", "NodeUpdateNodeTaint", "Queue"),
    ]
    assert 'running the queueing hint of plugin "F" on NodeAdd for pod default/p: ' in caplog.text


def test_a_malformed_selector_is_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """It is a fault of a user's object. The pod is tried again, as upstream."""

    def unreadable(pod: Pod, old: Any, new: Any) -> bool:
        raise SelectorError("no such operator")

    events = [event_with_hint(Resource.NODE, Action.ADD, unreadable)]
    hints = hints_of([make_profile(make_filter("F", events))])
    with caplog.at_level(logging.WARNING):
        assert hints.worth_requeuing(rejected("F"), NODE_ADD, None, None) is AFTER_BACKOFF
    [record] = caplog.records
    assert record.exc_info is None
    assert "hint of plugin F on NodeAdd for pod default/p: no such operator" in record.getMessage()
