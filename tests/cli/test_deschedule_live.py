"""`bayplan deschedule plan`, `apply` and `run` on a live cluster, one after the other, as a user would."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from bayplan.embedded.server.kinds import DEPLOYMENTS, EVENTS, LEASES, NODES, PODS
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from tests.commands import Ended, bayplan

TAINTS = "RemovePodsViolatingNodeTaints"
POLICY = {
    "apiVersion": "descheduler/v1alpha2",
    "profiles": [
        {
            "name": "p",
            "pluginConfig": [{"name": TAINTS}],
            "plugins": {"deschedule": {"enabled": [TAINTS]}},
        }
    ],
    "gracePeriodSeconds": 0,
}
WEB: dict[str, Any] = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
        },
    },
}


class Live:
    """A cluster of two nodes in another thread, because commands run in the main thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "policy.json").write_text(json.dumps(POLICY))
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, LocalCluster]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._loop, self._stop, self._cluster = self._ready.result(60)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        try:
            async with LocalCluster(LocalSettings(nodes=2), Outcomes()) as cluster:
                cluster.server.write_kubeconfig(self.directory / "kubeconfig")
                cluster.server.api.create(DEPLOYMENTS, WEB, "default")
                await cluster.idle()
                self._ready.set_result((asyncio.get_running_loop(), stop, cluster))
                await stop.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def do(self, action: Callable[[ObjectAPI], Any]) -> Any:
        """Calls a function with the API server's objects, in its thread."""

        async def act() -> Any:
            found = action(self._cluster.server.api)
            await self._cluster.idle()
            return found

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(60)

    def pod(self) -> tuple[str, str]:
        """The name of the only pod, and its node."""
        (pod,) = self.do(lambda api: list(api.list(PODS, "default")))
        return pod["metadata"]["name"], pod["spec"]["nodeName"]

    def taint(self, name: str) -> None:
        """Gives a taint to this node only."""

        def write(api: ObjectAPI) -> None:
            for node in list(api.list(NODES)):
                taints = [{"key": "maintenance", "effect": "NoSchedule"}]
                here = node["metadata"]["name"] == name
                api.update(NODES, {**node, "spec": {**node["spec"], "taints": taints if here else []}})

        self.do(write)

    def run(self, command: str, *arguments: str) -> Ended:
        flags = ["--kubeconfig", "kubeconfig"]
        if command != "plan":
            flags += ["--evictions-per-minute", "6000"]
        return bayplan("deschedule", command, *arguments, *flags, directory=self.directory)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    found = Live(tmp_path)
    yield found
    found.close()


@pytest.mark.long
def test_a_plan_is_made_and_applied_once(live: Live) -> None:
    name, source = live.pod()
    live.taint(source)
    target = "n02" if source == "n01" else "n01"
    planned = live.run("plan", "--policy", "policy.json", "-o", "json")
    assert planned.status == 1
    assert [(one["pod"], one["to"]) for one in json.loads(planned.stdout)["moves"]] == [
        (f"default/{name}", target)
    ]
    (live.directory / "plan.json").write_bytes(planned.output)
    asked = live.run("apply", "plan.json")
    assert (asked.status, asked.stderr) == (
        2,
        "error: this evicts pods: pass --yes, or confirm it on a terminal\n",
    )
    applied = live.run("apply", "plan.json", "--yes")
    assert applied.stdout == f"moved     default/{name}  {source} → {target}\n1 of 1 move made\n"
    assert (applied.status, live.pod()[1]) == (0, target)
    again = live.run("apply", "plan.json", "--yes")
    assert again.stdout == (
        f"skipped   default/{name}  {source} → {target}: the pod is gone\n0 of 1 move made\n"
    )
    assert again.status == 1


@pytest.mark.long
def test_a_cycle_moves_pods_unless_it_is_paused(live: Live) -> None:
    name, source = live.pod()
    live.taint(source)
    flags = ("--policy", "policy.json")
    dry = live.run("run", *flags, "--dry-run")
    assert "1 move; descheduler would evict 1 pod\nplanned   default/" in dry.stdout
    lease = {
        "metadata": {
            "name": "bayplan-descheduler",
            "annotations": {"bayplan.dev/deschedule-paused": "true"},
        }
    }
    live.do(lambda api: api.create(LEASES, lease, "kube-system"))
    assert (live.run("run", *flags).stdout, live.pod()) == ("", (name, source))
    live.do(lambda api: api.delete(LEASES, "bayplan-descheduler", "kube-system"))
    moved = live.run("run", *flags)
    assert f"moved     default/{name}  {source} → " in moved.stdout
    assert moved.status == 0
    assert live.pod()[1] != source
    notes = live.do(lambda api: [one["message"] for one in api.list(EVENTS) if one.get("reason") == TAINTS])
    assert notes == [f"pod eviction from {source} node by sigs.k8s.io/descheduler"]


def test_by_upstream_s_rules_pods_are_evicted_without_a_plan(live: Live) -> None:
    name, source = live.pod()
    live.taint(source)
    ended = live.run("run", "--policy", "policy.json", "--decision", "upstream")
    assert (ended.status, ended.stdout) == (0, "")
    assert live.pod()[0] != name
