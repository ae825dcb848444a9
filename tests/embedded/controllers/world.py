"""A small cluster in virtual time for tests of controllers: the real API on a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from bayplan.api.meta import Content
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.embedded import controllers, kubelets
from bayplan.embedded.server import subresources
from bayplan.embedded.server.documents import HISTORY
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import EVENTS, NODES, PODS, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual

NAMESPACE = "default"


class World:
    """What a test sees and does. `run_until_idle` runs all tasks until none has work at this moment."""

    def __init__(self, api: ObjectAPI, *, binds: bool = True) -> None:
        self.api = api
        self._binds = binds

    async def run_until_idle(self) -> None:
        """Until nothing happens any more without time passing; pods are bound meanwhile."""
        while True:
            await quiescent()
            if not self._binds or not self.bind_all():
                return

    async def after(self, seconds: float) -> None:
        """Time passes."""
        end = current_loop().time() + seconds
        while (left := end - current_loop().time()) > 0:
            await asyncio.sleep(min(left, max(1.0, seconds / 100)))
            await self.run_until_idle()

    def bind_all(self) -> int:
        """A scheduler of the simplest kind: the emptiest node without taints, or the one that is named."""
        waiting: list[Content] = []
        load = {node["metadata"]["name"]: 0 for node in self.api.list(NODES)}
        tainted = {node["metadata"]["name"] for node in self.api.list(NODES) if node["spec"].get("taints")}
        for pod in self.api.list(PODS):
            if node_name := pod["spec"].get("nodeName"):
                load[node_name] = load.get(node_name, 0) + 1
            elif "deletionTimestamp" not in pod["metadata"] and not pod["spec"].get("schedulingGates"):
                waiting.append(pod)
        bound = 0
        for pod in waiting:
            named = _named_node(pod)
            fitting = [name for name in load if name == named or (named is None and name not in tainted)]
            if fitting:
                node = min(fitting, key=lambda name: (load[name], name))
                load[node] += 1
                subresources.bind(self.api, pod["metadata"]["name"], pod["metadata"]["namespace"], node)
                bound += 1
        return bound

    # Short names for what tests do all the time

    def create(self, resource: Resource, name: str, spec: Content | None = None, **meta: Any) -> Content:
        content: Content = {"metadata": {"name": name, **meta}}
        if spec is not None:
            content["spec"] = spec
        return self.api.create(resource, content, NAMESPACE if resource.namespaced else "")

    def get(self, resource: Resource, name: str, namespace: str = NAMESPACE) -> Content:
        return self.api.get(resource, name, namespace if resource.namespaced else "")

    def change(self, resource: Resource, name: str, **change: Any) -> Content:
        return self.api.patch(resource, name, NAMESPACE if resource.namespaced else "", change)

    def names(self, resource: Resource, namespace: str = "") -> list[str]:
        return [found["metadata"]["name"] for found in self.api.list(resource, namespace)]

    def pods(self, **labels: str) -> list[Content]:
        """Pods that are not being deleted and have these labels, by name."""
        return [
            pod
            for pod in self.api.list(PODS, NAMESPACE)
            if "deletionTimestamp" not in pod["metadata"]
            and all((pod["metadata"].get("labels") or {}).get(key) == text for key, text in labels.items())
        ]

    def events(self, about: str, reason: str = "") -> list[str]:
        """The events of an object, oldest first."""
        found = [event for event in self.api.list(EVENTS) if event["involvedObject"]["name"] == about]
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [event["message"] for event in found if reason in ("", event["reason"])]


def _named_node(pod: Content) -> str | None:
    """The node that a DaemonSet's pod names in its affinity."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return None


def template(app: str = "web", **pod_spec: Any) -> Content:
    spec = {"containers": [{"name": "main", "image": "registry.example/app:1"}], **pod_spec}
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


def workload(app: str = "web", **spec: Any) -> Content:
    """The spec of something with a selector and a template."""
    return {"selector": {"matchLabels": {"app": app}}, "template": template(app), **spec}


def make_api(history: int = HISTORY, release: Release = DEFAULT_RELEASE) -> ObjectAPI:
    return open_api(clock=current_loop().wall_time, seed=1, history=history, release=release)


@asynccontextmanager
async def running_world(
    nodes: int | Iterable[Content] = 3,
    *,
    binds: bool = True,
    stop_seconds: float = kubelets.DEFAULT_STOP_SECONDS,
    release: Release = DEFAULT_RELEASE,
) -> AsyncIterator[World]:
    """All controllers and kubelets on a new cluster."""
    api = make_api(release=release)
    for node in kubelets.make_nodes(nodes) if isinstance(nodes, int) else nodes:
        api.create(NODES, node)
    tasks = [
        asyncio.create_task(controllers.run_all(api), name="controllers"),
        asyncio.create_task(kubelets.run(api, stop_seconds=stop_seconds), name="kubelets"),
    ]
    try:
        yield World(api, binds=binds)
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def in_world(
    test: Callable[[World], Awaitable[None]],
    nodes: int | Iterable[Content] = 3,
    *,
    stop_seconds: float = kubelets.DEFAULT_STOP_SECONDS,
    release: Release = DEFAULT_RELEASE,
) -> None:
    """Runs a test on a new cluster, in virtual time."""

    async def main() -> None:
        async with running_world(nodes, stop_seconds=stop_seconds, release=release) as world:
            await world.run_until_idle()
            await test(world)

    run_virtual(main())
