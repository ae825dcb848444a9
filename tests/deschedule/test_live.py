"""Descheduling the cluster of `bayplan up`: its API server, controllers and scheduler."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.cli.main import main
from bayplan.client.kubeconfig import load_access
from bayplan.client.leader_election import ElectionSettings
from bayplan.config import DescheduleConfiguration
from bayplan.deschedule.executing import Outcome, Step
from bayplan.deschedule.plan import Plan
from bayplan.deschedule.process import RunOptions, run_descheduler
from bayplan.deschedule.times import Times
from bayplan.embedded.server.kinds import PODS
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.framework.args import Duration
from tests.deschedule.situations import descheduler

POLICY = {
    "apiVersion": "descheduler/v1alpha2",
    "profiles": [
        {
            "name": "p",
            "pluginConfig": [{"name": "PodLifeTime", "args": {"states": ["Running"]}}],
            "plugins": {"deschedule": {"enabled": ["PodLifeTime"]}},
        }
    ],
    "metricsProviders": [{"source": "KubernetesMetrics"}],
}
OWNED = {
    "metadata": {
        "name": "p",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Custom", "name": "o", "uid": "u", "controller": True},
        ],
    },
    "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
}


def test_a_live_cluster_is_planned_and_descheduled(tmp_path: Path) -> None:
    """A plan of the commands, and a cycle of the process while it leads."""
    kubeconfig, policy = tmp_path / "kubeconfig", tmp_path / "policy.json"
    policy.write_text(json.dumps(POLICY))
    plans: list[Plan] = []
    steps: list[Step] = []

    async def scenario() -> None:
        async with LocalCluster(LocalSettings(nodes=2), Outcomes()) as cluster:
            cluster.server.write_kubeconfig(kubeconfig)
            cluster.server.api.create(PODS, OWNED, "default")
            await cluster.idle()
            flags = ["--policy", str(policy), "--kubeconfig", str(kubeconfig)]
            assert await asyncio.to_thread(main, ["deschedule", "plan", *flags, "-o", "json"]) in (0, 1)
            source = SourceOptions(kubeconfig=str(kubeconfig))
            options = RunOptions(
                load_access(str(kubeconfig)),
                await asyncio.to_thread(load_cluster, source),
                Times(),
                False,
                ElectionSettings(name="bayplan-descheduler"),
                ("kube-system", "bayplan-descheduler"),
                ("127.0.0.1", 0),
            )
            settings = DescheduleConfiguration(
                evictions_per_minute=6000, replacement_timeout=Duration.of(seconds=1)
            )
            made = descheduler({"PodLifeTime": {"states": ["Running"]}})
            await run_descheduler(options, made, settings, plans.append, steps.append)

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert [len(one.moves) for one in plans] == [1]
    assert [one.outcome for one in steps] == [Outcome.WAITING]
