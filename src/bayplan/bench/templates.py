"""The pods, nodes and namespaces of the benchmarks, as an API server would store them.

Requests, labels, affinity terms and spread constraints are those of the templates of Kubernetes' own
scheduler benchmark (test/integration/scheduler_perf/templates, v1.36), so that results are comparable. A
template is a record without name, namespace and uid; `workloads.py` sets the numbers and gives every object
its own.

Defaults that an API server and its admission would set are included: nothing sets them between these records
and the scheduler.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from bayplan.api.meta import (
    Condition,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
)
from bayplan.api.node import Node, NodeStatus
from bayplan.api.pod import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"

IMAGE: Final = "pause:3.10.2"

SCHED_NAMESPACES: Final = ("sched-1", "sched-0")
"""The namespaces that the affinity templates select; the workloads create the pods there."""

DEVOPS: Final = {"team": "devops"}
"""The label of the namespaces that the NSSelector templates select."""

DEFAULT_TOLERATIONS: Final = tuple(
    Toleration(
        key=f"node.kubernetes.io/{trouble}", operator="Exists", effect="NoExecute", toleration_seconds=300
    )
    for trouble in ("not-ready", "unreachable")
)
"""What the DefaultTolerationSeconds admission adds to every pod."""

NODE: Final = Node(
    status=NodeStatus(
        capacity={"cpu": "4", "memory": "32Gi", "pods": "110"},
        allocatable={"cpu": "4", "memory": "32Gi", "pods": "110"},
        conditions=(Condition(type="Ready", status="True"),),
    )
)


def make_template(
    generate_name: str = "pod-",
    *,
    cpu: str = "100m",
    memory: str = "500Mi",
    limits: bool = True,
    labels: dict[str, str] | None = None,
    priority: int = 0,
    affinity: Affinity | None = None,
    spread: tuple[TopologySpreadConstraint, ...] = (),
    node_selector: dict[str, str] | None = None,
    tolerations: tuple[Toleration, ...] = (),
    grace_period_seconds: int = 30,
) -> Pod:
    """A pending pod with one pause container, complete except for its identity."""
    requests = {"cpu": cpu, "memory": memory}
    container = Container(
        name="pause",
        image=IMAGE,
        ports=(ContainerPort(container_port=80, protocol="TCP"),),
        resources=ResourceRequirements(requests=dict(requests), limits=dict(requests) if limits else {}),
    )
    return Pod(
        metadata=ObjectMeta(generate_name=generate_name, labels=labels or {}),
        spec=PodSpec(
            scheduler_name="default-scheduler",
            priority=priority,
            preemption_policy="PreemptLowerPriority",
            affinity=affinity,
            node_selector=node_selector,
            tolerations=tolerations + DEFAULT_TOLERATIONS,
            topology_spread_constraints=spread,
            containers=(container,),
            termination_grace_period_seconds=grace_period_seconds,
        ),
        status=PodStatus(phase="Pending"),
    )


def make_claiming_template(
    claim: PodResourceClaim | None = None, requests: dict[str, str | int | float] | None = None
) -> Pod:
    """A pending pod that requests only devices: through a claim, or as extended resources."""
    template = make_template("test-dra-")
    wanted = requests or {}
    container = Container(
        name="pause", image=IMAGE, resources=ResourceRequirements(requests=wanted, limits=dict(wanted))
    )
    claims = () if claim is None else (claim,)
    return replace(template, spec=replace(template.spec, containers=(container,), resource_claims=claims))


def peers(labels: dict[str, str], topology_key: str, *, by_label: bool = False) -> PodAffinityTerm:
    """A term over pods with these labels: in the two `sched` namespaces, or in those labelled `DEVOPS`."""
    selector = LabelSelector(match_labels=labels)
    if by_label:
        return PodAffinityTerm(
            label_selector=selector,
            topology_key=topology_key,
            namespace_selector=LabelSelector(match_labels=DEVOPS),
        )
    return PodAffinityTerm(label_selector=selector, topology_key=topology_key, namespaces=SCHED_NAMESPACES)


def required(term: PodAffinityTerm) -> PodAffinity:
    return PodAffinity(required=(term,))


def preferred(term: PodAffinityTerm, weight: int = 1) -> PodAffinity:
    return PodAffinity(preferred=(WeightedPodAffinityTerm(weight=weight, pod_affinity_term=term),))


def zone_in(*zones: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=(LabelSelectorRequirement(key=ZONE, operator="In", values=zones),)
    )


def spread_over(
    labels: dict[str, str], topology_key: str, when_unsatisfiable: str, max_skew: int = 5
) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=max_skew,
        topology_key=topology_key,
        when_unsatisfiable=when_unsatisfiable,
        label_selector=LabelSelector(match_labels=labels),
    )


_BLUE: Final = {"color": "blue"}
_GREEN: Final = {"color": "green"}
_RED: Final = {"color": "red"}
_YELLOW: Final = {"color": "yellow"}

DEFAULT_POD: Final = make_template()

ANTI_AFFINITY_POD: Final = make_template(
    "anti-affinity-pod-",
    labels=_GREEN,
    affinity=Affinity(pod_anti_affinity=required(peers(_GREEN, HOSTNAME))),
)
AFFINITY_POD: Final = make_template(
    "affinity-pod-",
    labels=_BLUE,
    affinity=Affinity(pod_affinity=required(peers(_BLUE, ZONE))),
)
PREFERRED_AFFINITY_POD: Final = make_template(
    "preferred-affinity-pod-",
    labels=_RED,
    affinity=Affinity(pod_affinity=preferred(peers(_RED, HOSTNAME))),
)
PREFERRED_ANTI_AFFINITY_POD: Final = make_template(
    "preferred-anti-affinity-pod-",
    labels=_YELLOW,
    affinity=Affinity(pod_anti_affinity=preferred(peers(_YELLOW, HOSTNAME))),
)

NODE_AFFINITY_POD: Final = make_template(
    "node-affinity-",
    affinity=Affinity(
        node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(zone_in("zone1", "zone2"),)))
    ),
)

NS_ANTI_AFFINITY_POD: Final = make_template(
    "anti-affinity-pod-",
    labels=_GREEN,
    affinity=Affinity(pod_anti_affinity=required(peers(_GREEN, HOSTNAME, by_label=True))),
)
NS_PREFERRED_ANTI_AFFINITY_POD: Final = make_template(
    "anti-affinity-pod-",
    labels=_GREEN,
    affinity=Affinity(pod_anti_affinity=preferred(peers(_GREEN, HOSTNAME, by_label=True))),
)
NS_AFFINITY_POD: Final = make_template(
    "affinity-pod-",
    labels=_BLUE,
    affinity=Affinity(pod_affinity=required(peers(_BLUE, ZONE, by_label=True))),
)
NS_PREFERRED_AFFINITY_POD: Final = make_template(
    "preferred-affinity-pod-",
    labels=_RED,
    affinity=Affinity(pod_affinity=preferred(peers(_RED, HOSTNAME, by_label=True))),
)

SPREADING_POD: Final = make_template(
    "spreading-pod-", labels=_BLUE, spread=(spread_over(_BLUE, ZONE, "DoNotSchedule"),)
)
PREFERRED_SPREADING_POD: Final = make_template(
    "spreading-pod-", labels=_BLUE, spread=(spread_over(_BLUE, ZONE, "ScheduleAnyway"),)
)

LOW_PRIORITY_POD: Final = make_template(cpu="900m", grace_period_seconds=0)
"""Four of them leave 400m of a node: a high-priority pod has to evict three."""

HIGH_PRIORITY_POD: Final = make_template("pod-high-priority-", cpu="3", priority=10)

LARGE_POD: Final = make_template("pod-h-", cpu="9", priority=10, limits=False)
"""More CPU than any node has: it neither fits nor can preempt."""

CLAIM_TEMPLATE_POD: Final = make_claiming_template(
    PodResourceClaim(name="resource", resource_claim_template_name="test-claim-template")
)
SHARED_CLAIM_POD: Final = make_claiming_template(
    PodResourceClaim(name="resource", resource_claim_name="test-claim")
)
"""The workload gives each five of them a claim of their own."""


SIZES: Final = (("50m", "64Mi"), ("100m", "128Mi"), ("100m", "500Mi"), ("150m", "256Mi"), ("200m", "500Mi"))
"""Requests of the five applications of a kind; small enough that 10,000 pods fit on 5,000 nodes."""

KINDS: Final = 10


def make_shapes(zones: tuple[str, ...]) -> tuple[Pod, ...]:
    """Fifty pod shapes in turn: neighbours differ in kind and in size.

    The workloads of upstream's benchmark create one kind of pod at a time, which favours a scheduler that
    caches results by pod. Real clusters mix. Each shape is an application of its own (label, size) with one
    of ten kinds of constraints. Each can always be scheduled, on one node as on thousands, so that a run of
    any size measures scheduling and not failure.
    """
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
