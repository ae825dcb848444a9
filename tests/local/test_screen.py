"""What a terminal shows of a cluster."""

from __future__ import annotations

import asyncio
from io import StringIO

import pytest
from rich.console import Console

from bayplan.local.cluster import Census, LocalCluster, LocalSettings
from bayplan.local.decisions import Decisions, Line
from bayplan.local.screen import Screen, in_a_line, in_numbers
from bayplan.server.kinds import PODS


@pytest.mark.parametrize(
    ("census", "text"),
    [
        pytest.param(Census(), "0 nodes · pods: none", id="nothing"),
        pytest.param(Census(nodes=1, ready_nodes=1, running=2), "1 node · pods: 2 running", id="one node"),
        pytest.param(
            Census(nodes=1200, ready_nodes=1199, waiting=3, ending=1, finished=4000),
            "1,200 nodes (1,199 ready) · pods: 3 waiting, 1 ending, 4,000 finished",
            id="everything",
        ),
    ],
)
def test_a_cluster_in_numbers(census: Census, text: str) -> None:
    assert in_numbers(census) == text


def test_a_decision_in_a_line() -> None:
    assert in_a_line(Line("a/b", "", "why")).split() == ["a/b", "–", "why"]


def test_the_live_view() -> None:
    async def scenario() -> str:
        decisions = Decisions()
        async with LocalCluster(LocalSettings(nodes=2), decisions) as cluster:
            content = {
                "metadata": {"name": "web"},
                "spec": {"containers": [{"name": "c", "image": "web"}]},
            }
            cluster.server.api.create(PODS, content, "default")
            requests = {"requests": {"cpu": "64"}}
            huge = {
                "metadata": {"name": "huge"},
                "spec": {"containers": [{"name": "c", "image": "web", "resources": requests}]},
            }
            cluster.server.api.create(PODS, huge, "default")
            await cluster.at_rest()
            console = Console(width=100, height=30, record=True, file=StringIO())
            console.print(Screen(console, cluster, decisions, "./bayplan.kubeconfig").view())
            return console.export_text()

    text = asyncio.run(scenario())
    assert "2 nodes · pods: 1 running, 1 waiting · decisions: 1 placed, 1 times no" in text
    assert "default/web   n01   best of 2 that fit" in text
    assert "default/huge  –     2 Insufficient cpu." in text
    assert "kubectl --kubeconfig ./bayplan.kubeconfig get pods -A -o wide" in text
