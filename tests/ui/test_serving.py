"""The page of an embedded cluster on the API server's port, and the cluster read through its kubeconfig."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client.kubeconfig import load_access
from bayplan.embedded.server.kinds import PODS
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.ui.questions import Subject
from bayplan.ui.serving import PageOfCluster, live_hub


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "example.com/c", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def test_without_a_viewer_nothing_of_the_page_is_called() -> None:
    """While pods are scheduled, no function of the page or of its history runs."""
    called: Counter[str] = Counter()

    def count(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            called[frame.f_globals.get("__name__", "")] += 1

    async def main() -> None:
        page = PageOfCluster()
        settings = LocalSettings(nodes=2, plain=page.plain)
        async with LocalCluster(settings, Outcomes()) as cluster:
            page.attach(cluster, settings, "test")
            sys.setprofile(count)
            try:
                for number in range(5):
                    cluster.server.api.create(PODS, pod(f"web-{number}", "1"), "default")
                while cluster.census().pending:
                    await asyncio.sleep(0.01)
            finally:
                sys.setprofile(None)

    asyncio.run(main())
    assert called["bayplan.scheduler.cycle"] >= 5
    assert [name for name in called if name.startswith(("bayplan.ui", "bayplan.process.history"))] == []


def test_the_page_of_an_embedded_cluster(tmp_path: Path) -> None:
    async def main() -> None:
        page = PageOfCluster()
        settings = LocalSettings(nodes=2, plain=page.plain)
        async with LocalCluster(settings, Outcomes()) as cluster:
            root = f"http://127.0.0.1:{cluster.server.port}"
            jar = aiohttp.CookieJar(unsafe=True)
            async with aiohttp.ClientSession(cookie_jar=jar) as session:
                async with session.get(f"{root}/ui/") as response:
                    assert response.status == 503
                hub = page.attach(cluster, settings, "test")
                assert cluster.scheduler is not None
                before = cluster.scheduler.context.observers
                async with session.get(page.link()) as response:
                    assert response.status == 200

                async def get(path: str) -> Any:
                    async with session.get(f"{root}/ui/api/v1/{path}") as response:
                        assert response.status == 200, await response.text()
                        return await response.json()

                assert cluster.scheduler.context.observers == before, "nobody looks yet"
                assert len((await get("cluster"))["nodes"]["name"]) == 2
                assert cluster.scheduler.context.observers != before
                api = cluster.server.api
                api.create(PODS, pod("web", "1"), "default")
                api.create(PODS, pod("huge", "900"), "default")
                api.create(PODS, pod("gated", "1", schedulingGates=[{"name": "g"}]), "default")
                await cluster.idle()
                queue = await get("queue")
                assert queue["exact"] is True
                found = {one["workload"]: (one["state"], one["plugins"]) for one in queue["groups"]}
                assert found["Pod huge"][1] == ["NodeResourcesFit"]
                assert found["Pod gated"] == ("gated", ["SchedulingGates"])
                decisions = (await get("decisions?q=web"))["decisions"]
                one = await get(f"decisions/{decisions[0]['seq']}")
                assert one["explanation"]["funnel"] == []
                await hub.close()
                assert cluster.scheduler.context.observers == before
                # The API server itself is not served without TLS.
                async with session.get(f"{root}/api/v1/nodes") as response:
                    assert response.status == 404
            kubeconfig = tmp_path / "kubeconfig"
            cluster.server.write_kubeconfig(kubeconfig)
            live = live_hub(load_access(str(kubeconfig)), [Node, Pod], Subject("live", "live"))
            async with live.viewing():
                api.create(PODS, pod("later", "1"), "default")
                for _ in range(200):
                    if any(one.pod == "default/later" for one in live.history.attempts()):
                        break
                    await asyncio.sleep(0.05)
                attempt = next(one for one in live.history.attempts() if one.pod == "default/later")
                assert (attempt.result, attempt.observed) == ("scheduled", True)
            await live.close()

    asyncio.run(main())
