"""The benchmark workloads: those of Kubernetes' own scheduler benchmark, and one of ours.

Names, steps and sizes are those of test/integration/scheduler_perf (v1.36), by default its largest size at
5,000 nodes, so that results are comparable. There `initPods` counts the pods of one step; here it counts all
of them. The workloads with devices have 500 nodes, as upstream; in the steady state 80 % of the devices are
allocated. `MixedShapes` and `Gangs` are ours (`make_shapes`). `runner.py` measures.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import Final

from bayplan.api.pod import Pod
from bayplan.bench import templates
from bayplan.bench.queues import QueueSetup
from bayplan.bench.runner import UnknownWorkloadError
from bayplan.bench.templates import make_shapes
from bayplan.bench.workload import Claims, DeviceSetup, Groups, PodSet, Workload
from bayplan.config import QueueDialect

NODES: Final = 5000
DEVICE_NODES: Final = 500
MOONS: Final = ("moon-1", "moon-2", "moon-3")
ONE_ZONE: Final = ("zone1",)
CROWD: Final = tuple(f"init-ns-{number}" for number in range(100))

ALIASES: Final = {"preemptionbasic": "Preemption"}
"""Upstream's name where ours differs, in lower case."""


def find_workload(name: str) -> Workload:
    """The workload of that name, in any case; the error for an unknown one suggests the nearest."""
    names = {workload.name.lower(): workload for workload in WORKLOADS}
    wanted = ALIASES.get(name.lower(), name).lower()
    if wanted in names:
        return names[wanted]
    nearest = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    raise UnknownWorkloadError(name, [names[match].name for match in nearest])


def _all_in(template: Pod, *namespaces: str) -> PodSet:
    return PodSet((template,), namespaces)


def _peers(
    name: str, summary: str, template: Pod, *, init_pods: int, pods: int, zones: tuple[str, ...] = ()
) -> Workload:
    """Pods of one affinity template, first in `sched-0`, then in `sched-1`: the terms select both
    namespaces."""
    return Workload(
        name=name,
        summary=summary,
        nodes=NODES,
        init_pods=init_pods,
        pods=pods,
        init=(_all_in(template, "sched-0"),),
        measured=_all_in(template, "sched-1"),
        zones=zones,
    )


def _peers_by_namespace_label(
    name: str, summary: str, template: Pod, *, init_pods: int, pods: int, zones: tuple[str, ...] = ()
) -> Workload:
    """Pods of one affinity template whose terms select all 101 namespaces with a label."""
    return Workload(
        name=name,
        summary=summary,
        nodes=NODES,
        init_pods=init_pods,
        pods=pods,
        init=(_all_in(template, *CROWD),),
        measured=_all_in(template, "measure-ns-0"),
        zones=zones,
        namespace_labels=tuple(templates.DEVOPS.items()),
    )


EXTENDED_PODS: Final = tuple(
    templates.make_claiming_template(requests={f"example.com/gpu-{number}": 1}) for number in range(25)
)


def _claiming(
    name: str,
    summary: str,
    templates: tuple[Pod, ...],
    devices: DeviceSetup,
    *,
    init_pods: int = 2500,
    pods: int = 2500,
) -> Workload:
    """Pods that request devices, on 500 nodes."""
    return Workload(
        name=name,
        summary=summary,
        nodes=DEVICE_NODES,
        init_pods=init_pods,
        pods=pods,
        init=(PodSet(templates, ("init",)),),
        measured=PodSet(templates, ("test",)),
        devices=devices,
    )


IN_ZONE: Final = Groups(4, topology_key=templates.ZONE)


def _in_groups(name: str, summary: str, groups: Groups) -> Workload:
    """Plain pods in groups, on nodes of fifty zones if these matter."""
    return Workload(
        name=name,
        summary=summary,
        nodes=NODES,
        init_pods=0,
        pods=3000,
        init=(_all_in(templates.DEFAULT_POD, "namespace-1"),),
        measured=_all_in(templates.DEFAULT_POD, "namespace-2"),
        zones=tuple(f"zone-{number}" for number in range(50)) if groups.topology_key else (),
        groups=groups,
    )


def _gang_preemption(name: str, summary: str, init_pods: int, cpu: str, groups: Groups) -> Workload:
    """A gang that needs a node for each pod, while pods of lower priority fill all nodes."""
    low = templates.make_template(cpu=cpu, memory="1Mi", grace_period_seconds=0)
    high = templates.make_template("pod-high-priority-", cpu="4", memory="1Mi", priority=10)
    return Workload(
        name=name,
        summary=summary,
        nodes=100,
        init_pods=init_pods,
        pods=100,
        init=(_all_in(low, "namespace-1"),),
        measured=_all_in(high, "namespace-2"),
        groups=groups,
    )


def _in_queues(name: str, summary: str, dialect: QueueDialect | None) -> Workload:
    """Plain pods of applications in capacity queues: a leaf for each hundred pods."""
    return Workload(
        name=name,
        summary=f"{summary} (not one of upstream's)",
        nodes=NODES,
        init_pods=0,
        pods=10_000,
        init=(_all_in(templates.DEFAULT_POD, "namespace-1"),),
        measured=_all_in(templates.DEFAULT_POD, "namespace-2"),
        queues=QueueSetup(dialect),
    )


WORKLOADS: Final[tuple[Workload, ...]] = (
    Workload(
        name="SchedulingBasic",
        summary="plain pods",
        nodes=NODES,
        init_pods=1000,
        pods=10_000,
        init=(_all_in(templates.DEFAULT_POD, "namespace-1"),),
        measured=_all_in(templates.DEFAULT_POD, "namespace-2"),
    ),
    _peers(
        "SchedulingPodAntiAffinity",
        "one pod a host, required",
        templates.ANTI_AFFINITY_POD,
        init_pods=1000,
        pods=2000,
    ),
    _peers(
        "SchedulingPodAffinity",
        "near other pods in the zone, required",
        templates.AFFINITY_POD,
        init_pods=5000,
        pods=5000,
        zones=ONE_ZONE,
    ),
    _peers(
        "SchedulingPreferredPodAffinity",
        "near other pods on the host, preferred",
        templates.PREFERRED_AFFINITY_POD,
        init_pods=5000,
        pods=5000,
    ),
    _peers(
        "SchedulingPreferredPodAntiAffinity",
        "away from other pods on the host, preferred",
        templates.PREFERRED_ANTI_AFFINITY_POD,
        init_pods=5000,
        pods=5000,
    ),
    Workload(
        name="SchedulingNodeAffinity",
        summary="only in certain zones",
        nodes=NODES,
        init_pods=5000,
        pods=10_000,
        init=(_all_in(templates.NODE_AFFINITY_POD, "namespace-1"),),
        measured=_all_in(templates.NODE_AFFINITY_POD, "namespace-2"),
        zones=ONE_ZONE,
    ),
    # At 2,000 pods upstream takes 6,000 nodes, since no two pods may share one: 1,000 is its size for 5,000.
    _peers_by_namespace_label(
        "SchedulingRequiredPodAntiAffinityWithNSSelector",
        "one pod a host over 101 namespaces, required",
        templates.NS_ANTI_AFFINITY_POD,
        init_pods=4000,
        pods=1000,
    ),
    _peers_by_namespace_label(
        "SchedulingPreferredAntiAffinityWithNSSelector",
        "away from pods of 101 namespaces, preferred",
        templates.NS_PREFERRED_ANTI_AFFINITY_POD,
        init_pods=4000,
        pods=2000,
    ),
    _peers_by_namespace_label(
        "SchedulingRequiredPodAffinityWithNSSelector",
        "in the zone of pods of 101 namespaces, required",
        templates.NS_AFFINITY_POD,
        init_pods=5000,
        pods=2000,
        zones=ONE_ZONE,
    ),
    _peers_by_namespace_label(
        "SchedulingPreferredAffinityWithNSSelector",
        "near pods of 101 namespaces, preferred",
        templates.NS_PREFERRED_AFFINITY_POD,
        init_pods=5000,
        pods=5000,
    ),
    Workload(
        name="TopologySpreading",
        summary="spread over three zones, required",
        nodes=NODES,
        init_pods=5000,
        pods=5000,
        init=(_all_in(templates.DEFAULT_POD, "namespace-1"),),
        measured=_all_in(templates.SPREADING_POD, "namespace-2"),
        zones=MOONS,
    ),
    Workload(
        name="PreferredTopologySpreading",
        summary="spread over three zones, preferred",
        nodes=NODES,
        init_pods=5000,
        pods=5000,
        init=(_all_in(templates.DEFAULT_POD, "namespace-1"),),
        measured=_all_in(templates.PREFERRED_SPREADING_POD, "namespace-2"),
        zones=MOONS,
    ),
    Workload(
        name="MixedSchedulingBasePod",
        summary="plain pods among pods with all kinds of pod affinity",
        nodes=NODES,
        init_pods=10_000,
        pods=5000,
        init=tuple(
            _all_in(template, "sched-0")
            for template in (
                templates.DEFAULT_POD,
                templates.AFFINITY_POD,
                templates.ANTI_AFFINITY_POD,
                templates.PREFERRED_AFFINITY_POD,
                templates.PREFERRED_ANTI_AFFINITY_POD,
            )
        ),
        measured=_all_in(templates.DEFAULT_POD, "namespace-7"),
        zones=ONE_ZONE,
    ),
    Workload(
        name="Unschedulable",
        summary="plain pods, now and then one of high priority that fits nowhere",
        nodes=NODES,
        init_pods=100,
        pods=10_000,
        init=(_all_in(templates.DEFAULT_POD, "namespace-1"),),
        measured=_all_in(templates.DEFAULT_POD, "namespace-3"),
        background=_all_in(templates.LARGE_POD, "namespace-2"),
    ),
    Workload(
        name="Preemption",
        summary="every pod has to evict three others",
        nodes=NODES,
        init_pods=20_000,
        pods=5000,
        init=(_all_in(templates.LOW_PRIORITY_POD, "namespace-1"),),
        measured=_all_in(templates.HIGH_PRIORITY_POD, "namespace-2"),
    ),
    Workload(
        name="MixedShapes",
        summary="fifty kinds of pods in turn (not one of upstream's)",
        nodes=NODES,
        init_pods=1000,
        pods=10_000,
        init=(PodSet(make_shapes(MOONS), ("shapes",)),),
        measured=PodSet(make_shapes(MOONS), ("shapes",)),
        zones=MOONS,
    ),
    Workload(
        name="Gangs",
        summary="a hundred groups of fifty pods that run together or not at all (not one of upstream's)",
        nodes=NODES,
        init_pods=1000,
        pods=5000,
        init=(_all_in(templates.DEFAULT_POD, "namespace-1"),),
        measured=_all_in(templates.DEFAULT_POD, "namespace-2"),
        group_size=50,
    ),
    _in_queues(
        "CapacityQueues", "a queue for each hundred pods, with guarantee and maximum", QueueDialect.BAYPLAN
    ),
    _in_queues("VolcanoQueues", "the same with Volcano's queues and PodGroups", QueueDialect.VOLCANO),
    _in_queues("WithoutQueues", "the same pods without queues", None),
    _in_groups(
        "BasicScheduling", "groups of three pods that need not run together", Groups(3, is_gang=False)
    ),
    _in_groups("GangScheduling", "gangs of three pods", Groups(3)),
    _in_groups("GangScheduling_1000Pods", "three gangs of a thousand pods", Groups(1000)),
    _in_groups(
        "TopologyAwareScheduling",
        "gangs of four pods, each in one of fifty zones",
        Groups(4, topology_key=templates.ZONE),
    ),
    _in_groups(
        "TopologyAwareScheduling_1000Pods",
        "three gangs of a thousand pods, each in one of fifty zones",
        replace(IN_ZONE, size=1000),
    ),
    _gang_preemption(
        "GangPreemptionBasic", "a gang of a hundred pods that evicts a thousand", 1000, "400m", Groups(100)
    ),
    _gang_preemption(
        "GangPreemptionPodGroups",
        "a gang of a hundred pods that evicts five such gangs",
        500,
        "800m",
        Groups(100, init_size=100),
    ),
    _claiming(
        "SchedulingWithResourceClaimTemplate",
        "a device for each pod, claims from a template, until all devices are taken",
        (templates.CLAIM_TEMPLATE_POD,),
        DeviceSetup(per_node=10),
    ),
    _claiming(
        "SteadyStateClusterResourceClaimTemplate",
        "the same at 80 % of all devices, pods come and go",
        (templates.CLAIM_TEMPLATE_POD,),
        DeviceSetup(per_node=8, batch=10),
        init_pods=3200,
        pods=1000,
    ),
    _claiming(
        "SchedulingWithResourceClaim",
        "a device for five pods that share a claim",
        (templates.SHARED_CLAIM_POD,),
        DeviceSetup(per_node=2, claims=Claims.SHARED),
    ),
    _claiming(
        "FirstAvailable",
        "a device for each pod, the second of two alternatives",
        (templates.CLAIM_TEMPLATE_POD,),
        DeviceSetup(per_node=10, claims=Claims.ALTERNATIVES, batch=10),
        pods=1000,
    ),
    _claiming(
        "ExtendedResource_25Classes",
        "a device for each pod as one of 25 extended resources",
        EXTENDED_PODS,
        DeviceSetup(per_node=10, claims=Claims.EXTENDED, classes=len(EXTENDED_PODS)),
    ),
)
