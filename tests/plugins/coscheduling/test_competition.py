"""Several groups compete; and the configuration of Coscheduling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.errors import ConfigError
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.coscheduling import (
    MAX_BACKOFF_SECONDS,
    Coscheduling,
)
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.simulate.virtual_time import quiescent
from bayplan.testing.builders import make_node

from .gangs import after, gangs, make_group, make_member, make_members, make_without_claim, virtual


@virtual
async def test_two_groups_that_hold_half_each() -> None:
    """Their pods take turns, so that both get three of the six places: the older one is completed first."""
    async with gangs(make_node("n", cpu=6), make_group("old", 4)) as cluster:
        await after(1)
        cluster.add(make_group("young", 4))
        for number in range(4):
            cluster.add(make_member(number, "old"), make_member(number, "young"))
        await quiescent()
        assert (cluster.bound("old"), cluster.bound("young"), cluster.held) == (4, 0, 0)
        cluster.add(make_node("m"))
        await after(2 * MAX_BACKOFF_SECONDS)
        assert cluster.bound("young") == 4


@virtual
async def test_the_older_group_waits_for_the_younger_one_to_leave() -> None:
    """Where nominations are written slowly, places that were given back are not free at once."""
    async with gangs(make_node("n", cpu=6), make_group("old", 5)) as cluster:
        await after(1)
        cluster.add(make_group("young", 4))
        cluster.announcing = {f"young-{number}": 10 for number in range(4)}
        for number in range(5):
            cluster.add(make_member(number, "old"), make_member(number, "young"))
        await after(9)
        assert (cluster.bound("old"), cluster.bound("young"), cluster.held) == (0, 0, 6)
        await after(2)
        assert (cluster.bound("old"), cluster.bound("young")) == (5, 0)


@virtual
async def test_priority_comes_before_age() -> None:
    async with gangs(make_node("n", cpu=6), make_group("old", 4)) as cluster:
        await after(1)
        cluster.add(make_group("urgent", 4))
        members = [make_members(4, "old", priority=1), make_members(4, "urgent", priority=2)]
        cluster.add(*(pod for both in zip(*members, strict=True) for pod in both))
        await quiescent()
        assert (cluster.bound("old"), cluster.bound("urgent")) == (0, 4)


@virtual
async def test_a_large_old_group_does_not_starve_a_small_young_one() -> None:
    async with gangs(make_node("n", cpu=6), make_group("old", 8)) as cluster:
        await after(1)
        cluster.add(make_group("young", 4))
        for number in range(8):
            cluster.add(make_member(number, "old"))
            if number < 4:
                cluster.add(make_member(number, "young"))
        await after(5)
        assert (cluster.bound("old"), cluster.bound("young")) == (0, 4)


@virtual
async def test_many_groups_in_little_room() -> None:
    """Twenty groups of five, room for four at a time: all get their turn as others end."""
    async with gangs(make_node("n", cpu=20, pods=200)) as cluster:
        for number in range(20):
            cluster.add(make_group(f"g{number}", 5))
        for number in range(5):
            cluster.add(*(make_member(number, f"g{group}") for group in range(20)))
        await quiescent()
        ended = set()
        for _ in range(20):
            for group in range(20):
                bound = cluster.bound(f"g{group}")
                assert bound in (0, 5)
                if bound:
                    ended.add(group)
                    for number in range(5):
                        cluster.remove(f"g{group}-{number}")
            await after(40)
        assert len(ended) == 20


@virtual
async def test_groups_that_fit_cost_an_attempt_a_pod() -> None:
    async with gangs(*(make_node(f"n{i}", cpu=64, pods=200) for i in range(10))) as cluster:
        cluster.add(*(make_group(f"g{number}", 50) for number in range(10)))
        cluster.add(*(pod for number in range(10) for pod in make_members(50, f"g{number}")))
        await quiescent()
        assert cluster.attempts == 500
        assert all(pod.spec.node_name for pod in cluster.store.list(Pod))
        assert len(cluster.store.list(Node)) == 10


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: Coscheduling
    args:
      permitWaitingTimeSeconds: {seconds}
"""


def make_config(seconds: int) -> KubeSchedulerConfiguration:
    return parse_config(CONFIG.format(seconds=seconds), catalog=catalog_with([Coscheduling]))


def test_an_argument_out_of_range() -> None:
    with pytest.raises(ConfigError, match="permitWaitingTimeSeconds: Invalid value: 0: must be greater"):
        SchedulingCore(make_config(0), plugins=[*BUILTIN_PLUGINS, Coscheduling])


@virtual
async def test_an_argument_takes_effect() -> None:
    waiting = [*make_members(2), make_without_claim(2)]
    async with gangs(make_node("n"), make_group(), *waiting, config=make_config(5)) as cluster:
        assert cluster.held == 2
        await after(5)
        assert cluster.held == 0


def test_the_example_of_the_docs_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "coscheduling.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(compile(example, "docs/coscheduling.md", "exec"), {"__name__": "documentation"})
