"""The selector of a pod's owners: its Services and its controller."""

from __future__ import annotations

from typing import Final

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.selectors import EVERYTHING, Requirement, Selector, compile_selector, selector_from_map
from bayplan.api.workloads import ReplicaSet, ReplicationController, Service, StatefulSet
from bayplan.errors import SelectorError
from bayplan.state.objects import Objects

OWNER_KINDS: Final[tuple[type[Object], ...]] = (Service, ReplicationController, ReplicaSet, StatefulSet)
"""The kinds that `owner_selector` depends on."""


def owner_selector(pod: Pod, objects: Objects) -> Selector:
    """All Services that select the pod and the controller that owns it, combined.

    It is empty if nothing selects the pod.
    """
    requirements: list[Requirement] = []
    for service in objects.of(Service):
        selector = service.spec.selector
        if service.namespace == pod.namespace and selector is not None:
            compiled = selector_from_map(selector)
            if compiled.matches(pod.labels):
                requirements.extend(compiled.requirements)
    requirements.extend(_controller_requirements(pod, objects))
    return EVERYTHING.and_(*requirements)


def _controller_requirements(pod: Pod, objects: Objects) -> tuple[Requirement, ...]:
    owner = pod.metadata.controller()
    if owner is None:
        return ()
    if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
        controller = objects.of(ReplicationController).get(owner.name, pod.namespace)
        if controller is None or controller.spec.selector is None:
            return ()
        return selector_from_map(controller.spec.selector).requirements
    kinds: dict[tuple[str, str], type[ReplicaSet] | type[StatefulSet]] = {
        ("apps/v1", "ReplicaSet"): ReplicaSet,
        ("apps/v1", "StatefulSet"): StatefulSet,
    }
    kind = kinds.get((owner.api_version, owner.kind))
    if kind is None:
        return ()
    found = objects.of(kind).get(owner.name, pod.namespace)
    if found is None:
        return ()
    try:
        return compile_selector(found.spec.selector).requirements
    except SelectorError:
        # Upstream, too, ignores a controller whose selector it cannot parse.
        return ()
