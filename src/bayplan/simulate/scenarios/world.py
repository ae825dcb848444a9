"""Nodes and pods in virtual time: pods run and end, nodes fail and recover.

This is the part of a cluster around the scheduler: kubelets, the node lifecycle controller, eviction by
taints and the garbage collection of pods, each reduced to what scheduling notices of it. Everything is a
callback of the virtual loop; nothing polls.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.meta import Condition, OwnerReference
from bayplan.api.node import Node, Taint
from bayplan.api.pod import Pod
from bayplan.controllers.nodes import GRACE_SECONDS, UNREACHABLE, tolerated_seconds
from bayplan.controllers.pods import condition, is_recreated
from bayplan.scheduler.failure import waits_for_quota
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.scenarios.figures import Figures
from bayplan.simulate.scenarios.pods import NO_OWNER, Controlled, Outcome, Owner, SimulatedPod, make_pod

_READY: Final = Condition(type="Ready", status="True")
_UNKNOWN: Final = Condition(type="Ready", status="Unknown", reason="NodeStatusUnknown")
_DOWN_TAINTS: Final = tuple(Taint(key=UNREACHABLE, effect=effect) for effect in ("NoSchedule", "NoExecute"))
_UIDS: Final = uuid.UUID("0b7b5b0e-8f1c-5d2a-9a53-6f5f7d1f7a11")


class SimulatedNode:
    """A node, its pods, and whether it has failed."""

    __slots__ = ("failures", "finished_unseen", "group", "is_down", "is_tainted", "name", "node", "pods")

    def __init__(self, node: Node, group: str) -> None:
        self.name = node.name
        self.group = group
        self.node = node
        """The Node object while the node is ready."""
        self.pods: dict[str, SimulatedPod] = {}
        self.is_down = False
        self.is_tainted = False
        self.failures = 0
        """How often it has failed; distinguishes the timers of one failure from those of another."""
        self.finished_unseen: list[SimulatedPod] = []
        """Pods that ended while the node was down: this is known only when it is back."""


class World:
    """All nodes and pods. `store` is what the scheduler sees of them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: MemoryStore, figures: Figures, seed: int
    ) -> None:
        self.loop = loop
        self.store = store
        self.figures = figures
        self.nodes: dict[str, SimulatedNode] = {}
        self.pods: dict[str, SimulatedPod] = {}
        """By uid, all that have not ended."""
        self._seed = seed
        self._cause = Outcome.PREEMPTED
        store.kubelet = self._begin_termination

    def new_uid(self, kind: str, name: str) -> str:
        """The uid of an owner that is not stored."""
        return str(uuid.uuid5(_UIDS, f"{self._seed}/{kind}/{name}"))

    # Pods

    def create_pod(
        self,
        template: Pod,
        name: str,
        *,
        workload: str,
        owner: Owner = NO_OWNER,
        labels: dict[str, str] | None = None,
        reference: OwnerReference | None = None,
        run_seconds: float | None = None,
    ) -> SimulatedPod:
        """A pod arrives."""
        stored = self.store.create(make_pod(template, name, labels or {}, reference))
        return self._registered(stored, template, workload, owner, run_seconds)

    def add_initial_pod(self, pod: Pod, workload: str) -> None:
        """A pod that exists at the start. If it has a node it runs there until the end of the simulation."""
        owner = Controlled(self, workload, pod) if is_recreated(pod) else None
        if pod.spec.node_name and condition(pod, _READY.type) is None:
            pod = replace(pod, status=replace(pod.status, conditions=(*pod.status.conditions, _READY)))
        simulated = self._registered(self.store.create(pod), pod, workload, owner or NO_OWNER, None)
        if owner is not None:
            owner.owns(simulated)
        if pod.spec.node_name:
            self._assigned(simulated, pod.spec.node_name)
            self.figures.was_running(simulated)

    def _registered(
        self, stored: Pod, template: Pod, workload: str, owner: Owner, run_seconds: float | None
    ) -> SimulatedPod:
        figures = self.figures
        pod = SimulatedPod(workload, figures.shapes.of(template), owner, self.loop.time(), run_seconds)
        meta = stored.metadata
        pod.name, pod.namespace, pod.uid = meta.name, meta.namespace, meta.uid
        self.pods[meta.uid] = pod
        figures.arrived(pod, stored)
        return pod

    def binding_progressed(self, progress: BindingProgress) -> None:
        """Called by the scheduler when a pod waits at Permit, is bound, or is rejected after the decision."""
        pod = self.pods.get(progress.pod.metadata.uid)
        if pod is None:
            return
        if progress.step is not BindingStep.BOUND:
            self.figures.not_bound(pod, progress, self.loop.time())
            return
        self.figures.scheduled(pod, progress.node_name, self.loop.time())
        pod.owner.scheduled(pod)
        self._assigned(pod, progress.node_name)

    def _assigned(self, pod: SimulatedPod, node_name: str) -> None:
        pod.node_name = node_name
        node = self.nodes.get(node_name)
        if node is None:
            # The node was removed while the pod was being bound.
            self.loop.call_soon(self._remove, pod, Outcome.NODE_REMOVED)
            return
        node.pods[pod.uid] = pod
        if not node.is_down:
            self._start(pod)

    def _start(self, pod: SimulatedPod) -> None:
        if pod.run_seconds is not None:
            pod.timer = self.loop.call_later(pod.run_seconds, self._succeed, pod)

    def _succeed(self, pod: SimulatedPod) -> None:
        if pod.ended is not None or pod.is_terminating:
            return
        node = self.nodes.get(pod.node_name)
        if node is not None and node.is_down:
            node.finished_unseen.append(pod)
            return
        self._delete_now(pod, Outcome.SUCCEEDED)
        pod.owner.succeeded(pod)

    def delete_pod(self, pod: SimulatedPod, cause: Outcome) -> None:
        """Deletes a pod gracefully, if it runs."""
        self._cause = cause
        try:
            self.store.delete(Pod, pod.name, pod.namespace, uid=pod.uid)
        finally:
            self._cause = Outcome.PREEMPTED
        if not pod.is_terminating:
            self._gone(pod, cause)
            pod.owner.lost(pod)

    def _begin_termination(self, store: MemoryStore, stored: Pod, grace_period_seconds: int) -> None:
        """The store calls this for a running pod that is deleted."""
        pod = self.pods[stored.uid]
        pod.is_terminating = True
        pod.outcome = self._cause
        if pod.timer is not None:
            pod.timer.cancel()
        node = self.nodes.get(pod.node_name)
        if node is None or not node.is_down:
            pod.timer = self.loop.call_later(grace_period_seconds, self._terminated, pod)
        self.figures.terminating(pod, self.loop.time())
        pod.owner.lost(pod)

    def _terminated(self, pod: SimulatedPod) -> None:
        if pod.ended is None:
            assert pod.outcome is not None, "set when the termination began"
            self._delete_now(pod, pod.outcome)

    def _remove(self, pod: SimulatedPod, cause: Outcome) -> None:
        """The node of a pod is gone: the pod is deleted without a grace period."""
        if pod.ended is not None:
            return
        if pod.is_terminating:
            self._terminated(pod)
            return
        self._delete_now(pod, cause)
        pod.owner.lost(pod)

    def _delete_now(self, pod: SimulatedPod, outcome: Outcome) -> None:
        self.store.delete(Pod, pod.name, pod.namespace, grace_period_seconds=0, uid=pod.uid)
        self._gone(pod, outcome)

    def _gone(self, pod: SimulatedPod, outcome: Outcome) -> None:
        del self.pods[pod.uid]
        if pod.timer is not None:
            pod.timer.cancel()
            pod.timer = None
        node = self.nodes.get(pod.node_name)
        if node is not None:
            node.pods.pop(pod.uid, None)
        pod.outcome = outcome
        self.figures.ended(pod, self.loop.time())

    # Nodes

    def add_node(self, node: Node, group: str) -> SimulatedNode:
        stored = self.store.create(node)
        made = self.nodes[node.name] = SimulatedNode(stored, group)
        self.figures.node_added(stored)
        return made

    def remove_node(self, name: str) -> None:
        """The Node object is deleted, and its pods with it."""
        node = self.nodes.pop(name, None)
        if node is None:
            return
        node.failures += 1
        self.store.delete(Node, name)
        for pod in list(node.pods.values()):
            self._remove(pod, Outcome.NODE_REMOVED)

    def fail_node(self, name: str, repair_seconds: float) -> SimulatedNode | None:
        """The node's heartbeats stop. Nobody notices before the grace period of 50 s is over."""
        node = self.nodes.get(name)
        if node is None or node.is_down:
            return None
        node.is_down = True
        node.failures += 1
        self.figures.node_failures += 1
        self.loop.call_later(GRACE_SECONDS, self._taint, node, node.failures)
        self.loop.call_later(repair_seconds, self._recover, node, node.failures)
        return node

    def _taint(self, node: SimulatedNode, failure: int) -> None:
        if not node.is_down or node.failures != failure:
            return
        node.is_tainted = True
        self.figures.down_nodes.add(node.name)
        self._update(node, (*node.node.spec.taints, *_DOWN_TAINTS), (_UNKNOWN,))
        for pod in list(node.pods.values()):
            if pod.is_terminating:
                continue
            tolerations = self.store.get(Pod, pod.name, pod.namespace).spec.tolerations
            left = tolerated_seconds(_DOWN_TAINTS[1:], tolerations)
            if left is not None:
                self.loop.call_later(left, self._evict, pod, node, failure)

    def _evict(self, pod: SimulatedPod, node: SimulatedNode, failure: int) -> None:
        if node.failures == failure and node.is_down and pod.ended is None and not pod.is_terminating:
            self.delete_pod(pod, Outcome.EVICTED)

    def _recover(self, node: SimulatedNode, failure: int) -> None:
        if node.failures != failure:
            return
        node.is_down = False
        if node.is_tainted:
            node.is_tainted = False
            self.figures.down_nodes.discard(node.name)
            self._update(node, node.node.spec.taints, node.node.status.conditions)
        unseen, node.finished_unseen = node.finished_unseen, []
        for pod in unseen:
            self._succeed(pod)
        for pod in list(node.pods.values()):
            if pod.is_terminating:
                self._terminated(pod)
            elif pod.timer is None:
                self._start(pod)

    def _update(
        self, node: SimulatedNode, taints: tuple[Taint, ...], conditions: tuple[Condition, ...]
    ) -> None:
        known = self.store.get(Node, node.name)
        self.store.update(
            replace(
                known,
                spec=replace(known.spec, taints=taints),
                status=replace(known.status, conditions=conditions),
            )
        )


class SimulatedCluster(MemoryCluster):
    """The API that the scheduler uses: a bound pod runs at once, unless its node is down."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store)
        self._world = world

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        meta = pod.metadata
        node = self._world.nodes.get(node_name)
        running = node is not None and not node.is_down
        self.store.bind(
            meta.name, meta.namespace, node_name, uid=meta.uid, annotations=annotations, running=running
        )

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        await super().patch_pod_status(pod, patch)
        simulated, world = self._world.pods.get(pod.uid), self._world
        if simulated is not None and patch.condition is not None and waits_for_quota(patch.condition):
            world.figures.waits_for_quota(simulated, pod, world.loop.time())

    async def delete_pod(self, pod: Pod) -> None:
        simulated = self._world.pods.get(pod.uid)
        if simulated is None or simulated.is_terminating:
            await super().delete_pod(pod)
        else:
            self._world.delete_pod(simulated, Outcome.PREEMPTED)
