"""Topology spread: how many matching pods each domain has, and how many more one may have."""

from __future__ import annotations

from typing import Final

import numpy as np

from bayplan.answers.explain.details.subject import Subject
from bayplan.plugins.pod_topology_spread import MISSING_LABEL
from bayplan.plugins.pod_topology_spread.counts import Limit

MAX_DOMAINS: Final = 6


def spread_detail(subject: Subject) -> str:
    """The constraints that reject the nodes, each with its counts by domain."""
    limits: tuple[Limit, ...] | None = subject.plugin_state()
    if not limits:
        return ""
    is_missing = MISSING_LABEL in subject.status.reasons
    texts = []
    for limit in limits:
        key = limit.domains.constraint.topology_key
        ids = subject.cluster.nodes.label(key).column.array.take(subject.rows)
        if is_missing and (ids < 0).any():
            texts.append(f"no label {key}")
        elif not is_missing and (limit.totals.take(ids[ids >= 0]) >= limit.first_violating_count).any():
            texts.append(_skew(subject, limit))
    return "; ".join(texts)


def _skew(subject: Subject, limit: Limit) -> str:
    """`zone: eu-a 3, eu-b 1; 1 at least, so 2 at most with maxSkew 1`."""
    constraint = limit.domains.constraint
    label = subject.cluster.nodes.label(constraint.topology_key)
    known = sorted(limit.domains.known.tolist(), key=lambda one: (-int(limit.totals[one]), one))
    here = set(np.unique(label.column.array.take(subject.rows)).tolist())
    # The domains of these nodes first: they are full.
    known.sort(key=lambda one: one not in here)
    shown = [f"{label.values.values[one]} {int(limit.totals[one]):,}" for one in known[:MAX_DOMAINS]]
    left = len(known) - len(shown)
    more = f" and {left:,} more domains" if left > 0 else ""
    allowed = constraint.max_skew + limit.smallest
    few = ""
    if len(known) < constraint.min_domains:
        few = f" (fewer than minDomains {constraint.min_domains}, so the minimum counts as 0)"
    return (
        f"{constraint.topology_key}: {', '.join(shown)}{more}; minimum {limit.smallest:,}{few} + maxSkew "
        f"{constraint.max_skew} allows {allowed:,}"
    )
