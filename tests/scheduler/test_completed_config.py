"""A configuration with every default spelled out decides like the configuration it was made from.

`bayplan config show FILE > full.yaml` shows what a configuration means; using the result
must not change a single decision.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.config import (
    KubeSchedulerConfiguration,
    ProfilePlan,
    build_profiles,
    completed,
    default_config,
    parse_config,
    to_yaml,
)
from bayplan.plugin import PluginArgs
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import make_node, make_pod

CONFIGS = Path(__file__).parents[2] / "conformance" / "configs" / "configs.jsonl.gz"
NODES = 130
"""Above 100, below which neither nodes nor candidates for preemption are sampled."""

CHEAPEST = 90
ATTEMPTS = 2
"""Each begins its search for candidates at another random node."""


@cache
def _valid() -> tuple[str, ...]:
    with gzip.open(CONFIGS, "rt", encoding="utf-8") as lines:
        cases: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return tuple(case["config"] for case in cases if "result" in case)


@cache
def _nodes() -> tuple[Node, ...]:
    return tuple(
        make_node(f"n{i:03}", cpu="4", memory="8Gi", labels={"zone": f"z{i % 3}"}) for i in range(NODES)
    )


@cache
def _running() -> tuple[Pod, ...]:
    """Every node is full, and one of them is the cheapest to preempt on: a search may stop before it."""
    return tuple(
        make_pod(
            f"old-{i}",
            cpu="4",
            memory="1Gi",
            priority=(i - CHEAPEST) % NODES,
            labels={"app": "old"},
            node=f"n{i:03}",
        )
        for i in range(NODES)
    )


def _decisions(config: KubeSchedulerConfiguration) -> list[tuple[str, str, str]]:
    """The outcomes for a pod that fits and for some that have to preempt, for each profile."""
    core = SchedulingCore(config)
    core.load([*_nodes(), *_running()])
    outcomes = []
    for name in core.frameworks:
        small = make_pod("small", scheduler_name=name, labels={"app": "new"})
        urgent = make_pod("urgent", cpu="2", priority=1000, scheduler_name=name)
        for pod in (small, *[urgent] * ATTEMPTS):
            decision = core.decide(pod)
            after = decision.post_filter
            nominated = (
                after.nomination.node_name if after is not None and after.nomination is not None else ""
            )
            outcomes.append((decision.node_name if decision.found else "", nominated, decision.message))
    return outcomes


def _plans(config: KubeSchedulerConfiguration) -> list[ProfilePlan]:
    """What each profile runs. Arguments as they are written: an empty list and none mean the same."""
    return [
        replace(plan, args={name: _written(args) for name, args in plan.args.items()})
        for plan in build_profiles(config)
    ]


def _written(args: object) -> object:
    return args.to_wire() if isinstance(args, PluginArgs) else args


def test_the_defaults() -> None:
    again = parse_config(to_yaml(completed(default_config())))
    assert _decisions(again) == _decisions(default_config())


@pytest.mark.parametrize("part", range(4))
def test_every_recorded_configuration(part: int) -> None:
    """Plans are equal in every argument and weight, and so are decisions."""
    different = []
    for text in _valid()[part::4]:
        config = parse_config(text)
        again = parse_config(to_yaml(completed(config)))
        if _plans(again) != _plans(config) or _decisions(again) != _decisions(config):
            different.append(text)
    assert different == []


def test_the_cluster_shows_whether_candidates_are_sampled() -> None:
    """Otherwise the comparison above could not fail."""
    sampled = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 9}
"""
    assert _decisions(parse_config(sampled)) != _decisions(default_config())
