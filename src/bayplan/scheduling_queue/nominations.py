"""Nominations: the node that each pending pod is expected on, from the decision to the pod's status.

A pod that preempts others is nominated to their node and scheduled again when they are gone; meanwhile no pod
of lower priority may use that room. Three things have to agree, and this module owns all of them:

    expected node   by uid and by node; every change is applied to the columns (`NominatedPods`)

    status write    status.nominatedNodeName in the API server follows later (`NominationWrite`):

                    decided ── write ──► sent ── acknowledged ──► written ── seen in the pod ──► done

    preemption      the preemptor's victims are being evicted (`Preemption`):

                    started ─────────► last victim ────────► it is terminating ──► ended
                    └───── the preemptor is pinned ────────┘
                    (pinned: its PreEnqueue plugin is not called again at every event)

This module sends no requests. Events are method calls; their consequences are calls of `NominatedPods` and
`Pins`, and return values (what to write).

A nominated pod counts with its requests only while it is in the queue. One that was popped and not requeued
(for example because it is being deleted) counts as a pod without requests until it is deleted or nominated
again. The columns are changed when its attempt has ended: it does not compete with itself, and no other pod
is scheduled meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod
from bayplan.framework.outcome import Nomination
from bayplan.scheduling_queue.queued import NominationWrite, QueuedPod
from bayplan.state.groups import Group


class NominatedPods(Protocol):
    """The columns that nominations change: `state.cluster.Cluster`."""

    def nominate(self, pod: Pod, node_name: str) -> None:
        """The pod is expected on this node and on no other."""

    def remove_nomination(self, uid: str) -> None:
        """The pod is no longer expected on any node."""


class Pins(Protocol):
    """Keeps a gated pod or group out of the queue without calling its PreEnqueue plugin again:
    `SchedulingQueue`."""

    def pin(self, preemptor: Pod | Group, gate: str) -> None: ...

    def unpin(self, preemptor: Pod | Group) -> None: ...


@dataclass(slots=True, eq=False)
class Preemption:
    """The eviction of victims for a pod or a group, by a plugin. `last` is the last victim, when only one is
    left."""

    preemptor: Pod | Group
    plugin: str
    last: Pod | None = None


class Nominations:
    """The nominations of all pending pods.

    Args:
        columns: the columns that every change is applied to.
        pod_lister: returns the latest known version of the pod with this namespace and name, or None.
        pins: pins the preemptors that wait for their victims.
    """

    def __init__(self, columns: NominatedPods, pod_lister: Callable[[Pod], Pod | None], pins: Pins) -> None:
        self._columns = columns
        self._pod_lister = pod_lister
        self._pins = pins
        self.nodes: dict[str, str] = {}
        """By uid: the node that each nominated pod is expected on; "" if its nomination was cleared."""
        self._pods: dict[str, dict[str, Pod]] = {}
        self.popped: set[str] = set()
        """The uids of nominated pods that are being scheduled: at most one at a time."""
        self.preemptions: dict[str, Preemption] = {}
        """The preemptions in progress, by the preemptor's uid."""
        self.last_victims: dict[str, list[Pod | Group]] = {}
        """By the uid of a last victim: the preemptors that are pinned until it is terminating."""

    # Expected nodes

    def node_of(self, uid: str) -> str | None:
        """The node that the pod is nominated to; "" if its nomination was cleared and it is pending."""
        return self.nodes.get(uid)

    def pods_on(self, node_name: str) -> tuple[Pod, ...]:
        """The pods nominated to a node, oldest nomination first."""
        here = self._pods.get(node_name)
        if here is None:
            return ()
        return tuple(_bare(pod) if uid in self.popped else pod for uid, pod in here.items())

    def add(self, pod: Pod, nomination: Nomination | None) -> None:
        """Nominates the pod and replaces its previous nomination. None: the node in its status."""
        uid = pod.metadata.uid
        node_name = pod.status.nominated_node_name if nomination is None else nomination.node_name
        is_nominated = nomination is not None or bool(node_name)
        latest = self._pod_lister(pod) if is_nominated else None
        if latest is None or latest.spec.node_name:
            self.remove(uid)
            return
        if self.nodes.get(uid) == node_name:
            # The newest nomination is the last.
            del self._pods[node_name][uid]
        else:
            self.remove(uid)
        self.nodes[uid] = node_name
        self._put(pod, node_name)

    def pod_updated(self, info: QueuedPod, old: Pod, new: Pod) -> None:
        """A pending pod has changed.

        The nomination stays if neither version shows one, because its status write is not complete, and if
        the new version shows one that a status write in progress replaces. Otherwise the status is used.
        """
        shown = new.status.nominated_node_name
        self._seen(info, shown)
        write = info.nomination_write
        outdated = None if write is None else write.previous
        nomination = None
        if (not old.status.nominated_node_name and not shown) or shown == outdated:
            known = self.nodes.get(old.uid)
            nomination = None if known is None else Nomination(known)
        if old.uid != new.uid:
            self.remove(old.uid)
        self.add(new, nomination)

    def remove(self, uid: str) -> None:
        """The pod is no longer nominated: it is assumed, bound or deleted."""
        node_name = self.nodes.pop(uid, None)
        if node_name is None:
            return
        pods = self._pods[node_name]
        del pods[uid]
        if not pods:
            del self._pods[node_name]
        self.popped.discard(uid)
        if node_name:
            self._columns.remove_nomination(uid)

    def pod_popped(self, pod: Pod) -> None:
        """Until the pod is requeued it counts without its requests."""
        if pod.metadata.uid in self.nodes:
            self.popped.add(pod.metadata.uid)

    def attempt_ended(self, uid: str) -> None:
        """The attempt of a pod has ended. If the pod is still nominated, and not in the queue, it counts
        without its requests."""
        if uid in self.popped:
            node_name = self.nodes[uid]
            self._put(_bare(self._pods[node_name][uid]), node_name)

    def pod_requeued(self, pod: Pod) -> None:
        """The pod is in the queue again."""
        uid = pod.metadata.uid
        node_name = self.nodes.get(uid)
        if node_name is not None and (uid in self.popped or self._pods[node_name][uid] is not pod):
            self._put(pod, node_name)

    def _put(self, pod: Pod, node_name: str) -> None:
        uid = pod.metadata.uid
        self.popped.discard(uid)
        self._pods.setdefault(node_name, {})[uid] = pod
        if node_name:
            self._columns.nominate(pod, node_name)

    # Status writes

    def node_to_write(self, info: QueuedPod, pod: Pod, nomination: Nomination | None) -> str | None:
        """The nominatedNodeName to write into the status after a failed attempt; None: no write is needed.

        While another write is not yet visible in the pod, the name is written again: otherwise the other one
        would remain, and reserve room on a node for a pod that does not go there.
        """
        shown = pod.status.nominated_node_name
        self._seen(info, shown)
        if nomination is None or (info.nomination_write is None and nomination.node_name == shown):
            return None
        self._sent(info, nomination.node_name)
        return nomination.node_name

    def set_expected_node(self, info: QueuedPod, pod: Pod, node_name: str) -> bool:
        """Whether to write the node of a pod whose binding may take long, so that it is visible to others."""
        latest = self._pod_lister(pod) or pod
        if latest.status.nominated_node_name == node_name:
            return False
        self._sent(info, node_name)
        return True

    def acknowledged(self, info: QueuedPod, node_name: str) -> None:
        """The API server has written this nomination."""
        write = info.nomination_write
        if write is not None and write.node_name == node_name:
            write.is_acknowledged = True

    def _sent(self, info: QueuedPod, node_name: str) -> None:
        write = info.nomination_write
        if write is None:
            info.nomination_write = NominationWrite(node_name)
        elif write.node_name != node_name:
            info.nomination_write = NominationWrite(node_name, previous=write.node_name)
        else:
            write.is_acknowledged = False

    def _seen(self, info: QueuedPod, node_name: str) -> None:
        """A version of the pod shows this nomination. A version from before the write is no confirmation."""
        write = info.nomination_write
        if write is not None and write.is_acknowledged and write.node_name == node_name:
            info.nomination_write = None

    # Preemption

    def preemption_started(self, preemptor: Pod | Group, plugin: str) -> Preemption:
        """The victims of a pod or a group are being evicted: it stays out of the queue meanwhile."""
        preemption = self.preemptions[preemptor.uid] = Preemption(preemptor, plugin)
        self._pins.pin(preemptor, plugin)
        return preemption

    def waits_for_victim(self, preemption: Preemption, last: Pod) -> None:
        """All other victims are evicted: the preemptor stays out until this one is seen terminating."""
        preemptor, preemption.last = preemption.preemptor, last
        self._pins.unpin(preemptor)  # it may be terminating already
        self._pins.pin(preemptor, preemption.plugin)
        self.last_victims.setdefault(last.uid, []).append(preemptor)

    def preemption_ended(self, preemption: Preemption, last: Pod) -> None:
        """All evictions are complete, or one failed."""
        preemptor = preemption.preemptor
        # The response to the last eviction may arrive after the next preemption has begun.
        if self.preemptions.get(preemptor.uid) is preemption:
            del self.preemptions[preemptor.uid]
            self._pins.unpin(preemptor)
        self.pod_terminating(last)

    def pod_terminating(self, pod: Pod) -> None:
        """A pod is being deleted. Call this before the queue handles the event: preemptors may be pinned
        until then."""
        for preemptor in self.last_victims.pop(pod.uid, ()):
            self._pins.unpin(preemptor)

    def is_preempting(self, uid: str) -> bool:
        """Whether victims of the pod are left, other than a last one that is terminating."""
        preemption = self.preemptions.get(uid)
        if preemption is None:
            return False
        if preemption.last is None:
            return True
        last = self._pod_lister(preemption.last)
        return last is not None and last.uid == preemption.last.uid and not last.is_terminating


def _bare(pod: Pod) -> Pod:
    """The pod without its requests, and without everything else that plugins read."""
    return Pod(metadata=ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid))
