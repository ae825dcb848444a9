"""The handle: what a scheduler provides to its plugins."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.pod import Pod
from bayplan.api.releases import Release
from bayplan.state.cluster import Cluster


class WaitingPodView(Protocol):
    """A pod that waits at Permit until plugins allow its binding."""

    pod: Pod
    node_name: str

    @property
    def pending_plugins(self) -> list[str]:
        """The plugins that have not allowed it yet."""

    @property
    def is_rejected(self) -> bool:
        """Whether it was rejected, preempted or timed out, even if its binding cycle has not ended yet."""

    def allow(self, plugin: str) -> None:
        """This plugin allows the pod."""

    def reject(self, plugin: str, message: str) -> bool:
        """Rejects the pod. False if its result was already decided."""


class Handle(Protocol):
    """Passed to a plugin when it is created."""

    @property
    def cluster(self) -> Cluster:
        """The cluster as of this cycle. Read-only for plugins."""

    @property
    def release(self) -> Release:
        """The release of Kubernetes that this scheduler decides as, with its feature gates."""

    @property
    def log(self) -> logging.Logger: ...

    @property
    def random(self) -> random.Random:
        """The seeded generator: the only source of randomness, so that runs can be repeated."""

    def now(self) -> float:
        """Seconds since the epoch, by the scheduler's clock."""

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Writes the binding of the pod to this node to the API server. Raises if that fails.

        The annotations are added to the pod in the same write.
        """

    def is_preempting(self, uid: str) -> bool:
        """Whether victims of this pod are being evicted."""

    @property
    def api(self) -> ClusterAPI:
        """The API server, for plugins that have to write (in PreBind and Bind, never in a scheduling
        cycle)."""

    def waiting_pods(self) -> Iterator[WaitingPodView]:
        """All pods that wait at Permit."""

    def waiting_pod(self, uid: str) -> WaitingPodView | None: ...

    def activate(self, pods: Iterable[Pod]) -> None:
        """Activates these pods, whatever they wait for."""

    def pods_with_label(self, namespace: str, key: str, value: str) -> Collection[Pod]:
        """All pods with this label, pending ones too, in the latest version known.

        The cost is proportional to the result: pods are indexed by the label keys that were queried before. A
        core that only decides has no pending pods, and returns nothing.
        """

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Calls back after this time, by the scheduler's clock and never during a cycle."""
