"""The interface through which VolumeBinding writes to the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.framework.status import Status


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What has to be written before a pod can be bound: volumes first, then claims."""

    volumes: tuple[PersistentVolume, ...] = ()
    """Each with a reference to its claim."""
    claims: tuple[PersistentVolumeClaim, ...] = ()
    """Each with the node where a volume is to be provisioned for it."""

    @property
    def items(self) -> tuple[PersistentVolume | PersistentVolumeClaim, ...]:
        """All objects to write, in order."""
        return *self.volumes, *self.claims


class VolumeBinder(Protocol):
    """Executes binding plans."""

    async def bind(self, pod: Pod, node_name: str, plan: VolumePlan, timeout_seconds: float) -> Status | None:
        """Writes the plan and waits until all claims of the pod are bound.

        Returns None when they are, else `failure(...)`. There is no rollback. The records hold only what
        scheduling reads, so they are written as changes (claimRef and annotations), not as whole objects.
        """


@runtime_checkable
class BindsVolumes(Protocol):
    """A handle of a scheduler that can bind volumes."""

    @property
    def volumes(self) -> VolumeBinder: ...
