"""What a plugin may ask of the scheduler around it."""

from __future__ import annotations

import logging
import random
from typing import Protocol

from bayplan.api.pod import Pod
from bayplan.snapshot.cluster import Cluster


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
