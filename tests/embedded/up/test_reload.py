"""`--reload`: an edited plugin replaces the old one, unless it does not load."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.documents import Document
from bayplan.cli.options import SchedulerOptions
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.embedded.up.watched_files import WatchedPlugins

PLUGIN = """
from bayplan.plugin import NodePlugin, unschedulable

class Pick(NodePlugin):
    def filter_node(self, state, pod, node):
        return None if node.name == "{node}" else unschedulable("not this one")
"""


def _pod(name: str) -> Document:
    container = {"name": "c", "image": "web", "resources": {"requests": {"cpu": "1m"}}}
    content: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return Document({**content, "spec": {"containers": [container]}}, "file", 1)


def test_an_edited_plugin_is_used_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "pick.py"
    options = SchedulerOptions(plugin_specs=[f"{file}:Pick"])

    async def scenario() -> dict[str, str]:
        file.write_text(PLUGIN.format(node="n01"))
        watched = WatchedPlugins([file], partial(options.load, fresh=True))
        config, plugins = options.load()
        settings = LocalSettings(nodes=3, config=config, plugins=plugins)
        async with LocalCluster(settings, Outcomes()) as cluster, asyncio.timeout(20):
            first = cluster.scheduler
            await cluster.apply([_pod("a")])
            await cluster.idle()
            watched.check(cluster.use_plugins)
            assert cluster.scheduler is first, "nothing has changed"
            file.write_text(PLUGIN.format(node="n02"))
            watched.check(cluster.use_plugins)
            await cluster.apply([_pod("b")])
            await cluster.idle()
            for broken in ("class Pick(", "Pick = 7", PLUGIN.replace("Pick", "Other")):
                file.write_text(broken)
                watched.check(cluster.use_plugins)
            await cluster.apply([_pod("c")])
            await cluster.idle()
            file.write_text(PLUGIN.format(node="n03"))
            watched.check(cluster.use_plugins)
            await cluster.apply([_pod("d")])
            await cluster.idle()
            return {pod.name: pod.spec.node_name for pod in cluster.pods()}

    with caplog.at_level(logging.WARNING):
        nodes = asyncio.run(scenario())
    assert nodes == {"a": "n01", "b": "n02", "c": "n02", "d": "n03"}
    kept = [message for message in caplog.messages if "is kept as it was" in message]
    assert len(kept) == 3
    assert "pick.py: the plugin is kept as it was: " in kept[0]
    assert "SyntaxError" in kept[0]
    assert sum("pick.py: the plugin was loaded again" in message for message in caplog.messages) == 2


def test_pods_that_wait_are_not_lost(tmp_path: Path) -> None:
    """A pod that waits at Permit of the old plugin is scheduled by the new one."""
    file = tmp_path / "wait.py"
    head = "from bayplan.plugin import Plugin, Wait"
    waits = f"{head}\n\nclass Hold(Plugin):\n    def permit(self, *_):\n        return "
    options = SchedulerOptions(plugin_specs=[f"{file}:Hold"])

    async def scenario() -> list[str]:
        file.write_text(f"{waits}Wait(600)\n")
        watched = WatchedPlugins([file], partial(options.load, fresh=True))
        config, plugins = options.load()
        settings = LocalSettings(nodes=1, config=config, plugins=plugins)
        async with LocalCluster(settings, Outcomes()) as cluster, asyncio.timeout(20):
            await cluster.apply([_pod("a")])
            assert cluster.scheduler is not None
            while not len(cluster.scheduler.context.waiting):
                await asyncio.sleep(0.01)
            file.write_text(f"{waits}None\n")
            watched.check(cluster.use_plugins)
            await cluster.idle()
            return [pod.spec.node_name for pod in cluster.pods()]

    assert asyncio.run(scenario()) == ["n01"]
