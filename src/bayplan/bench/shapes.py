"""Fifty pod shapes in turn: no two consecutive pods are identical.

The workloads of upstream's benchmark create one kind of pod at a time, which favours a scheduler that caches
results by pod. Real clusters mix. Each shape here is an application of its own (label, size) with one of ten
kinds of constraints; each can always be scheduled, on one node as on thousands, so that a run of any size
measures scheduling and not failure.
"""

from __future__ import annotations

from typing import Final

from bayplan.api.meta import LabelSelector, NodeSelector
from bayplan.api.pod import (
    Affinity,
    NodeAffinity,
    Pod,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
)
from bayplan.bench.templates import (
    HOSTNAME,
    ZONE,
    make_template,
    preferred,
    required,
    spread_over,
    zone_in,
)

SIZES: Final = (("50m", "64Mi"), ("100m", "128Mi"), ("100m", "500Mi"), ("150m", "256Mi"), ("200m", "500Mi"))
"""Requests of the five applications of a kind; small enough that 10,000 pods fit on 5,000 nodes."""

KINDS: Final = 10


def make_shapes(zones: tuple[str, ...]) -> tuple[Pod, ...]:
    """All shapes in turn: neighbours differ in kind and in size."""
    return tuple(
        _make_shape(kind, size, SIZES[(size + kind) % len(SIZES)], zones)
        for size in range(len(SIZES))
        for kind in range(KINDS)
    )


def _make_shape(kind: int, round_: int, size: tuple[str, str], zones: tuple[str, ...]) -> Pod:
    cpu, memory = size
    number = round_ * KINDS + kind
    labels = {"app": f"app-{number:02d}", "tier": ("web", "batch")[kind % 2]}
    own = {"app": labels["app"]}
    home = zones[number % len(zones)]
    affinity: Affinity | None = None
    spread: tuple[TopologySpreadConstraint, ...] = ()
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] = ()
    match kind:
        case 0:
            pass  # only a size
        case 1:
            node_selector = {ZONE: zones[0]}
        case 2:
            affinity = _only_in(zones[0], home)
        case 3:
            term = PreferredSchedulingTerm(weight=10, preference=zone_in(home))
            affinity = Affinity(node_affinity=NodeAffinity(preferred=(term,)))
        case 4:
            tolerations = (Toleration(key="dedicated", operator="Equal", value="batch", effect="NoSchedule"),)
        case 5:
            spread = (spread_over(own, ZONE, "DoNotSchedule"),)
        case 6:
            spread = (spread_over(own, ZONE, "ScheduleAnyway"), spread_over(own, HOSTNAME, "ScheduleAnyway"))
        case 7:
            affinity = Affinity(pod_anti_affinity=preferred(_near(own, HOSTNAME), weight=100))
        case 8:
            # Affinity to its own application: the first pod may start anywhere, the others go to its zone.
            affinity = Affinity(pod_affinity=required(_near(own, ZONE)))
        case 9:
            affinity = Affinity(pod_affinity=preferred(_near({"tier": "web"}, ZONE), weight=50))
    return make_template(
        f"{labels['app']}-",
        cpu=cpu,
        memory=memory,
        labels=labels,
        affinity=affinity,
        spread=spread,
        node_selector=node_selector,
        tolerations=tolerations,
    )


def _only_in(*zones: str) -> Affinity:
    selector = NodeSelector(node_selector_terms=tuple(zone_in(zone) for zone in dict.fromkeys(zones)))
    return Affinity(node_affinity=NodeAffinity(required=selector))


def _near(labels: dict[str, str], topology_key: str) -> PodAffinityTerm:
    """A term over pods of the pod's own namespace."""
    return PodAffinityTerm(label_selector=LabelSelector(match_labels=labels), topology_key=topology_key)
