"""Warnings: ways in which a result may differ from what a scheduler would do on the cluster itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """What kind of warning it is, for programs."""

    MISSING_OBJECT = "MissingObject"
    """An object that a pod refers to was not loaded."""
    MISSING_KIND = "MissingKind"
    """No object of a kind was loaded, or it could not be listed."""
    UNREADABLE_OBJECT = "UnreadableObject"
    """An object has fields that cannot be read."""
    NOT_RUN = "NotRun"
    """An extension point or an extender that the configuration has is not run."""
    ABSENT_PLUGIN = "AbsentPlugin"
    """The configuration names a plugin that is not there."""
    OTHER_VERSION = "OtherVersion"
    """The API server has a version that bayplan does not implement."""
    REPORTED_UNSCHEDULABLE = "ReportedUnschedulable"
    """The pod's own scheduler has reported that it does not fit, and this result is that it does."""
    CLUSTER_CHANGED = "ClusterChanged"
    """The pod was scheduled on an earlier state of the cluster."""


@dataclass(frozen=True, slots=True)
class Warning:
    """A way in which the result may be wrong."""

    message: str
    pod: str = ""
    """namespace/name; empty if it concerns all pods."""
    reason: Reason = Reason.MISSING_OBJECT
    object: str = ""
    """What is missing: `PersistentVolumeClaim default/data`, `poddisruptionbudgets`, a plugin's name."""

    def as_json(self) -> dict[str, str]:
        fields = {
            "pod": self.pod,
            "reason": self.reason.value,
            "object": self.object,
            "message": self.message,
        }
        return {name: text for name, text in fields.items() if text}
