"""Objects that a scheduler cannot read for a while: somebody has written nonsense into them.

Which ones is a matter of the world (`fault_workload.py`); here it is seen by whoever lists and watches.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod, PodSpec, PodStatus
from bayplan.api.reading import Unreadable

SPOILED: Final = "cannot be read: "
"""In the log where a scheduler has met such an object: it is an error, but none of the scheduler's."""

ObjectT = TypeVar("ObjectT", bound=Object)


class Spoiled:
    """The objects that cannot be read at the moment, by uid."""

    def __init__(self) -> None:
        self.uids: set[str] = set()

    def seen(self, item: ObjectT) -> ObjectT:
        """The object as it is seen: what is spoiled has lost what matters most to a scheduler."""
        if item.uid not in self.uids:
            return item
        partial: Object
        if isinstance(item, Pod):
            spec = PodSpec(node_name=item.spec.node_name, scheduler_name=item.spec.scheduler_name)
            partial = Pod(metadata=item.metadata, spec=spec, status=PodStatus(phase=item.status.phase))
        else:
            partial = Node(metadata=item.metadata)
        unreadable = Unreadable(
            metadata=item.metadata,
            kind=type(item).__name__,
            fields=("spec.containers[0].resources" if isinstance(item, Pod) else "status.allocatable",),
            problem="spoiled",
            partial=partial,
        )
        return cast(ObjectT, unreadable)
