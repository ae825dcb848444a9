"""DefaultPreemption: a pod that fits on no node may preempt pods of lower priority.

PostFilter chooses the node where evicting costs least (`bayplan.preemption`), nominates the pod to it and
returns the victims. The scheduler evicts them; meanwhile PreEnqueue keeps the pod out of the queue.

https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from __future__ import annotations

from typing import ClassVar

from bayplan.plugin.args import DefaultPreemptionArgs
from bayplan.plugin.preemption import PreemptionPlugin


class DefaultPreemption(PreemptionPlugin):
    """Preempts pods of lower priority."""

    args_type: ClassVar = DefaultPreemptionArgs
