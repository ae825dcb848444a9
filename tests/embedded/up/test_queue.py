"""`bayplan explain pod` on the cluster of `bayplan up`: it prints the position of the pod in the queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.sources.live import read_position
from bayplan.cli.main import main
from bayplan.client.access import Access
from bayplan.client.kubeconfig import load_access
from bayplan.embedded.server.kinds import PODS
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.errors import APIError, UnauthorizedError


def pod(name: str, cpu: str, **spec: object) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


HUGE = pod("huge", "999")
GATED = pod("gated", "1", schedulingGates=[{"name": "example.com/wait"}])


def on_cluster(
    kubeconfig: Path, act: Callable[[LocalCluster], Awaitable[None]], *, schedules: bool = True
) -> None:
    """Does something while a cluster has pods that are not scheduled."""

    async def scenario() -> None:
        async with LocalCluster(LocalSettings(nodes=1, schedules=schedules), Outcomes()) as cluster:
            cluster.server.write_kubeconfig(kubeconfig)
            for one in (HUGE, GATED):
                cluster.server.api.create(PODS, one, "default")
            await cluster.idle()
            await act(cluster)

    asyncio.run(scenario())


async def explain(kubeconfig: Path, name: str, *options: str) -> int:
    command = ["explain", "pod", name, "--kubeconfig", str(kubeconfig), *options]
    return await asyncio.to_thread(main, command)


def test_position_in_the_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"

    async def act(_: LocalCluster) -> None:
        assert await explain(kubeconfig, "huge") == 0
        shown = capsys.readouterr().out
        assert "queue: unschedulable, after 1 attempt, because of NodeResourcesFit, for " in shown
        assert await explain(kubeconfig, "huge", "-o", "json") == 0
        queue = json.loads(capsys.readouterr().out)["queue"]
        assert (queue["visible"], queue["state"], queue["attempts"]) == (True, "unschedulable", 1)
        assert await explain(kubeconfig, "gated") == 0
        shown = capsys.readouterr().out
        assert "default/gated is not evaluated: it is gated by SchedulingGates" in shown
        assert "queue: gated, because of SchedulingGates, for " in shown

    on_cluster(kubeconfig, act)


def test_without_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"

    async def act(_: LocalCluster) -> None:
        assert await explain(kubeconfig, "huge") == 0
        assert "queue: the position in the scheduler's queue cannot be seen" in capsys.readouterr().out

    on_cluster(kubeconfig, act, schedules=False)


def test_requests(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"

    async def act(_: LocalCluster) -> None:
        access: Access = load_access(str(kubeconfig))
        assert (await read_position(access, "default/none"))["state"] == "Absent"
        with pytest.raises(UnauthorizedError):
            await read_position(replace(access, token="wrong"), "default/huge")
        with pytest.raises(APIError, match="pass \\?pod=NAMESPACE/NAME"):
            await read_position(access, "huge")

    on_cluster(kubeconfig, act)
