"""DefaultBinder: writes the binding of a pod to the API server.

The scheduler around the plugins knows how (a POST to the pod's `binding` subresource, with the pod's uid so
that another pod of the same name is never bound): this plugin only calls `Handle.bind`. Annotations that
other plugins want on the bound pod (`annotate_binding`) are part of the same write.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/binding-v1/
"""

from __future__ import annotations

from bayplan.plugin import BINDING_ANNOTATIONS, BindPlugin, CycleState, Plugin, Pod, Status


class DefaultBinder(Plugin, BindPlugin):
    """Binds pods through the API server."""

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        # The scheduler handles errors: it knows when a pod may have been bound nevertheless.
        await self.handle.bind(pod, node_name, state.get(BINDING_ANNOTATIONS))
        return None
