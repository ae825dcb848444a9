"""Completes the deletion of running pods.

The API server only marks such a pod; it is deleted when the kubelet of its node has stopped it. A store
without a kubelet deletes at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from bayplan.api.pod import Pod
from bayplan.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from bayplan.simulate.memory.store import MemoryStore


class Kubelet(Protocol):
    """Called with each pod that begins to terminate. It has to call `store.delete(…,
    grace_period_seconds=0)`."""

    def __call__(self, store: MemoryStore, pod: Pod, grace_period_seconds: int, /) -> None: ...


def end_after_grace_period(store: MemoryStore, pod: Pod, grace_period_seconds: int) -> None:
    """A kubelet whose pods use their whole grace period, by the clock of the running loop."""

    def end() -> None:
        # The pod may be deleted already, and a new pod may have its name.
        with suppress(NotFoundError, ConflictError):
            store.delete(Pod, pod.name, pod.namespace, grace_period_seconds=0, uid=pod.uid)

    asyncio.get_running_loop().call_later(grace_period_seconds, end)
