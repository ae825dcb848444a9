"""A nomination on its way into a pod's status: what versions of the pod prove that come meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bayplan.framework.outcome import Nomination
from bayplan.queue.nominator import Nominator
from bayplan.queue.queued import QueuedPod
from bayplan.testing.builders import make_pod

from .queues import Columns

SENT, WRITTEN, SEEN = QueuedPod.writes_nomination, QueuedPod.nomination_written, QueuedPod.seen_nominated


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
    history: list[tuple[Callable[[QueuedPod, str], None], str]], left: tuple[str | None, str | None]
) -> None:
    info = QueuedPod(make_pod("p"), "default/p", 0.0, 0)
    for happens, node_name in history:
        happens(info, node_name)
    assert (info.outdated_nomination, info.written_nomination) == left


@pytest.mark.parametrize(
    ("shown", "outdated", "kept"),
    [
        pytest.param("n", "n", "", id="an outdated one is not heeded"),
        pytest.param("m", "n", "m", id="somebody else's is"),
        pytest.param("n", None, "n", id="and so is any where none is outdated"),
    ],
)
def test_a_version_of_the_pod_with_a_nomination(shown: str, outdated: str | None, kept: str) -> None:
    """Its own had been cleared."""
    old, new = make_pod("p"), make_pod("p", nominated_node=shown)
    nominator = Nominator(Columns(), lambda pod: new)
    nominator.add(old, Nomination(""))
    nominator.update(old, new, outdated=outdated)
    assert nominator.node_of(new.uid) == kept
