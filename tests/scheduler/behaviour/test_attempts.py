"""One attempt after the other: which pods are tried when, which are skipped, and the messages of failures."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Change, Event
from bayplan.framework.plugin_api import NodePlugin
from bayplan.framework.status import failure, unresolvable, unschedulable
from bayplan.testing.builders import make_node, make_pod
from tests.locations import without_location

from .running import Answer, plugin, running, virtual

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)

INSUFFICIENT = (
    "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are "
    "available: 1 No preemption victims found for incoming pod."
)
TOO_BIG = (
    "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are "
    "available: 1 Preemption is not helpful for scheduling."
)


# Which pods are tried, and when


@virtual
async def test_pods_are_tried_by_priority_and_among_equals_first_come_first_served() -> None:
    async with running(make_node("n")) as world:
        await world.create(
            make_pod("first"),
            make_pod("urgent", priority=9),
            make_pod("second"),
            make_pod("bulk", priority=-1),
        )
        assert world.order() == ["urgent", "first", "second", "bulk"]


@virtual
async def test_an_event_that_leaves_nothing_to_do_does_not_wake_the_loop() -> None:
    """A pod that was just bound comes back as an event; with no pod waiting the queue is not popped."""
    async with running(make_node("n")) as world:
        await world.create(make_pod("p"))
        assert world.node_of("p") == "n"
        pops, queue = [], world.context.queue
        pop = queue.pop
        queue.pop = lambda: pops.append(1) or pop()  # type: ignore[method-assign,func-returns-value]
        await world.create(make_node("m"))
        assert pops == []
        await world.create(make_pod("q"))
        assert world.node_of("q") != ""
        assert pops != []


@virtual
async def test_pods_that_were_there_before_the_scheduler_are_scheduled() -> None:
    async with running(make_node("n"), make_pod("p")) as world:
        assert world.node_of("p") == "n"


@virtual
async def test_a_pod_that_is_being_deleted_is_not_tried_and_has_an_event() -> None:
    async with running(make_node("n")) as world:
        await world.show(Change.ADDED, make_pod("p", deleted=MIDNIGHT))
        assert world.events("p") == [("FailedScheduling", "skip schedule deleting pod: default/p")]
        assert world.decisions == []
        assert world.sub_queue("p") == ""


@virtual
async def test_a_pod_that_is_being_deleted_is_skipped_again_with_each_update() -> None:
    async with running(make_node("n")) as world:
        pod = make_pod("p", deleted=MIDNIGHT)
        for version in ("1", "2"):
            await world.show(
                Change.MODIFIED, replace(pod, metadata=replace(pod.metadata, resource_version=version))
            )
        assert [reason for reason, _ in world.events("p")] == ["FailedScheduling"] * 2
        assert world.decisions == []


@virtual
async def test_a_pod_whose_binding_is_under_way_is_not_tried_again() -> None:
    async with running(make_node("n")) as world:
        world.cluster.will_answer("bind", Answer(seconds=5))
        await world.create(make_pod("p"))
        world.context.queue.add(world.pod("p"))
        world.context.wake()
        await world.after(10)
        assert world.attempts("p") == 1
        assert world.cluster.written("bind") == ["p"]


@virtual
async def test_a_pod_of_an_unknown_profile_does_not_delay_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It cannot come from a watch; whatever added it, others are scheduled."""
    async with running(make_node("n")) as world:
        world.context.queue.add(make_pod("stray", scheduler_name="unknown"))
        await world.create(make_pod("p"))
        assert world.order() == ["p"]
    assert "pod default/stray: no profile is named 'unknown'" in caplog.text


PROFILES = """
profiles:
- schedulerName: default-scheduler
- schedulerName: picky
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions:
            - {key: disk, operator: In, values: [ssd]}
"""


@virtual
async def test_a_pod_is_scheduled_by_the_rules_of_the_profile_that_it_names() -> None:
    nodes = [make_node("big", cpu="64"), make_node("fast", labels={"disk": "ssd"})]
    async with running(*nodes, config=PROFILES) as world:
        await world.create(make_pod("p", cpu="1"), make_pod("q", cpu="1", scheduler_name="picky"))
        assert (world.node_of("p"), world.node_of("q")) == ("big", "fast")
        reporters = [event.reporting_controller for event in world.store.list(Event)]
        assert reporters == ["default-scheduler", "picky"]


@virtual
async def test_events_name_profile_and_host() -> None:
    async with running(make_node("n"), make_pod("p")) as world:
        (event,) = world.store.list(Event)
        assert (event.reporting_controller, event.reporting_instance, event.type, event.action) == (
            "default-scheduler",
            "default-scheduler-here",
            "Normal",
            "Binding",
        )


@virtual
async def test_pods_of_other_schedulers_are_left_alone() -> None:
    async with running(make_node("n"), make_pod("p", scheduler_name="other")) as world:
        await world.update("p", lambda pod: replace(pod, metadata=replace(pod.metadata, labels={"a": "b"})))
        assert world.cluster.writes == []
        assert world.events("p") == []


@virtual
async def test_pods_of_other_schedulers_count_where_they_run() -> None:
    async with running(make_node("n", cpu="4"), make_pod("p", cpu="3", scheduler_name="other")) as world:
        world.store.bind("p", "default", "n")
        await world.create(make_pod("q", cpu="2"))
        assert world.message("q") == INSUFFICIENT


# Messages of failures


@virtual
async def test_no_node_fits() -> None:
    async with running(make_node("n", cpu="1"), make_pod("p", cpu="2")) as world:
        assert world.condition("p") == ("False", "Unschedulable", TOO_BIG)
        assert world.events("p") == [("FailedScheduling", TOO_BIG)]
        assert world.sub_queue("p") == "unschedulable"


@virtual
async def test_the_condition_has_the_generation_of_the_pod() -> None:
    async with running(make_node("n", cpu="1"), make_pod("p", cpu="2")) as world:
        (condition,) = world.pod("p").status.conditions
        assert condition.observed_generation == world.pod("p").metadata.generation == 1


@virtual
async def test_there_are_no_nodes() -> None:
    async with running(make_pod("p")) as world:
        text = "no nodes available to schedule pods"
        assert world.condition("p") == ("False", "Unschedulable", text)
        assert world.events("p") == [("FailedScheduling", text)]


@virtual
async def test_a_pod_without_any_node_is_tried_again_after_a_growing_backoff() -> None:
    """As after an error: it does not wait for an event."""
    async with running(make_pod("p")) as world:
        assert world.sub_queue("p") == "backoff"
        tries = []
        for _ in range(25):
            tries.append(world.attempts("p"))
            await world.after(1)
        assert tries == [1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5]


@virtual
async def test_a_pod_without_any_node_takes_the_first_one_after_its_backoff() -> None:
    async with running(make_pod("p")) as world:
        await world.create(make_node("n"))
        assert world.node_of("p") == ""
        await world.after(2)
        assert world.node_of("p") == "n"


@virtual
async def test_events_that_help_no_pod_do_not_wake_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while it waits for a timer, because of a pod that is unschedulable."""
    async with running(make_node("n", cpu="1"), make_pod("p", cpu="2")) as world:
        assert world.sub_queue("p") == "unschedulable"
        pop = Mock(wraps=world.context.queue.pop)
        monkeypatch.setattr(world.context.queue, "pop", pop)
        await world.create(*(make_pod(f"other{i}", scheduler_name="other") for i in range(3)))
        pop.assert_not_called()
        await world.create(make_node("large", cpu="4"))
        assert world.node_of("p") == "large"


@virtual
async def test_a_long_message_is_cut_in_the_event_and_whole_in_the_condition() -> None:
    x = plugin(
        "X",
        NodePlugin,
        filter_node=lambda state, pod, node: unschedulable(f"{node.name} is not to its liking"),
    )
    nodes = [make_node(f"n{i:03}") for i in range(60)]
    async with running(*nodes, make_pod("p"), plugins=[x]) as world:
        message = world.message("p")
        _, note = world.events("p")[0]
        assert len(message) > 1500
        assert note == message[:1020] + " ..."


@virtual
async def test_the_same_failure_again_is_not_written_again() -> None:
    async with running(make_node("n", cpu="1"), make_pod("p", cpu="2")) as world:
        version = world.pod("p").metadata.resource_version
        await world.create(make_node("m", cpu="1", taints=["a:NoSchedule"]))
        await world.delete_node("m")
        await world.after(400)
        assert world.attempts("p") > 1
        assert world.cluster.written("patch") == ["p"]
        assert world.pod("p").metadata.resource_version == version


@virtual
async def test_another_failure_is_written() -> None:
    async with running(make_node("n", cpu="1"), make_pod("p", cpu="2")) as world:
        await world.create(make_node("m", cpu="1"))
        await world.after(400)
        assert world.message("p").startswith("0/2 nodes are available: 2 Insufficient cpu.")
        assert world.cluster.written("patch") == ["p", "p"]


@virtual
async def test_the_time_of_the_condition_moves_only_with_its_status() -> None:
    async with running(make_node("n", cpu="1"), make_pod("p", cpu="2")) as world:
        await world.create(make_node("m", cpu="1"))
        await world.after(400)
        (condition,) = world.pod("p").status.conditions
        assert condition.message.startswith("0/2 nodes")
        assert condition.last_transition_time == MIDNIGHT
        await world.create(make_node("o", cpu="2"))
        (condition,) = world.pod("p").status.conditions
        assert condition.status == "True"
        assert condition.last_transition_time == datetime(2026, 1, 1, 0, 6, 40, tzinfo=UTC)


# Plugins that break

BOOM = "it went boom"


def boom(*_: object) -> None:
    raise RuntimeError(BOOM)


def shout(*_: object) -> object:
    return failure(BOOM)


BROKEN = [
    pytest.param(
        "pre_filter", boom, f'running PreFilter plugin "X": RuntimeError: {BOOM}', id="PreFilter raises"
    ),
    pytest.param("pre_filter", shout, f'running PreFilter plugin "X": {BOOM}', id="PreFilter answers Error"),
    pytest.param("filter", boom, f'running "X" filter plugin: RuntimeError: {BOOM}', id="Filter raises"),
    pytest.param(
        "pre_score", boom, f'running PreScore plugin "X": RuntimeError: {BOOM}', id="PreScore raises"
    ),
    pytest.param("pre_score", shout, f'running PreScore plugin "X": {BOOM}', id="PreScore answers Error"),
    pytest.param(
        "pre_score",
        lambda *_: unschedulable(BOOM),
        f'running PreScore plugin "X": {BOOM}',
        id="PreScore rejects, which it may not",
    ),
    pytest.param(
        "score",
        boom,
        f'running Score plugins: plugin "X" failed with: RuntimeError: {BOOM}',
        id="Score raises",
    ),
    pytest.param("reserve", boom, f'running Reserve plugin "X": RuntimeError: {BOOM}', id="Reserve raises"),
    pytest.param("reserve", shout, f'running Reserve plugin "X": {BOOM}', id="Reserve answers Error"),
    pytest.param("permit", boom, f'running Permit plugin "X": RuntimeError: {BOOM}', id="Permit raises"),
    pytest.param("permit", shout, f'running Permit plugin "X": {BOOM}', id="Permit answers Error"),
    pytest.param("pre_bind", boom, f'running PreBind plugin "X": RuntimeError: {BOOM}', id="PreBind raises"),
    pytest.param("bind", boom, f'running Bind plugin "X": RuntimeError: {BOOM}', id="Bind raises"),
]


@pytest.mark.parametrize(("method", "answer", "text"), BROKEN)
@virtual
async def test_a_plugin_that_raises_fails_the_attempt_with_its_name(
    method: str, answer: object, text: str
) -> None:
    """The pod comes back after a backoff, and all others continue."""
    broken = True

    def sometimes(*args: object) -> object:
        pod = next(arg for arg in args if hasattr(arg, "spec"))
        if broken and pod.name == "p":  # type: ignore[attr-defined]  # it is a pod
            return answer(*args)  # type: ignore[operator]  # it is a function
        return [] if method == "filter" else [0, 0] if method == "score" else None

    async def later(*args: object) -> object:
        return sometimes(*args)

    methods: dict[str, Any] = {method: later if method in ("pre_bind", "bind") else sometimes}
    if method == "reserve":
        methods["unreserve"] = lambda *_: None
    if method == "pre_bind":
        methods["pre_bind_pre_flight"] = lambda *_: None
    config = ""
    if method == "bind":
        config = "profiles: [{plugins: {bind: {enabled: [{name: X}], disabled: [{name: '*'}]}}}]"
    async with running(
        make_node("a"), make_node("b"), plugins=[plugin("X", **methods)], config=config
    ) as world:
        await world.create(make_pod("p"), make_pod("q"))
        message = world.message("p")
        assert world.condition("p") == ("False", "SchedulerError", message)
        assert (without_location(message) if answer is boom else message) == text
        assert world.events("p") == [("FailedScheduling", message)]
        assert world.sub_queue("p") == "backoff"
        assert world.condition("q") != ("False", "SchedulerError", message)
        broken = False
        await world.after(2)
        assert world.attempts("p") == 2


@virtual
async def test_the_error_of_a_postfilter_is_behind_the_reasons() -> None:
    """It is no error of the attempt, and the nomination stays."""
    x = plugin("X", post_filter=boom)
    config = "profiles: [{plugins: {postFilter: {enabled: [{name: X}], disabled: [{name: '*'}]}}}]"
    pod = make_pod("p", cpu="9", nominated_node="n")
    async with running(make_node("n"), pod, plugins=[x], config=config) as world:
        text = f'running PostFilter plugin "X": RuntimeError: {BOOM}'
        condition = world.condition("p")
        assert condition is not None
        assert condition[:2] == ("False", "Unschedulable")
        assert without_location(condition[2]) == f"0/1 nodes are available: 1 Insufficient cpu. {text}"
        assert world.nominated("p") == "n"
        assert world.sub_queue("p") == "unschedulable"


@virtual
async def test_a_profile_without_postfilters_clears_the_nomination() -> None:
    config = "profiles: [{plugins: {postFilter: {disabled: [{name: '*'}]}}}]"
    pod = make_pod("p", cpu="9", nominated_node="n")
    async with running(make_node("n"), pod, config=config) as world:
        assert world.message("p") == "0/1 nodes are available: 1 Insufficient cpu."
        assert world.nominated("p") == ""


@virtual
async def test_the_rejection_of_a_prefilter_counts_for_all_nodes() -> None:
    x = plugin("X", pre_filter=lambda *_: unresolvable("not on a Friday"))
    async with running(make_node("a"), make_node("b"), make_pod("p"), plugins=[x]) as world:
        assert world.message("p").startswith("0/2 nodes are available: not on a Friday. ")
        assert world.sub_queue("p") == "unschedulable"
