"""DefaultBinder: tells the API server which node the pod goes to.

The one place where a decision becomes a fact. How that is done (a POST to the pod's `binding` subresource,
with the pod's uid so that a namesake is never bound) is known to the scheduler around the plugins: all that
is needed here is `Handle.bind`.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/binding-v1/
"""

from __future__ import annotations

from typing import ClassVar, Final

from bayplan.plugin import BindPlugin, CycleState, Plugin, Pod, Status, failure

NO_HANDLE: Final = "there is nothing to bind with: the plugin was made without a handle"


class DefaultBinder(Plugin, BindPlugin):
    """Binds pods through the API server."""

    name: ClassVar = "DefaultBinder"

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        if self.handle is None:
            return failure(NO_HANDLE)
        # What goes wrong is the scheduler's to judge: it knows when a pod may have been bound all the same.
        await self.handle.bind(pod, node_name)
        return None
