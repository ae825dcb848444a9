"""The progress of a pod after a node was found for it, for display (`Scheduler(on_binding=…)`).

A decision is not a binding: Permit may delay the pod, and Reserve, Permit, PreBind or Bind may reject it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bayplan.api.pod import Pod


class BindingStep(Enum):
    WAITING = "waiting at Permit"
    BOUND = "bound"
    REJECTED = "rejected"
    """A plugin rejected the pod."""
    FAILED = "failed"
    """A plugin or the API server failed."""


@dataclass(frozen=True, slots=True)
class BindingProgress:
    pod: Pod
    node_name: str
    step: BindingStep
    point: str = ""
    """The extension point at which it was rejected or failed."""
    plugins: tuple[str, ...] = ()
    """The plugins for which the pod waits at Permit, or the one that rejected it."""
    reason: str = ""
