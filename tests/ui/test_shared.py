"""Pod groups and capacity queues on the page: what the commands say about the examples."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.api.groups import CompositePodGroup
from bayplan.api.meta import ObjectMeta
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.errors import InputError
from bayplan.ui.questions import Questions
from bayplan.ui.shared import capacity_queues, group_report, pod_groups
from bayplan.ui.sources import from_loaded

EXAMPLES = Path(__file__).parents[2] / "examples"


def questions(*files: str, config: str = "") -> Questions:
    options = SourceOptions(
        files=tuple(str(EXAMPLES / one) for one in files),
        config_file=str(EXAMPLES / config) if config else None,
    )
    subject, hub = from_loaded(load_cluster(options), time.time)
    return Questions(subject, hub.history.objects)


def test_groups_with_their_members() -> None:
    ask = questions("groups.yaml")
    found = pod_groups(ask.loaded)
    assert found["podGroupCount"] == len(found["podGroups"]) > 1
    by_name = {one["group"]: one for one in found["podGroups"]}
    for key, one in by_name.items():
        report = group_report(ask.loaded, *key.split("/"))
        assert report["scheduledCount"] == one["assigned"]
        assert report["waitingCount"] == one["pending"]
        assert report["minCount"] == one["minCount"]
    pending = [one["pending"] > 0 for one in found["podGroups"]]
    assert pending == sorted(pending, reverse=True), "those that wait come first"
    with pytest.raises(InputError, match="no such group"):
        group_report(ask.loaded, "ml", "nothing")


def test_composite_groups_with_the_groups_below_them() -> None:
    ask = questions("composite.yaml")
    rows = pod_groups(ask.loaded)["podGroups"]
    assert [(one["group"], one["depth"], one["pending"]) for one in rows] == [
        ("ml/draft", 0, 3),
        ("ml/draft-a", 1, 2),
        ("ml/draft-b", 1, 1),
        ("ml/model", 0, 4),
        ("ml/decoder", 1, 2),
        ("ml/encoder", 1, 2),
    ]
    assert [(one["minGroupCount"], one["minCount"]) for one in rows[:2]] == [(2, None), (None, 2)]
    report = group_report(ask.loaded, "ml", "model")
    assert [one["name"] for one in report["podGroups"]] == ["decoder", "encoder"]


def test_composite_groups_that_are_parents_of_one_another_have_rows_of_their_own() -> None:
    ask = questions("composite.yaml")
    composite = next(one for one in ask.loaded.objects if isinstance(one, CompositePodGroup))
    circle = [
        msgspec.structs.replace(
            composite,
            metadata=ObjectMeta(name=name, namespace="ml"),
            spec=msgspec.structs.replace(composite.spec, parent_composite_pod_group_name=parent),
        )
        for name, parent in (("a", "b"), ("b", "a"))
    ]
    rows = pod_groups(replace(ask.loaded, objects=circle))["podGroups"]
    assert [(one["group"], one["depth"]) for one in rows] == [("ml/a", 0), ("ml/b", 0)]


def test_groups_with_the_gate_off_in_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration is read again with the gate; one that was given as an object cannot be."""
    monkeypatch.chdir(EXAMPLES.parent)
    ask = questions("groups.yaml", config="queues/scheduler.yaml")
    assert group_report(ask.loaded, "ml", "serve")["waitingCount"] == 8
    assert ask.loaded.config is not None
    off = msgspec.structs.replace(ask.loaded.config, release=DEFAULT_RELEASE)
    with pytest.raises(InputError, match="GenericWorkload is off"):
        group_report(replace(ask.loaded, reload=None, config=off), "ml", "serve")


def test_capacity_queues_with_their_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)  # the configuration names its queues.yaml from there
    ask = questions("queues/cluster.yaml", config="queues/scheduler.yaml")
    rows: list[dict[str, Any]] = capacity_queues(ask.capacity)["capacityQueues"]
    assert [(one["name"], one["depth"]) for one in rows[:2]] == [("root", 0), ("research", 1)]
    research = {one["resource"]: one for one in rows[1]["resources"]}["vcore"]
    assert (research["used"], research["guaranteed"], research["max"]) == ("5", "4", "6")
    assert research["share"] == 5 / 6
    assert rows[1]["pendingPods"] == 3
    # tune-1 asks for 2 of 1 that is left: it would not go to a node, whatever fits there.
    line = {"reason": "", "node": "", "podGroup": "", "pods": ["default/tune-1"]}
    (answer,) = ask.forecast({"groups": [line]})["groups"]
    assert "root.research" in answer["forecast"]
    assert "would go to" not in answer["forecast"]


def test_without_groups_and_queues_there_is_nothing() -> None:
    ask = questions("cluster.yaml")
    assert pod_groups(ask.loaded) == {"podGroups": [], "podGroupCount": 0}
    assert capacity_queues(ask.capacity)["capacityQueues"] == []
