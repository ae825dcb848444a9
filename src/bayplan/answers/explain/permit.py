"""What Permit would do with a pod that has found a node: a gang may hold it back.

The scheduler assumes a pod on its node before Permit, so that is done here, too, and undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import Wait
from bayplan.framework.state import CycleState
from bayplan.runtime.framework import Framework


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
        for step in framework.profile.permits:
            plugin = step.plugin
            try:
                fresh = type(plugin)(plugin.args, plugin.handle)  # type: ignore[attr-defined, call-arg]
                answer = fresh.permit(state, pod, node_name)
            except Exception as error:
                return PermitResult(step.name, PermitStatus.ERROR, f"{type(error).__name__}: {error}")
            if isinstance(answer, Wait):
                message = answer.reason or f"waits for at most {answer.seconds:g} s"
                return PermitResult(step.name, PermitStatus.WAIT, message)
            if answer is not None and not answer.is_success:
                return PermitResult(step.name, PermitStatus.REJECTED, answer.message)
    finally:
        cluster.remove_pod(pod.uid)
    return None
