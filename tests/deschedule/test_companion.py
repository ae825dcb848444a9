"""`bayplan run --deschedule`: one process schedules and deschedules, on the cluster of `bayplan up`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.deschedule.companion import Companion
from bayplan.embedded.server.kinds import DEPLOYMENTS, NODES, PODS
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.errors import BayplanError
from tests.process.running import ALONE, Run, play, started

POLICY: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha2",
    "profiles": [
        {
            "name": "p",
            "pluginConfig": [{"name": "RemovePodsViolatingNodeTaints"}],
            "plugins": {"deschedule": {"enabled": ["RemovePodsViolatingNodeTaints"]}},
        }
    ],
}
SETTINGS = {
    "apiVersion": "bayplan/v1",
    "kind": "BayplanConfiguration",
    "deschedule": {"interval": "1s", "evictionsPerMinute": 6000, "replacementTimeout": "20s"},
}
WEB: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
        },
    },
}


def nodes_of(api: ObjectAPI) -> dict[str, str]:
    """The nodes of pods that are not being deleted."""
    pods = (one for one in api.list(PODS, "default") if "deletionTimestamp" not in one["metadata"])
    return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}


def taint(api: ObjectAPI, name: str) -> None:
    node = api.get(NODES, name)
    spec = {**node["spec"], "taints": [{"key": "maintenance", "effect": "NoSchedule"}]}
    api.update(NODES, {**node, "spec": spec})


async def placed(api: ObjectAPI, run: Run, avoided: set[str]) -> None:
    """Waits until two pods have nodes that are not avoided."""
    async with asyncio.timeout(60):
        while True:
            found = [node for node in nodes_of(api).values() if node and node not in avoided]
            if len(found) == 2:
                return
            assert run.process.returncode is None, run.log
            await asyncio.sleep(0.05)


def test_a_policy_that_is_wrong_ends_the_start(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps(POLICY).replace("NodeTaints", "NodeTints"))
    with pytest.raises(BayplanError, match="RemovePodsViolatingNodeTints"):
        Companion(str(policy))


def test_pods_are_scheduled_and_moved_by_one_process(tmp_path: Path) -> None:
    """A node gets a taint; its pod goes to the node of the plan, to which it was nominated."""
    policy, settings, kubeconfig = (tmp_path / name for name in ("policy", "settings", "kubeconfig"))
    policy.write_text(json.dumps(POLICY))
    settings.write_text(json.dumps(SETTINGS))

    async def act() -> tuple[dict[str, str], str, str]:
        async with LocalCluster(LocalSettings(nodes=3, schedules=False), Outcomes()) as cluster:
            cluster.server.write_kubeconfig(kubeconfig)
            api = cluster.server.api
            api.create(DEPLOYMENTS, WEB, "default")
            flags = (f"--kubeconfig={kubeconfig}", f"--bayplan-config={settings}", f"--deschedule={policy}")
            async with started(*ALONE, *flags, "-v=0") as run:
                await placed(api, run, set())
                victim = next(iter(nodes_of(api).values()))
                taint(api, victim)
                await run.wait_for_log("Descheduled pod")
                await placed(api, run, {victim})
                return nodes_of(api), victim, run.log

    nodes, victim, log = play(act())
    assert len(nodes) == 2
    assert victim not in nodes.values()
    assert 'outcome="moved"' in log
    assert "elsewhere" not in log
