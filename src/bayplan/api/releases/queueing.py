"""How releases differ in the scheduling queue and its events.

The defaults are the rules of v1.36; `v1_37.py` names those that changed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The rules of queue and queueing hints that differ between releases."""

    pending_pod: str = "UnschedulablePod"
    """The name of pods without a node in events and metrics."""
    own_update: str = "UnschedulablePod"
    """The name of a waiting pod's own update."""
    has_scale_up: bool = False
    """Whether a pod that requests more than before is an event of its own (UpdatePodScaleUp), instead of the
    general update."""
    node_add_implies_taints: bool = True
    """Whether plugins that wait for new nodes also get every change of taints."""
    shares_own_updates: bool = False
    """Whether a pod that comes back from an attempt takes the own updates of all pods in flight for its own:
    their uids are no longer compared."""
    nominates_gated_pods: bool = False
    """Whether a new pod with status.nominatedNodeName counts as nominated even if it is gated. In v1.36 it
    does so only after its first update."""
    unknown_update_adds: bool = False
    """Whether an update of a pod that is not in the queue (or is there with another uid) counts as an
    addition."""
    counts_every_deletion: bool = False
    """Whether pods that are deleted while they are active or back off are subtracted from
    unschedulable_pods."""
    counts_flushed_pods: bool = False
    """Whether pods that are scheduled after the periodic flush are counted. In v1.36 the mark is lost."""
    group_queues: tuple[str, ...] = ()
    """Queues of pod groups, which `pending_pods` shows from the beginning, with 0 pods."""
    dump_label: str = "unschedulablePods"
    """The name of unschedulable pods in the dump after SIGUSR2."""
