"""What the scheduler uses in place of an object that it can read only in part.

An earlier readable version takes precedence (`client/informer.py`).

The resources that such an object may use are not given to others:

- A pod on a node whose spec could be read counts as that spec says.
- Any other pod on a node fills its node: it requests more of everything than any node offers, and is never
  evicted. Its unreadable part could be anything, so the node takes no pods until the pod is gone or readable.
- A PodDisruptionBudget whose spec could be read allows no disruption.
- Everything else is treated as absent: a node is not used, a pod without a node waits, a claim or volume is
  missing to the pods that need it.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from bayplan.api.meta import Object, Quantity
from bayplan.api.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from bayplan.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY
from bayplan.api.reading import Unreadable
from bayplan.api.saturation import MAX_REQUEST
from bayplan.api.workloads import PodDisruptionBudget, PodDisruptionBudgetStatus

HIGHEST_PRIORITY: Final = 2**31 - 1

ObjectT = TypeVar("ObjectT", bound=Object)


def stand_in(unreadable: Unreadable) -> Object | None:
    """The substitute for the object, or None."""
    partial = unreadable.partial
    if unreadable.is_usable:
        return partial
    if isinstance(partial, Pod) and partial.spec.node_name:
        return _pod(unreadable, partial)
    if isinstance(partial, PodDisruptionBudget) and _has_whole_spec(unreadable):
        return replace(partial, status=PodDisruptionBudgetStatus())
    return None


def last_version(known: ObjectT, unreadable: Unreadable) -> ObjectT:
    """The last readable version; for a pod, with its current node and deletion time."""
    partial = unreadable.partial
    if not isinstance(known, Pod) or not isinstance(partial, Pod):
        return known
    spec, metadata = known.spec, known.metadata
    if partial.spec.node_name:
        spec = replace(spec, node_name=partial.spec.node_name)
    metadata = replace(
        metadata,
        resource_version=partial.metadata.resource_version or metadata.resource_version,
        deletion_timestamp=partial.metadata.deletion_timestamp or metadata.deletion_timestamp,
    )
    return replace(known, metadata=metadata, spec=spec)


def fills_node(unreadable: Unreadable) -> bool:
    """Whether the substitute keeps all other pods off its node."""
    pod = unreadable.partial
    return (
        isinstance(pod, Pod)
        and bool(pod.spec.node_name)
        and not unreadable.is_usable
        and not _has_whole_spec(unreadable)
    )


def _pod(unreadable: Unreadable, partial: Pod) -> Pod:
    metadata = partial.metadata
    if not metadata.uid:
        metadata = replace(metadata, uid=f"unreadable:{partial.key}")
    status = PodStatus(phase=partial.status.phase)
    if not fills_node(unreadable):
        return replace(partial, metadata=metadata, status=status)
    spec = partial.spec
    containers = (*spec.containers, *spec.init_containers)
    named = {name for container in containers for name in container.resources.requests}
    everything: dict[str, Quantity] = dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE, *named), MAX_REQUEST)
    filler = Container(name="unreadable", resources=ResourceRequirements(requests=everything))
    return Pod(
        metadata=metadata,
        spec=PodSpec(
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            priority=HIGHEST_PRIORITY,
            containers=(filler,),
        ),
        status=status,
    )


def _has_whole_spec(unreadable: Unreadable) -> bool:
    return not any(field.startswith("spec") for field in unreadable.fields)
