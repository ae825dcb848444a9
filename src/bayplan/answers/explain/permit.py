"""What Permit would do with a pod that has found a node: a gang may hold it back.

The scheduler assumes a pod on its node before Permit, so that is done here, too, and undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.framework.state import CycleState
from bayplan.framework.status import describe, plugin_exceptions
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.extension_points import POINTS, Placement, RejectedError
from bayplan.runtime.framework import Framework
from bayplan.state.groups import group_key

GANG_SCHEDULING: Final = "GangScheduling"


class PermitStatus(StrEnum):
    WAIT = "Wait"
    """The pod would be held until the plugin allows it."""
    REJECTED = "Rejected"
    ERROR = "Error"
    """The plugin cannot be run here, so what it would do is unknown."""


@dataclass(frozen=True, slots=True)
class PermitResult:
    """The plugin that does not let a pod pass Permit, and its message."""

    plugin: str
    status: PermitStatus
    message: str


def permit(framework: Framework, pod: Pod, node_name: str, state: CycleState) -> PermitResult | None:
    """What Permit plugins say about the pod on this node; None if they let it pass.

    New instances of the plugins are used: an attempt that is not real must not change what they remember.
    """
    if not framework.profile.permits:
        return None
    cluster = framework.cluster
    cluster.add_pod(pod, node_name)
    try:
        placed = Placement(framework.profile, state, pod, node_name)
        for step in framework.profile.permits:
            if step.name == GANG_SCHEDULING and group_key(pod) is not None:
                continue  # it holds no member that its group's cycle has placed (`groups.py`)
            plugin = step.declared
            try:
                fresh: Any = type(plugin)(plugin.args, plugin.handle)
                wait = POINTS.permit_of(replace(step, plugin=fresh, declared=fresh), placed)
            except RejectedError as error:
                return PermitResult(step.name, PermitStatus.REJECTED, error.status.message)
            except AttemptError as error:
                return PermitResult(step.name, PermitStatus.ERROR, str(error))
            except plugin_exceptions() as error:
                return PermitResult(step.name, PermitStatus.ERROR, describe(error))
            if wait is not None:
                message = wait.reason or f"waits for at most {wait.seconds:g} s"
                return PermitResult(step.name, PermitStatus.WAIT, message)
    finally:
        cluster.remove_pod(pod.uid)
    return None
