"""PreemptionToleration: which pods are spared, for how long, and by which preemptors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bayplan.api.meta import Condition, Object
from bayplan.api.pod import Pod
from bayplan.api.workloads import PriorityClass
from bayplan.config import parse_config
from bayplan.framework.plugin_api import Plugin
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.preemption_toleration import (
    MINIMUM_PRIORITY,
    TOLERATION_SECONDS,
    Policy,
    PreemptionToleration,
    policy_of,
)
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.testing.builders import make_node, make_pod, make_priority_class
from bayplan.testing.plugin_checks import check_plugin

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {disabled: [{name: DefaultPreemption}]}
"""


def tolerant(minimum: str | None = "10000", seconds: str | None = "3600", value: int = 8000) -> PriorityClass:
    annotations = {}
    if minimum is not None:
        annotations[MINIMUM_PRIORITY] = minimum
    if seconds is not None:
        annotations[TOLERATION_SECONDS] = seconds
    made = make_priority_class("tolerant", value)
    return PriorityClass(
        metadata=type(made.metadata)(name="tolerant", uid="u", annotations=annotations), value=value
    )


def victim(name: str = "victim", *, ago: float | None = 60, **fields: Any) -> Pod:
    """Scheduled so many seconds ago; None: not reported yet."""
    conditions: tuple[Condition, ...] = ()
    if ago is not None:
        since = datetime.now(UTC) - timedelta(seconds=ago)
        conditions = (Condition(type="PodScheduled", status="True", last_transition_time=since),)
    filled: dict[str, Any] = {"cpu": "3", "node": "n", "priority": 8000, "priority_class_name": "tolerant"}
    return make_pod(name, conditions=conditions, **(filled | fields))


def victims(*objects: Object, priority: int = 9000) -> list[str]:
    plugins: list[type[Plugin]] = [*BUILTIN_PLUGINS, PreemptionToleration]
    core = SchedulingCore(parse_config(CONFIG, catalog=catalog_with(plugins)), plugins=plugins)
    core.load([make_node("n", cpu="4"), *objects])
    decision = core.decide(make_pod("preemptor", cpu="3", priority=priority))
    assert not decision.fits
    assert decision.post_filter is not None
    eviction = decision.post_filter.eviction
    return [] if eviction is None else [pod.name for pod in eviction.victims]


def test_it_passes_the_checks() -> None:
    check_plugin(PreemptionToleration)


def test_a_pod_within_its_toleration_is_spared() -> None:
    assert victims(tolerant(), victim()) == []


def test_a_pod_that_ran_long_enough_is_not() -> None:
    assert victims(tolerant(), victim(ago=4000)) == ["victim"]


def test_a_pod_of_the_minimum_priority_may_preempt_it() -> None:
    assert victims(tolerant(), victim(), priority=10000) == ["victim"]
    assert victims(tolerant(), victim(), priority=9999) == []


def test_negative_seconds_are_for_ever() -> None:
    assert victims(tolerant(seconds="-1"), victim(ago=10**6)) == []


def test_without_seconds_nothing_is_tolerated() -> None:
    assert victims(tolerant(seconds=None), victim()) == ["victim"]


def test_without_a_minimum_every_higher_priority_may_preempt() -> None:
    assert victims(tolerant(minimum=None), victim()) == ["victim"]


def test_a_pod_that_was_just_assigned_is_spared() -> None:
    assert victims(tolerant(), victim(ago=None)) == []


@pytest.mark.parametrize("annotations", [{"minimum": "much"}, {"seconds": "1h"}, {"minimum": "99999999999"}])
def test_an_invalid_policy_tolerates_nothing(annotations: dict[str, Any]) -> None:
    assert policy_of(tolerant(**annotations)) is None
    assert victims(tolerant(**annotations), victim()) == ["victim"]


def test_pods_without_class_are_preempted_as_by_default() -> None:
    assert victims(victim(priority_class_name="")) == ["victim"]
    assert victims(victim(priority_class_name="unknown")) == ["victim"]


def test_only_the_others_are_evicted() -> None:
    spared = victim("spared", cpu="1")
    found = victims(tolerant(), spared, victim("victim", priority_class_name="", cpu="2"))
    assert found == ["victim"]


def test_higher_priorities_are_never_victims() -> None:
    assert victims(victim(priority=9000, priority_class_name="")) == []


def test_the_policy_of_a_class() -> None:
    assert policy_of(tolerant()) == Policy(10000, 3600)
    assert policy_of(tolerant(minimum=None, seconds=None)) == Policy(8001, 0)


def test_a_limited_number_of_candidates_is_evaluated() -> None:
    """The arguments are those of DefaultPreemption, and so is their effect."""
    config = (
        CONFIG
        + """
  pluginConfig:
  - name: PreemptionToleration
    args: {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 1}
"""
    )
    plugins: list[type[Plugin]] = [*BUILTIN_PLUGINS, PreemptionToleration]
    core = SchedulingCore(parse_config(config, catalog=catalog_with(plugins)), plugins=plugins)
    core.load([make_node(f"n{i}", cpu="4") for i in range(4)])
    core.load([make_pod(f"victim-{i}", cpu="3", node=f"n{i}", priority=i) for i in range(4)])
    chosen = {core.decide(make_pod("preemptor", cpu="3", priority=9000)).nomination for _ in range(12)}
    # Were all candidates evaluated, it would always be n0, where the victim is least important.
    assert len(chosen) > 1
