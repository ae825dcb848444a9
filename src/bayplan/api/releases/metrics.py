"""How releases differ in their metrics.

The defaults are those of v1.36; `v1_37.py` names what changed. Families are named in full, as on /metrics;
their types, labels and buckets are in `bayplan/metrics`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricRules:
    """Which metrics a release has, and how it counts where releases differ."""

    families: frozenset[str] = frozenset({"scheduler_resourceclaim_creates_total"})
    """Of the families that only some releases have: those of this release."""
    beta: frozenset[str] = frozenset()
    """Families whose stability level is BETA, and was ALPHA in the first release."""
    hidden: frozenset[str] = frozenset()
    """Deprecated families, which are shown only with --show-hidden-metrics-for-version."""
    batch_flush_reasons: tuple[str, ...] = (
        *("pod_skipped", "pod_failed", "pod_incompatible", "expired", "node_missing", "node_not_full"),
        *("pod_not_batchable", "empty_list"),
    )
    """Why kube-scheduler drops the results that it keeps for the next pod."""
    measures_preemption_tasks: bool = False
    """Whether the tasks that evict victims are recorded when they end, with their result. In v1.36 they are
    recorded when they start: as successful, with a duration of 0."""
    counts_terminating_victims: bool = False
    """Whether a preemption is counted although all its victims are already terminating."""
