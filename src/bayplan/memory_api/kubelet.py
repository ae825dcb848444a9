"""Who finishes the deletion of a pod that runs.

The API server only marks such a pod; it is gone when the kubelet of its node has stopped it. A store without
a kubelet deletes at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from bayplan.api.pod import Pod
from bayplan.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from bayplan.memory_api.store import MemoryStore


class Kubelet(Protocol):
    """Told of each pod that begins to terminate. It has to call `store.delete(…, grace_period_seconds=0)`."""

    def __call__(self, store: MemoryStore, pod: Pod, grace_period_seconds: int, /) -> None: ...


def end_after_grace_period(store: MemoryStore, pod: Pod, grace_period_seconds: int) -> None:
    """A kubelet whose pods use up their whole grace period, by the clock of the running loop."""

    def end() -> None:
        # Somebody may have been faster, and a new pod may have the name by now.
        with suppress(NotFoundError, ConflictError):
            store.delete(Pod, pod.name, pod.namespace, grace_period_seconds=0, uid=pod.uid)

    asyncio.get_running_loop().call_later(grace_period_seconds, end)
