"""What a plugin may ask of the scheduler around it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from bayplan.api.pod import Pod
from bayplan.cluster_api import ClusterAPI
from bayplan.snapshot.cluster import Cluster


class WaitingPodView(Protocol):
    """A pod that holds its place until plugins allow it to be bound."""

    pod: Pod
    node_name: str

    @property
    def pending_plugins(self) -> list[str]:
        """The plugins that have not allowed it yet."""

    @property
    def is_turned_away(self) -> bool:
        """Whether it was rejected, or preempted, or has waited too long, and only has not left yet."""

    def allow(self, plugin: str) -> None:
        """This plugin has nothing against it any more."""

    def reject(self, plugin: str, message: str) -> bool:
        """Turns it away. False where its fate was decided before."""


class Handle(Protocol):
    """Given to a plugin when it is made."""

    @property
    def cluster(self) -> Cluster:
        """The cluster as of this cycle. Read-only for plugins."""

    @property
    def log(self) -> logging.Logger: ...

    @property
    def random(self) -> random.Random:
        """The seeded generator: the only source of chance, so that runs repeat."""

    def now(self) -> float:
        """Seconds since the epoch, by the scheduler's clock."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Tells the API server that the pod goes to this node. Raises where that did not work."""

    def is_preempting(self, uid: str) -> bool:
        """Whether victims of this pod are being evicted right now."""

    @property
    def api(self) -> ClusterAPI:
        """The API server, for plugins that have to act (in PreBind and Bind, never in a cycle)."""

    def waiting_pods(self) -> Iterator[WaitingPodView]:
        """All pods that wait for a permit."""

    def waiting_pod(self, uid: str) -> WaitingPodView | None: ...

    def activate(self, pods: Iterable[Pod]) -> None:
        """Has these pods tried again, whatever they wait for."""

    def pods_with_label(self, namespace: str, key: str, value: str) -> Collection[Pod]:
        """All pods with this label, waiting ones too, as the API server last showed them.

        Costs no more than what it finds: pods are kept by the label keys that were asked for. A core that
        only decides does not know waiting pods, and finds nothing.
        """

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Calls back after a while, by the scheduler's clock and never during a cycle."""
