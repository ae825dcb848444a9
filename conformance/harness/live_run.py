"""A recorded run of kube-scheduler, played again on the real API server with bayplan in its place.

The steps and what is recorded with them are described in `conformance/runs/README.md`. Each step is taken
when the one before has had its full effect. Only the scheduler has its progress; so it
runs in this process, with its own client, and the test reads the versions that it has handled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol

from bayplan.api.kinds import KINDS
from bayplan.api.pod import Pod
from bayplan.api.releases import parse_release
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.config import parse_config
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.scheduler.recorder import EventOutput
from bayplan.simulate.checksum_extender import ChecksumExtenders
from bayplan.simulate.replay import RECORDED_PORT
from conformance.harness.admin import Admin, Raw, path_of
from conformance.harness.clients import until
from conformance.harness.control_plane import ADMIN, KUBE_SCHEDULER
from conformance.harness.objects import condition
from conformance.harness.programs import DEFAULT_RELEASE

CLEARED = ("Pod", "Node", "Service", "PodDisruptionBudget")
"""What runs leave behind."""


class Plane(Protocol):
    """An API server that can be logged in to."""

    def access(self, user: str) -> Access: ...


async def play(plane: Plane, run: Mapping[str, Any]) -> dict[str, Any]:
    """Replays one run on an empty cluster and returns the outcome of each pod."""
    async with (
        Admin(plane.access(ADMIN)) as admin,
        KubernetesCluster(plane.access(KUBE_SCHEDULER), qps=-1) as cluster,
        ChecksumExtenders(run.get("extenders", {}), _binder(admin)) as extenders,
    ):
        text = json.dumps(run["config"]).replace(f":{RECORDED_PORT}/", f":{extenders.port}/")
        config = parse_config(text, f"{run['name']}: config", release=parse_release(DEFAULT_RELEASE))
        player = LivePlayer(admin, extenders if run.get("extenders") else None)
        scheduler = Scheduler(
            cluster,
            config,
            settings=LoopSettings(eager=False),
            events=EventOutput(cluster.events(qps=-1)),
            observers=Observers(decided=player.decided),
        )
        player.scheduler = scheduler
        running = asyncio.ensure_future(scheduler.run())
        try:
            for informer in scheduler.informers:
                await informer.synced.wait()
            return {"name": run["name"], "results": await player.play_all(run)}
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await admin.clear(*CLEARED)


def _binder(admin: Admin) -> Any:
    """What an extender does that binds pods itself."""

    async def bind(namespace: str, name: str, uid: str, node: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        body = {"metadata": {"name": name, "uid": uid}, "target": {"kind": "Node", "name": node}}
        await admin.send("POST", path, body)

    return bind


class LivePlayer:
    """Carries out the steps."""

    scheduler: Scheduler

    def __init__(self, admin: Admin, extenders: ChecksumExtenders | None) -> None:
        self._admin = admin
        self._extenders = extenders
        self._nominations: list[tuple[str, str]] = []

    def decided(self, decision: Decision) -> None:
        if decision.nomination is not None and decision.nomination.node_name:
            self._nominations.append((decision.nomination.node_name, decision.message))

    async def play_all(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        for name, labels in run.get("namespaces", {}).items():
            await self._ensure_namespace(name, labels)
        results = []
        for step in run["steps"]:
            match step["op"]:
                case "create":
                    await self._known(await self._admin.create(step["object"]))
                case "update":
                    await self._update(step["object"])
                case "delete":
                    await self._delete(step["kind"], step["name"], step.get("namespace", ""))
                case "schedule":
                    results.append(await self._schedule(step))
        return results

    async def _ensure_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        current = await self._admin.find("Namespace", name)
        metadata = {"name": name, "labels": dict(labels)}
        wanted = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        if current is None:
            await self._known(await self._admin.create(wanted))
            return
        # The server adds a label with its name, which the run does not have, but no run selects by.
        current["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}
        await self._known(await self._admin.send("PUT", path_of(current), current))

    async def _update(self, item: Raw) -> None:
        """Replaces an object as its owners would: the status has a way of its own."""
        current = await self._admin.get(item["kind"], item["metadata"]["name"])
        version = {"resourceVersion": current["metadata"]["resourceVersion"]}
        written = await self._admin.send(
            "PUT", path_of(item), {**item, "metadata": {**item["metadata"], **version}}
        )
        written["status"] = item["status"]
        await self._known(await self._admin.send("PUT", f"{path_of(item)}/status", written))

    async def _delete(self, kind: str, name: str, namespace: str = "") -> None:
        await self._admin.delete(kind, name, namespace)
        informer = self._informer(kind)
        await until(lambda: informer.get(name, namespace) is None, f"{kind} {name} is known to be gone")

    async def _schedule(self, step: Mapping[str, Any]) -> dict[str, Any]:
        before = {pod.uid: pod.key for pod in self.scheduler.pods.all()}
        if self._extenders is not None:
            self._extenders.filtered.clear()
        self._nominations.clear()
        created = await self._admin.create(as_submitted(step["pod"]))
        meta = created["metadata"]
        result: dict[str, Any] = {"pod": f"{meta['namespace']}/{meta['name']}"}
        written = await self._outcome(meta["name"], meta["namespace"])
        if self._nominations:
            result["nominated"], result["message"] = self._nominations[0]
        if self._extenders is not None:
            result["filtered"] = [list(call) for call in self._extenders.filtered]
        if written["spec"].get("nodeName"):
            result["node"] = written["spec"]["nodeName"]
            if step.get("started"):
                written["status"] |= {"phase": "Running", "startTime": step["started"]}
                written = await self._admin.send("PUT", f"{path_of(written)}/status", written)
            await self._known(written)
        else:
            pod_scheduled = condition(written, "PodScheduled")
            assert pod_scheduled is not None
            result["unschedulable"], result["reason"] = pod_scheduled["message"], pod_scheduled["reason"]
            await self._delete("Pod", meta["name"], meta["namespace"])
        left = {pod.uid for pod in self.scheduler.pods.all()}
        victims = sorted(key for uid, key in before.items() if uid not in left)
        if victims:
            result["victims"] = victims
        return result

    async def _outcome(self, name: str, namespace: str) -> Raw:
        """The pod, once it is bound or found unschedulable for good."""

        def decided() -> bool:
            seen = self.scheduler.pods.get(name, namespace)
            return seen is not None and (bool(seen.spec.node_name) or _is_unschedulable(seen))

        await until(decided, f"pod {namespace}/{name} is bound or found unschedulable")
        found = await self._admin.get("Pod", name, namespace)
        # A list has what a single object has not: which kind it is.
        return {"apiVersion": "v1", **found, "kind": "Pod"}

    async def _known(self, item: Raw) -> None:
        """Until the scheduler has handled this version of an object."""
        informer, version = self._informer(item["kind"]), item["metadata"]["resourceVersion"]
        name, namespace = item["metadata"]["name"], item["metadata"].get("namespace", "")

        def handled() -> bool:
            seen = informer.get(name, namespace)
            return seen is not None and int(seen.metadata.resource_version) >= int(version)

        await until(handled, f"{item['kind']} {name} is known")

    def _informer(self, kind: str) -> Any:
        record = KINDS[kind].record
        return next(informer for informer in self.scheduler.informers if informer.kind is record)


def as_submitted(pod: Raw) -> Raw:
    """A recorded pod as its owner wrote it.

    From matchLabelKeys and mismatchLabelKeys the server makes requirements of the selector, and rejects a pod
    that has both.
    """

    def undone(value: Any) -> Any:
        if isinstance(value, list):
            return [undone(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        made_by_server = {*value.get("matchLabelKeys", ()), *value.get("mismatchLabelKeys", ())}
        copied = {name: undone(entry) for name, entry in value.items()}
        if made_by_server and "labelSelector" in copied:
            requirements = copied["labelSelector"].get("matchExpressions", [])
            kept = [entry for entry in requirements if entry["key"] not in made_by_server]
            copied["labelSelector"] = {**copied["labelSelector"], "matchExpressions": kept}
        return copied

    submitted: Raw = undone(pod)
    return submitted


def _is_unschedulable(pod: Pod) -> bool:
    pod_scheduled = next((found for found in pod.status.conditions if found.type == "PodScheduled"), None)
    return (
        pod_scheduled is not None and pod_scheduled.status == "False" and not pod.status.nominated_node_name
    )
