"""QOSSort: priority, then quality of service, then the time in the queue."""

from __future__ import annotations

import pytest

from bayplan.api.meta import ResourceList
from bayplan.api.pod import Pod, ResourceRequirements
from bayplan.api.requests import BEST_EFFORT, BURSTABLE, GUARANTEED, qos_class
from bayplan.plugins.library.qos_sort import QOSSort
from bayplan.testing.builders import make_container, make_pod
from bayplan.testing.calling import make_plugin
from bayplan.testing.plugin_checks import check_plugin

ALL: ResourceList = {"cpu": "1", "memory": "1Gi"}
BOTH = make_pod("guaranteed", requests=ALL, limits=ALL)
SOME = make_pod("burstable", cpu="1")
NONE = make_pod("best-effort")


def test_it_passes_the_checks() -> None:
    check_plugin(QOSSort)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (BOTH, GUARANTEED),
        (make_pod("p", requests=ALL, limits={"cpu": "1000m", "memory": "1024Mi"}), GUARANTEED),
        (SOME, BURSTABLE),
        (make_pod("p", limits={"cpu": "1"}), BURSTABLE),
        (make_pod("p", requests={"cpu": "500m", "memory": "1Gi"}, limits=ALL), BURSTABLE),
        (NONE, BEST_EFFORT),
        (make_pod("p", cpu="0"), BEST_EFFORT),
        (make_pod("p", requests={"example.com/gpu": 1}, limits={"example.com/gpu": 1}), BEST_EFFORT),
        (
            make_pod(
                "p",
                containers=[
                    make_container("a", requests=ALL, limits=ALL),
                    make_container("b"),
                ],
            ),
            BURSTABLE,
        ),
        (make_pod("p", resources=ResourceRequirements(requests=ALL, limits=ALL)), GUARANTEED),
    ],
)
def test_classes(pod: Pod, expected: int) -> None:
    assert qos_class(pod) == expected


def order(*pods: tuple[Pod, float]) -> list[str]:
    return [pod.name for pod, time in sorted(pods, key=lambda item: make_plugin(QOSSort).sort_key(*item))]


def test_order() -> None:
    urgent = make_pod("urgent", priority=10)
    assert order((NONE, 1), (SOME, 2), (BOTH, 3), (urgent, 4)) == [
        "urgent",
        "guaranteed",
        "burstable",
        "best-effort",
    ]
    assert order((make_pod("late"), 2), (make_pod("early"), 1)) == ["early", "late"]
