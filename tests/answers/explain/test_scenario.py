"""Scenarios are read as written, with defaults only where they do not come from a server."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.answers.explain.report import decide_scenario
from bayplan.answers.sources.files import is_scenario, read_scenario

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "1", "pods": "5"}},
}
POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "x"}}


@pytest.mark.parametrize(
    ("content", "yes"),
    [
        ({"objects": [], "pods": []}, True),
        ({"scenario": {}, "expect": []}, True),
        ({"kind": "List", "items": []}, False),
        ({"kind": "Foo", "objects": []}, False),
        ([], False),
        (None, False),
    ],
)
def test_is_scenario(content: Any, yes: bool) -> None:
    assert is_scenario(content) is yes


def test_objects_without_uid_get_defaults() -> None:
    case = read_scenario({"name": "a", "objects": [NODE], "pods": [POD]})
    assert case.pods is not None
    (pod,) = case.pods
    assert (pod.spec.scheduler_name, bool(pod.uid)) == ("default-scheduler", True)


def test_objects_of_a_server_are_left_alone() -> None:
    """Its priority was decided there, and so were its tolerations."""
    meta = {"name": "p", "namespace": "x", "uid": "1"}
    pod = POD | {"metadata": meta, "spec": {"schedulerName": "default-scheduler"}}
    node = NODE | {"metadata": {"name": "n", "uid": "2"}}
    case = read_scenario({"objects": [node], "pods": [pod]})
    assert case.pods is not None
    assert (case.pods[0].spec.priority, case.pods[0].spec.tolerations) == (None, ())


def test_kinds_that_scheduling_does_not_read_are_ignored() -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    result = decide_scenario({"name": "a", "objects": [config_map, NODE], "pods": [POD]})
    assert result["results"][0]["best"] == ["n"]


def test_nothing_at_all() -> None:
    assert decide_scenario({"objects": []}) == {"name": "", "results": []}
