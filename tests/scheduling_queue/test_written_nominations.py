"""A nomination on its way into a pod's status: what versions of the pod prove that come meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Nomination
from bayplan.scheduling_queue.nominations import Nominations
from bayplan.scheduling_queue.queued import NominationWrite, QueuedPod
from bayplan.state.groups import Group
from bayplan.testing.builders import make_pod

from .queues import Columns, NoPins, record

Happens = Callable[[Nominations, QueuedPod, str], object]


def sent(nominations: Nominations, info: QueuedPod, node_name: str) -> None:
    nominations.node_to_write(info, make_pod("p", nominated_node="other"), Nomination(node_name))


def written(nominations: Nominations, info: QueuedPod, node_name: str) -> None:
    nominations.acknowledged(info, node_name)


def seen(nominations: Nominations, info: QueuedPod, node_name: str) -> None:
    nominations.pod_updated(info, info.pod, make_pod("p", nominated_node=node_name))


SENT, WRITTEN, SEEN = sent, written, seen


@pytest.mark.parametrize(
    ("history", "left"),
    [
        pytest.param([(SENT, "n")], (None, "n"), id="one is on its way"),
        pytest.param([(SENT, "n"), (WRITTEN, "n")], (None, "n"), id="it arrived, but no watch shows it"),
        pytest.param([(SENT, "n"), (WRITTEN, "n"), (SEEN, "n")], (None, None), id="it is there"),
        pytest.param([(SENT, "n"), (SENT, ""), (SEEN, "")], ("n", ""), id="what was before proves nothing"),
        pytest.param([(SENT, "n"), (SENT, ""), (WRITTEN, "n")], ("n", ""), id="only the last one counts"),
        pytest.param([(SENT, "n"), (SENT, ""), (SENT, "")], ("n", ""), id="sending again changes nothing"),
        pytest.param([(SENT, "n"), (SENT, ""), (WRITTEN, ""), (SEEN, "")], (None, None), id="it is cleared"),
        pytest.param([(SENT, "n"), (WRITTEN, "n"), (SEEN, "m")], (None, "n"), id="another one is shown"),
    ],
)
def test_what_is_outdated_and_what_is_under_way(
    history: list[tuple[Happens, str]], left: tuple[str | None, str | None]
) -> None:
    info = record(make_pod("p"))
    nominations = Nominations(Columns(), lambda pod: pod, NoPins())
    for happens, node_name in history:
        happens(nominations, info, node_name)
    write = info.nomination_write
    assert ((None, None) if write is None else (write.previous, write.node_name)) == left


@pytest.mark.parametrize(
    ("shown", "outdated", "kept"),
    [
        pytest.param("n", "n", "", id="an outdated one is not heeded"),
        pytest.param("m", "n", "m", id="that of another writer is"),
        pytest.param("n", None, "n", id="and so is any where none is outdated"),
    ],
)
def test_a_version_of_the_pod_with_a_nomination(shown: str, outdated: str | None, kept: str) -> None:
    """Its own had been cleared."""
    old, new = make_pod("p"), make_pod("p", nominated_node=shown)
    info = record(old)
    if outdated is not None:
        info.nomination_write = NominationWrite("", previous=outdated)
    nominations = Nominations(Columns(), lambda pod: new, NoPins())
    nominations.add(old, Nomination(""))
    nominations.pod_updated(info, old, new)
    assert nominations.node_of(new.uid) == kept


@pytest.mark.parametrize(
    ("shown", "nomination", "expected"),
    [
        pytest.param("", None, None, id="the attempt does not set it"),
        pytest.param("n", Nomination("n"), None, id="it is shown already"),
        pytest.param("", Nomination("n"), "n", id="it is new"),
        pytest.param("n", Nomination(""), "", id="it is cleared"),
    ],
)
def test_what_is_written_after_a_failed_attempt(
    shown: str, nomination: Nomination | None, expected: str | None
) -> None:
    pod = make_pod("p", nominated_node=shown)
    nominations = Nominations(Columns(), lambda pod: pod, NoPins())
    assert nominations.node_to_write(record(pod), pod, nomination) == expected


def test_what_is_shown_is_written_again_while_another_write_is_under_way() -> None:
    """Otherwise that one would remain in the status."""
    pod = make_pod("p")
    info = record(pod)
    nominations = Nominations(Columns(), lambda pod: pod, NoPins())
    assert nominations.set_expected_node(info, pod, "n")
    assert nominations.node_to_write(info, pod, Nomination("")) == ""


class Pinned(dict[str, str]):
    """The pinned pods, each with its gate."""

    def pin(self, preemptor: Pod | Group, gate: str) -> None:
        self[preemptor.uid] = gate

    def unpin(self, preemptor: Pod | Group) -> None:
        self.pop(preemptor.uid, None)


def test_a_preemptor_is_pinned_until_its_last_victim_is_terminating() -> None:
    preemptor, victim = make_pod("p"), make_pod("v")
    existing = {victim.key: victim}
    pins = Pinned()
    nominations = Nominations(Columns(), lambda pod: existing.get(pod.key), pins)
    preemption = nominations.preemption_started(preemptor, "DefaultPreemption")
    assert (pins, nominations.is_preempting(preemptor.uid)) == ({preemptor.uid: "DefaultPreemption"}, True)
    nominations.pod_terminating(victim)
    assert pins, "it is not yet known to be the last"
    nominations.waits_for_victim(preemption, victim)
    assert (len(pins), nominations.is_preempting(preemptor.uid)) == (1, True)
    existing.clear()
    nominations.pod_terminating(victim)
    assert (pins, nominations.is_preempting(preemptor.uid)) == ({}, False)
    nominations.preemption_ended(preemption, victim)
    assert (nominations.preemptions, nominations.last_victims) == ({}, {})


def test_a_preemption_that_ends_late_leaves_the_next_one_alone() -> None:
    preemptor, victim, pins = make_pod("p"), make_pod("v"), Pinned()
    nominations = Nominations(Columns(), lambda pod: pod, pins)
    first = nominations.preemption_started(preemptor, "A")
    second = nominations.preemption_started(preemptor, "B")
    nominations.preemption_ended(first, victim)
    assert (pins, nominations.preemptions) == ({preemptor.uid: "B"}, {preemptor.uid: second})
