"""Objects that a scheduler cannot read for a while, because they contain invalid values.

`fault_workload.py` chooses them; this module changes what lists and watches return.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod, PodSpec, PodStatus
from bayplan.api.reading import Unreadable

SPOILED: Final = "cannot be read: "
"""In the log when a scheduler reads such an object: an error, but not one of the scheduler."""

ObjectT = TypeVar("ObjectT", bound=Object)


class Spoiled:
    """The objects that are unreadable now, by uid."""

    def __init__(self) -> None:
        self.uids: set[str] = set()

    def seen(self, item: ObjectT) -> ObjectT:
        """The object as clients see it: an unreadable one lacks what matters most to a scheduler."""
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
