"""Which pods are expected on which nodes.

A pod that preempted others is nominated to their node and tried again once they are gone; meanwhile nobody of
lower priority may take the room. This is the bookkeeping. What the nominations mean for the columns is told
to whoever keeps them (`NominatedPods`).

A nominated pod counts with all it asks for only while it is in the queue. One that was popped and did not
come back (it is being deleted, say) counts as a pod that asks for nothing, until it is deleted or nominated
anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod
from bayplan.framework.outcome import Nomination


class NominatedPods(Protocol):
    """Where nominations take effect, as `snapshot.cluster.Cluster` does it."""

    def nominate(self, pod: Pod, node_name: str) -> None:
        """The pod is expected on this node, and on no other."""

    def remove_nomination(self, uid: str) -> None:
        """The pod is expected nowhere."""


class Nominator:
    """Nominations by uid and by node.

    Args:
        effect: told about every change.
        latest: the pod of this namespace and name as it was last seen, None where it is gone.
    """

    def __init__(self, effect: NominatedPods, latest: Callable[[Pod], Pod | None]) -> None:
        self._effect = effect
        self._latest = latest
        self._nodes: dict[str, str] = {}
        self._pods: dict[str, dict[str, Pod]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, uid: str) -> bool:
        return uid in self._nodes

    def node_of(self, uid: str) -> str | None:
        """The node that the pod is nominated to. "" where its nomination was cleared and it waits on."""
        return self._nodes.get(uid)

    def pods_on(self, node_name: str) -> tuple[Pod, ...]:
        """The pods nominated to a node, oldest nomination first."""
        return tuple(self._pods.get(node_name, {}).values())

    def add(self, pod: Pod, nomination: Nomination | None) -> None:
        """Nominates the pod, in place of any nomination it had. None: to where its status says."""
        uid = pod.metadata.uid
        self.delete(uid)
        node_name = pod.status.nominated_node_name if nomination is None else nomination.node_name
        if nomination is None and not node_name:
            return
        latest = self._latest(pod)
        if latest is None or latest.spec.node_name:
            return
        self._nodes[uid] = node_name
        self._put(pod, node_name)

    def update(self, old: Pod, new: Pod, *, outdated: str | None = None) -> None:
        """A waiting pod has changed.

        Where neither version has a nomination but the nominator does, the nomination was made a moment ago
        and its way into the pod's status is not over: it stands. So it does where the pod shows an `outdated`
        nomination, which the one that is on its way replaces.
        """
        nomination, shown = None, new.status.nominated_node_name
        if (not old.status.nominated_node_name and not shown) or shown == outdated:
            known = self._nodes.get(old.uid)
            nomination = None if known is None else Nomination(known)
        self.delete(old.uid)
        self.add(new, nomination)

    def delete(self, uid: str) -> None:
        node_name = self._nodes.pop(uid, None)
        if node_name is None:
            return
        pods = self._pods[node_name]
        del pods[uid]
        if not pods:
            del self._pods[node_name]
        if node_name:
            self._effect.remove_nomination(uid)

    def left_queue(self, pod: Pod) -> None:
        """The pod was popped: until it is back, only its name is known."""
        self._replace(_bare(pod))

    def came_back(self, pod: Pod) -> None:
        """The pod is in the queue again."""
        self._replace(pod)

    def _replace(self, pod: Pod) -> None:
        node_name = self._nodes.get(pod.uid)
        if node_name is not None and self._pods[node_name][pod.uid] is not pod:
            self._put(pod, node_name)

    def _put(self, pod: Pod, node_name: str) -> None:
        self._pods.setdefault(node_name, {})[pod.uid] = pod
        if node_name:
            self._effect.nominate(pod, node_name)


def _bare(pod: Pod) -> Pod:
    return Pod(metadata=ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid))
