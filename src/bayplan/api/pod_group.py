"""PodGroup: pods that are worth running only together.

The custom resource of the scheduler-plugins project, `scheduling.x-k8s.io/v1alpha1`. A pod belongs to the
group of its namespace that its label names; what that means for scheduling stands in
`plugins/coscheduling.py`. What controllers report in its status is nothing that scheduling reads.
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
    """How many of its pods have to run at the least. Below 1 it asks for nothing."""
    schedule_timeout_seconds: Int32 | None = None
    """How long the first of them wait for the last; None: as long as the plugin's arguments say."""


class PodGroup(Object, frozen=True):
    spec: PodGroupSpec = PodGroupSpec()
