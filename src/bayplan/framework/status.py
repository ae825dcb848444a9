"""The status that a plugin returns. "It does not fit" is a status, not an exception."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Code(IntEnum):
    """The codes of the scheduling framework, with upstream's numbers."""

    SUCCESS = 0
    ERROR = 1
    """An error. The attempt fails and the pod is scheduled again after a backoff."""
    UNSCHEDULABLE = 2
    """Rejected; evicting pods may help."""
    UNRESOLVABLE = 3
    """Rejected, and evicting pods cannot help (UnschedulableAndUnresolvable)."""
    WAIT = 4
    """Only Permit: the pod has to wait before it is bound."""
    SKIP = 5
    """The plugin has nothing to do for this pod."""
    PENDING = 6
    """Rejected; the pod is scheduled again without a backoff when an event requeues it."""

    @property
    def label(self) -> str:
        """The name that events, metrics and decisions show."""
        return _LABELS[self]

    @property
    def is_rejection(self) -> bool:
        return self in (Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING)


_LABELS = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}


@dataclass(frozen=True, slots=True)
class Status:
    """A code, the reasons for it, and the plugin that returned it."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_rejection(self) -> bool:
        return self.code.is_rejection

    def by(self, plugin: str) -> Status:
        """The same status with the plugin's name, unless it has one."""
        return self if self.plugin else Status(self.code, self.reasons, plugin)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)
SKIP_FOR_SIGNATURE = Status(Code.SKIP, ("idle",))
"""SKIP for all pods with the same signature, until objects or (anti-)affinity terms change."""


def unschedulable(*reasons: str) -> Status:
    """Rejected; evicting pods may help."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Rejected, and evicting pods cannot help."""
    return Status(Code.UNRESOLVABLE, reasons)


def failure(*reasons: str) -> Status:
    """An error."""
    return Status(Code.ERROR, reasons)
