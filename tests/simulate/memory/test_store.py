"""The store: what each write makes, what it rejects, and the events of watchers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Change, Event, EventSeries, PodStatusPatch, WatchEvent
from bayplan.api.meta import Condition, ObjectMeta, ObjectReference
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.errors import APIError, ConflictError, NotFoundError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_node, make_pod, make_replica_set

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def make_store(seed: int = 0) -> MemoryStore:
    return MemoryStore(clock=lambda: NOON.timestamp() + 0.9, seed=seed)


def pod_events(store: MemoryStore, since: str = "0") -> list[WatchEvent[Pod]]:
    async def read() -> list[WatchEvent[Pod]]:
        store.send_bookmarks()
        return [
            event for event in await anext(store.watch(Pod, since)) if event.change is not Change.BOOKMARK
        ]

    return run_virtual(read())


def events_seen(store: MemoryStore, since: str = "0") -> list[tuple[str, str, str]]:
    """What watchers of pods received: change, phase, resourceVersion."""
    events = [(event, event.object) for event in pod_events(store, since)]
    return [(event.change, pod.status.phase, event.resource_version) for event, pod in events if pod]


# Creating


def test_gives_a_new_object_what_only_a_server_can_give() -> None:
    """Whatever the client wrote there; times have whole seconds, as on the wire."""
    store = make_store()
    store.create(make_node("n1"))
    pod = store.create(make_pod("a", uid="mine", deleted=NOON))
    assert pod.metadata.resource_version == "2"
    assert pod.metadata.creation_timestamp == NOON
    assert pod.metadata.deletion_timestamp is None
    assert pod.metadata.generation == 1
    assert pod.uid not in ("", "mine")
    assert store.get(Pod, "a", "default") is pod


def test_uids_follow_from_the_seed_and_are_never_used_again() -> None:
    def uids(seed: int) -> list[str]:
        store = make_store(seed)
        first = store.create(make_pod("a"))
        store.delete(Pod, "a", "default")
        return [first.uid, store.create(make_pod("a")).uid, store.create(make_node("n")).uid]

    assert uids(1) == uids(1)
    assert len({*uids(1), *uids(2)}) == 6


def test_a_new_pod_is_pending() -> None:
    assert make_store().create(Pod(metadata=ObjectMeta(name="a"))).status.phase == "Pending"


def test_makes_names_from_a_prefix() -> None:
    store = make_store()
    pods = [store.create(Pod(metadata=ObjectMeta(generate_name="web-", namespace="x"))) for _ in range(20)]
    assert len({pod.name for pod in pods}) == 20
    assert all(pod.name.startswith("web-") and len(pod.name) == 9 for pod in pods)


@pytest.mark.parametrize(
    ("pod", "error", "message"),
    [
        pytest.param(make_pod("a"), ConflictError, 'pods "a" already exists', id="a name that is taken"),
        pytest.param(make_pod(""), APIError, "name or generateName is required", id="no name at all"),
    ],
)
def test_rejects_to_create(pod: Pod, error: type[APIError], message: str) -> None:
    store = make_store()
    store.create(make_pod("a"))
    with pytest.raises(error, match=message):
        store.create(pod)
    assert store.resource_version == "1"


def test_the_same_name_in_another_namespace_is_another_object() -> None:
    store = make_store()
    for namespace in ("a", "a-b"):
        store.create(make_pod("p", namespace=namespace))
    assert [pod.key for pod in store.list(Pod)] == ["a-b/p", "a/p"]  # the order of etcd: - comes before /


# Updating


def test_an_update_keeps_what_is_not_the_clients() -> None:
    store = make_store()
    old = store.create(make_pod("a"))
    new = store.update(make_pod("a", uid="", labels={"app": "web"}, deleted=NOON))
    assert new.labels == {"app": "web"}
    expected = replace(old.metadata, labels={"app": "web"}, resource_version="2")
    assert new.metadata == expected
    assert store.get(Pod, "a", "default") is new


@pytest.mark.parametrize(
    ("change", "generation"),
    [
        pytest.param(lambda pod: replace(pod, spec=replace(pod.spec, priority=7)), 2, id="the spec counts"),
        pytest.param(
            lambda pod: replace(pod, status=replace(pod.status, phase="Running")), 1, id="the status does not"
        ),
        pytest.param(
            lambda pod: replace(pod, metadata=replace(pod.metadata, labels={"a": "b"})),
            1,
            id="nor do the labels",
        ),
    ],
)
def test_generation(change: Callable[[Pod], Pod], generation: int) -> None:
    store = make_store()
    updated = store.update(change(store.create(make_pod("a"))))
    assert (updated.metadata.generation, updated.metadata.resource_version) == (generation, "2")


def test_only_some_kinds_count_generations() -> None:
    store = make_store()
    assert store.create(make_replica_set("r", {"app": "a"})).metadata.generation == 1
    assert store.create(make_node("n")).metadata.generation == 0


def test_an_update_without_news_is_no_write() -> None:
    store = make_store()
    node = store.create(make_node("n1"))
    assert store.update(make_node("n1", uid="")) is node
    assert store.resource_version == "1"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        pytest.param(
            lambda pod: replace(pod, metadata=replace(pod.metadata, resource_version="1")),
            ConflictError,
            'Operation cannot be fulfilled on pods "a": the object has been modified; '
            "please apply your changes to the latest version and try again",
            id="an object that has changed since",
        ),
        pytest.param(
            lambda pod: replace(pod, metadata=replace(pod.metadata, uid="other")),
            ConflictError,
            "Precondition failed: UID in precondition: other",
            id="an object that is another one",
        ),
        pytest.param(
            lambda pod: replace(pod, metadata=replace(pod.metadata, name="b")),
            NotFoundError,
            'pods "b" not found',
            id="an object that is not there",
        ),
        pytest.param(
            lambda pod: replace(pod, spec=replace(pod.spec, node_name="n1")),
            APIError,
            'Pod "a" is invalid: spec: Forbidden',
            id="a pod that is to be bound that way",
        ),
    ],
)
def test_rejects_to_update(change: Callable[[Pod], Pod], error: type[APIError], message: str) -> None:
    store = make_store()
    store.create(make_pod("a"))
    pod = store.set_pod_phase("a", "default", "Running")
    with pytest.raises(error, match=message):
        store.update(change(pod))
    assert store.get(Pod, "a", "default") is pod


# Deleting


def test_a_deleted_object_is_shown_as_it_was_last() -> None:
    store = make_store()
    pod = store.create(make_pod("a"))
    store.delete(Pod, "a", "default")
    (event,) = pod_events(store, "1")
    assert event == WatchEvent(
        Change.DELETED, replace(pod, metadata=replace(pod.metadata, resource_version="2")), "2"
    )
    with pytest.raises(NotFoundError, match='pods "a" not found'):
        store.get(Pod, "a", "default")


def test_without_a_kubelet_a_running_pod_is_gone_at_once() -> None:
    store = make_store()
    store.create(make_pod("a", node="n1", termination_grace_period_seconds=30))
    store.delete(Pod, "a", "default")
    assert store.list(Pod) == []


@pytest.mark.parametrize(
    ("name", "uid", "error", "message"),
    [
        pytest.param("b", "", NotFoundError, 'pods "b" not found', id="what is not there"),
        pytest.param("a", "other", ConflictError, "UID in precondition: other", id="what is another one"),
    ],
)
def test_rejects_to_delete(name: str, uid: str, error: type[APIError], message: str) -> None:
    store = make_store()
    pod = store.create(make_pod("a"))
    with pytest.raises(error, match=message):
        store.delete(Pod, name, "default", uid=uid)
    assert store.list(Pod) == [pod]


# Binding


def test_binding_sets_the_node_and_the_condition() -> None:
    store = make_store()
    pod = store.create(make_pod("a", nominated_node="n2"))
    bound = store.bind("a", "default", "n1", uid=pod.uid)
    assert bound.spec.node_name == "n1"
    assert bound.status.nominated_node_name == ""
    assert bound.status.conditions == (
        Condition(type="PodScheduled", status="True", last_transition_time=NOON),
    )
    assert (bound.metadata.resource_version, bound.metadata.generation) == ("2", 1)
    assert pod_events(store, "1") == [WatchEvent(Change.MODIFIED, bound, "2")]


def bound_elsewhere(store: MemoryStore) -> None:
    store.bind("a", "default", "n2")


def terminating(store: MemoryStore) -> None:
    store.kubelet = lambda _store, _pod, _seconds: None
    store.bind("a", "default", "n2")
    store.delete(Pod, "a", "default")


def gated(store: MemoryStore) -> None:
    store.delete(Pod, "a", "default")
    store.create(make_pod("a", gates=["wait"]))


@pytest.mark.parametrize(
    ("prepare", "uid", "message"),
    [
        pytest.param(
            bound_elsewhere,
            "",
            'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n2"',
            id="a pod that has a node",
        ),
        pytest.param(
            terminating,
            "",
            'Operation cannot be fulfilled on pods/binding "a": '
            "pod a is being deleted, cannot be assigned to a host",
            id="a pod that is being deleted",
        ),
        pytest.param(
            gated,
            "",
            'Operation cannot be fulfilled on pods/binding "a": pod a has non-empty .spec.schedulingGates',
            id="a pod with gates",
        ),
        pytest.param(bound_elsewhere, "other", "UID in precondition: other", id="another pod, first of all"),
    ],
)
def test_rejects_to_bind(prepare: Callable[[MemoryStore], None], uid: str, message: str) -> None:
    store = make_store()
    store.create(make_pod("a"))
    prepare(store)
    before = store.get(Pod, "a", "default")
    with pytest.raises(ConflictError, match=message):
        store.bind("a", "default", "n1", uid=uid)
    assert store.get(Pod, "a", "default") is before


def test_a_pod_that_is_gone_cannot_be_bound() -> None:
    with pytest.raises(NotFoundError, match='pods "a" not found'):
        make_store().bind("a", "default", "n1")


# Status


def test_a_patch_without_news_is_no_write() -> None:
    store = make_store()
    store.create(make_pod("a"))
    patch = PodStatusPatch(Condition(type="PodScheduled", status="False", reason="Unschedulable"), "n1")
    patched = store.patch_pod_status("a", "default", patch)
    assert store.patch_pod_status("a", "default", patch) is patched
    assert events_seen(store) == [("ADDED", "Pending", "1"), ("MODIFIED", "Pending", "2")]


def test_a_patch_that_was_meant_for_another_pod_is_rejected() -> None:
    store = make_store()
    store.create(make_pod("a"))
    with pytest.raises(APIError, match=r'Pod "a" is invalid: metadata\.uid: Invalid value: "other"'):
        store.patch_pod_status("a", "default", PodStatusPatch(nominated_node_name="n1"), uid="other")
    assert store.get(Pod, "a", "default").status.nominated_node_name == ""


def test_a_kubelet_sets_the_phase_of_a_pod() -> None:
    store = make_store()
    store.create(make_pod("a"))
    running = store.set_pod_running("a", "default").status
    assert (running.phase, running.start_time) == ("Running", NOON)
    later = NOON.replace(hour=13)
    assert store.set_pod_running("a", "default", later).status.start_time == later


def test_pods_that_have_finished_are_not_shown_to_schedulers() -> None:
    """One that finishes is seen as deleted, as it was last seen; later changes cause no events."""
    store = make_store()
    store.create(make_pod("done", phase="Succeeded"))
    store.create(make_pod("a", phase="Running"))
    store.set_pod_phase("a", "default", "Failed")
    store.patch_pod_status("a", "default", PodStatusPatch(nominated_node_name="n1"))
    store.delete(Pod, "a", "default")
    assert events_seen(store) == [("ADDED", "Running", "2"), ("DELETED", "Running", "3")]
    assert store.resource_version == "5"
    assert [pod.name for pod in store.list(Pod)] == ["done"]


def test_a_pod_that_comes_back_to_life_is_new() -> None:
    store = make_store()
    store.create(make_pod("a", phase="Failed"))
    store.set_pod_phase("a", "default", "Running")
    assert events_seen(store) == [("ADDED", "Running", "2")]


# Watching


def test_bookmarks_have_the_current_version() -> None:
    """Of a kind to which nothing happens, too; and not again where that is known."""
    store = make_store()
    store.create(make_node("n1"))
    store.create(make_pod("a"))
    store.send_bookmarks()
    store.send_bookmarks()

    async def versions(kind: type[Pod] | type[Node]) -> list[tuple[str, str]]:
        return [(event.change, event.resource_version) for event in await anext(store.watch(kind, "0"))]

    assert run_virtual(versions(Node)) == [("ADDED", "1"), ("BOOKMARK", "2")]
    assert run_virtual(versions(Pod)) == [("ADDED", "2")]


def test_an_event_is_an_object_like_others() -> None:
    store = make_store()
    event = store.create(
        Event(
            metadata=ObjectMeta(name="a.1", namespace="default"),
            event_time=NOON,
            reporting_controller="default-scheduler",
            reason="Scheduled",
            regarding=ObjectReference(kind="Pod", namespace="default", name="a"),
            note="Successfully assigned default/a to n1",
            type="Normal",
        )
    )
    repeated = replace(event, series=EventSeries(count=2, last_observed_time=NOON))
    stored = store.update(repeated)
    written = msgspec.to_builtins(stored)
    assert written["series"] == {"count": 2, "lastObservedTime": "2026-01-01T12:00:00Z"}
    assert written["reportingController"] == "default-scheduler"
    assert msgspec.convert(written, Event) == stored
