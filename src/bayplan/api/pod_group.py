"""PodGroup: pods that run only together.

The custom resource of the scheduler-plugins project, `scheduling.x-k8s.io/v1alpha1`. A pod belongs to the
group of its namespace that its label names; `plugins/coscheduling.py` implements the scheduling. Scheduling
does not read its status.
"""

from __future__ import annotations

from typing import Final

from bayplan.api.meta import (
    Int32,
    Object,
    Record,
)

POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"


class PodGroupSpec(Record, frozen=True):
    min_member: Int32 = 0
    """The minimum number of its pods that have to run together. Below 1 there is no requirement."""
    schedule_timeout_seconds: Int32 | None = None
    """How long the first pods wait for the last one; None: the default in the plugin's arguments."""


class PodGroup(Object, frozen=True):
    spec: PodGroupSpec = PodGroupSpec()
