"""`mode: surge`: creates the replacement before the old pod is deleted, if the owner allows it.

A Deployment with a rolling update and `maxSurge` above zero allows one extra pod for a short time:

    the old pod gets the lowest deletion cost  →  the Deployment is scaled up by one
    →  the new pod is ready  →  the Deployment is scaled back: the pod of the lowest cost is deleted

If the new pod is not ready in time, the Deployment is scaled back as well: its ReplicaSet then deletes the
new pod, because it is not ready, and nothing has changed. No budget is used up: the number of ready pods
never drops. Everything else (StatefulSets, Jobs, Deployments with `Recreate`, without maxSurge, being rolled
out, or scaled by a HorizontalPodAutoscaler) is evicted as with `mode: evict`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from bayplan.answers.whatif import Cluster
from bayplan.api.pod import Pod
from bayplan.api.workloads import Deployment, ReplicaSet
from bayplan.config import DescheduleConfiguration, Mode
from bayplan.controllers.pods import DELETION_COST, is_ready
from bayplan.deschedule.executing import POLL_SECONDS, EvictionAPI
from bayplan.errors import APIError

LOWEST_COST: Final = "-2147483648"
_COPY: Final = "replacement"


class ScalingAPI(EvictionAPI, Protocol):
    """The requests to the API server."""

    async def scale(self, namespace: str, name: str, expected: int, replicas: int) -> None:
        """Scales a Deployment that has the expected number of replicas now. Raises APIError."""

    async def annotate(self, pod: Pod, key: str, value: str | None) -> None:
        """Sets or removes an annotation of a pod. Raises APIError."""

    async def is_autoscaled(self, namespace: str, name: str) -> bool:
        """Whether a HorizontalPodAutoscaler scales the Deployment. Raises APIError."""


def make_surge(settings: DescheduleConfiguration, api: ScalingAPI) -> Surging | None:
    """Creates replacements first, if the configuration says so."""
    if settings.mode is not Mode.SURGE:
        return None
    return Surging(api, settings.replacement_timeout.seconds)


@dataclass(slots=True)
class Surging:
    """Replaces pods of Deployments by scaling up and down."""

    api: ScalingAPI
    timeout_seconds: float

    async def move(self, pod: Pod, target: str, cluster: Cluster, *, nominated: bool) -> str | None:
        """Replaces a pod; a text if that failed; None if its owner does not allow it, or if the replacement
        would not get the target while the pod is still there."""
        owner = deployment_of(pod, cluster)
        if owner is None or not allows_surge(owner, pod, cluster):
            return None
        with cluster.branch() as trial:
            if place_beside(trial, pod, target if nominated else "") != target:
                return None
        wanted = int(owner.spec.get("replicas", 1))
        try:
            if await self.api.is_autoscaled(owner.namespace, owner.name):
                return None
            known = {one.uid for one in await self._siblings(pod)}
            await self.api.annotate(pod, DELETION_COST, LOWEST_COST)
            await self.api.scale(owner.namespace, owner.name, wanted, wanted + 1)
        except APIError as error:
            return f"the replacement cannot be created first: {error}"
        ready = await self._until_ready(pod, known)
        try:
            if not ready:
                await self.api.annotate(pod, DELETION_COST, pod.annotations.get(DELETION_COST))
            await self.api.scale(owner.namespace, owner.name, wanted + 1, wanted)
        except APIError as error:
            return f"Deployment {owner.key} was scaled up to {wanted + 1} and cannot be scaled back: {error}"
        return "" if ready else f"the replacement was not ready within {self.timeout_seconds:g} s"

    async def _siblings(self, pod: Pod) -> list[Pod]:
        owner = pod.metadata.controller()
        pods = await self.api.pods(pod.namespace)
        return [one for one in pods if owner is not None and _is_owned(one, owner.uid)]

    async def _until_ready(self, pod: Pod, known: set[str]) -> bool:
        end = asyncio.get_running_loop().time() + self.timeout_seconds
        while True:
            if any(one.uid not in known and is_ready(one) for one in await self._siblings(pod)):
                return True
            if asyncio.get_running_loop().time() >= end:
                return False
            await asyncio.sleep(POLL_SECONDS)


def _is_owned(pod: Pod, uid: str) -> bool:
    controller = pod.metadata.controller()
    return controller is not None and controller.uid == uid


def deployment_of(pod: Pod, cluster: Cluster) -> Deployment | None:
    """The Deployment of the pod's ReplicaSet."""
    owner = pod.metadata.controller()
    if owner is None or owner.kind != "ReplicaSet":
        return None
    sets = (one for one in cluster.objects_of(ReplicaSet) if one.uid == owner.uid)
    above = next((one.metadata.controller() for one in sets), None)
    if above is None or above.kind != "Deployment":
        return None
    return next((one for one in cluster.objects_of(Deployment) if one.uid == above.uid), None)


def allows_surge(owner: Deployment, pod: Pod, cluster: Cluster) -> bool:
    """Whether the Deployment allows one extra pod, and no rollout is in progress."""
    strategy = owner.spec.get("strategy") or {}
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge", "25%")
    if strategy.get("type", "RollingUpdate") != "RollingUpdate" or surge in (0, "0", "0%"):
        return False
    own = pod.metadata.controller()
    others = {
        one.uid
        for one in cluster.objects_of(ReplicaSet)
        if (above := one.metadata.controller()) is not None and above.uid == owner.uid
    } - {own.uid if own is not None else ""}
    controllers = (one.metadata.controller() for one in cluster.pods)
    return not any(one is not None and one.uid in others for one in controllers)


def place_beside(trial: Cluster, pod: Pod, nominated: str = "") -> str:
    """The node that the scheduler gives another pod of the owner while this one is there; empty: none."""
    copy = trial.as_created(pod)
    meta = replace(copy.metadata, name=f"{pod.name}-{_COPY}", uid="")
    status = replace(copy.status, nominated_node_name=nominated)
    (made,) = trial.add(replace(copy, metadata=meta, status=status))
    placed = trial.schedule([made])
    return "" if placed.evicted or placed.failures else placed.pods[0].node
