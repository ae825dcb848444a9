"""What has to be true of a scheduler and its cluster once all faults are over and everything is quiet.

Each check yields sentences about what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.pod_group import POD_GROUP_LABEL, PodGroup
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.loop import Scheduler
from bayplan.server.store import MemoryStore


def untidiness(scheduler: Scheduler, store: MemoryStore) -> Iterator[str]:
    """What the scheduler believes and is not so."""
    yield from nothing_under_way(scheduler)
    yield from knowledge(scheduler, store)
    yield from waiting(scheduler, store)
    yield from nominations(scheduler)


def oversights(scheduler: Scheduler, store: MemoryStore) -> Iterator[str]:
    """Pods that could run and do not."""
    yield from forgotten(scheduler, store)
    yield from incomplete_groups(scheduler, store)


def nothing_under_way(scheduler: Scheduler) -> Iterator[str]:
    """No assumption has leaked, no attempt is still counted as under way."""
    context = scheduler.context
    for pod in context.cache.assumed_pods():
        yield f"pod {pod.key} is still assumed on {context.cache.node_of(pod.uid)}"
    for what, many in (
        ("pods wait for a permit", len(context.waiting)),
        ("pods are in PreBind", len(context.pre_binding)),
        ("preemptions are under way", len(context.preempting)),
        ("tasks are running", len(context.tasks)),
    ):
        if many:
            yield f"{many} {what}"
    in_flight = context.queue.in_flight_counts()
    if in_flight:
        yield f"in flight: {in_flight}"


def knowledge(scheduler: Scheduler, store: MemoryStore) -> Iterator[str]:
    """The scheduler knows the cluster as it is: objects, and who stands where."""
    for informer in scheduler.informers:
        known = {item.key: item.metadata.resource_version for item in informer.all()}
        there = {
            item.key: item.metadata.resource_version
            for item in store.list(informer.kind)
            if not (isinstance(item, Pod) and item.is_finished)
        }
        if known != there:
            yield f"{informer.kind.__name__}: known {known}, but there are {there}"
    cluster = scheduler.context.cluster
    placed = {pod.uid: pod for pod in store.list(Pod) if pod.spec.node_name and not pod.is_finished}
    for pod in placed.values():
        stands = scheduler.context.cache.node_of(pod.uid)
        if stands != pod.spec.node_name:
            yield f"pod {pod.key} is on {pod.spec.node_name}, but counted on {stands or 'no node'}"
    if scheduler.context.cache.pod_count != len(placed):
        yield f"{scheduler.context.cache.pod_count} pods are counted, but {len(placed)} are there"
    fresh = fresh_core(scheduler, store)
    for node in store.list(Node):
        ours, true = cluster.nodes.row_of.get(node.name), fresh.cluster.nodes.row_of[node.name]
        if ours is None:
            yield f"node {node.name} is not known"
            continue
        if cluster.free(ours) != fresh.cluster.free(true):
            yield f"node {node.name}: free {cluster.free(ours)}, but should be {fresh.cluster.free(true)}"
        if cluster.nodes.pod_count.cell[ours] != fresh.cluster.nodes.pod_count.cell[true]:
            yield f"node {node.name}: pods {cluster.nodes.pod_count.cell[ours]} are not counted right"
    if cluster.node_count != len(store.list(Node)):
        yield f"{cluster.node_count} nodes are counted"


def waiting(scheduler: Scheduler, store: MemoryStore) -> Iterator[str]:
    """Every pod of ours without a node is in the queue as it is now, and nobody else is."""
    queued = {pod.uid: pod for pod in scheduler.context.queue.pending_pods()}
    wanted = {pod.uid: pod for pod in store.list(Pod) if is_ours(scheduler, pod) and not pod.spec.node_name}
    for uid in queued.keys() - wanted.keys():
        yield f"pod {queued[uid].key} is queued, but does not wait"
    for uid, pod in wanted.items():
        if uid not in queued:
            yield f"pod {pod.key} waits, but is not queued"
        elif queued[uid].metadata.resource_version != pod.metadata.resource_version:
            yield f"pod {pod.key} is queued as it was"


def nominations(scheduler: Scheduler) -> Iterator[str]:
    """Only waiting pods are nominated, and columns and queue agree on where."""
    queue, cluster = scheduler.context.queue, scheduler.context.cluster
    known = 0
    for pod in queue.pending_pods():
        node_name = queue.nominator.node_of(pod.uid)
        known += node_name is not None
        if (node_name or None) != cluster.nominated_node(pod.uid):
            there = cluster.nominated_node(pod.uid)
            yield f"pod {pod.key} is nominated to {node_name}, in columns to {there}"
    if len(queue.nominator) != known:
        yield f"{len(queue.nominator) - known} pods are nominated that do not wait"
    if sum(map(len, cluster.nominated.values())) > known:
        yield "columns have nominations of pods that do not wait"


def forgotten(scheduler: Scheduler, store: MemoryStore) -> Iterator[str]:
    """A pod that waits fits nowhere, and could not make room by preemption."""
    core = fresh_core(scheduler, store)
    for pod in store.list(Pod):
        if not can_be_tried(scheduler, pod) or missing_of_group(store, pod) > 0:
            continue
        decision = core.decide(pod)
        info = scheduler.context.queue.find(pod.key)
        where = (
            ""
            if info is None or info.part is None
            else f"; it is {info.part.label}, by {set(info.rejectors)}"
        )
        if decision.fits:
            yield f"pod {pod.key} fits on {decision.node_name}, but waits{where}"
        elif decision.post_filter is not None and decision.post_filter.eviction is not None:
            victims = " ".join(victim.name for victim in decision.post_filter.eviction.victims)
            yield f"pod {pod.key} could preempt {victims}, but waits{where}"


def incomplete_groups(scheduler: Scheduler, store: MemoryStore) -> Iterator[str]:
    """A group of which too few pods run has no pods that would fit and make it complete."""
    for group in store.list(PodGroup):
        members = [pod for pod in store.list(Pod) if pod.labels.get(POD_GROUP_LABEL) == group.name]
        members = [pod for pod in members if not pod.is_finished and not pod.is_terminating]
        running = sum(bool(pod.spec.node_name) for pod in members)
        candidates = [pod for pod in members if can_be_tried(scheduler, pod)]
        if running >= group.spec.min_member or running + len(candidates) < group.spec.min_member:
            continue
        core = fresh_core(scheduler, store)
        fitting = 0
        for pod in candidates:
            decision = core.decide(pod)
            if decision.fits:
                core.assume(decision)
                fitting += 1
        if running + fitting >= group.spec.min_member:
            yield (
                f"group {group.name} wants {group.spec.min_member} and has {running}, "
                f"but {fitting} of {len(candidates)} more would fit"
            )


def fresh_core(scheduler: Scheduler, store: MemoryStore) -> SchedulingCore:
    """Another one that is told how things are, and computes everything anew.

    Nominations are those the scheduler acts on. What the pods' statuses say may be older: a status that could
    not be written is not written again before the pod is tried again.
    """
    core = SchedulingCore(keep=False)
    core.load([*store.list(Node), *store.list(PodDisruptionBudget), *store.list(Pod)])
    for pod in store.list(Pod):
        if is_ours(scheduler, pod) and not pod.spec.node_name:
            core.cluster.withdraw(pod.uid)
            node_name = scheduler.context.queue.nominator.node_of(pod.uid)
            if node_name:
                core.cluster.nominate(pod, node_name)
    return core


def is_ours(scheduler: Scheduler, pod: Pod) -> bool:
    return pod.spec.scheduler_name in scheduler.core.frameworks and not pod.is_finished


def can_be_tried(scheduler: Scheduler, pod: Pod) -> bool:
    return is_ours(scheduler, pod) and not pod.spec.node_name and not pod.spec.scheduling_gates


def missing_of_group(store: MemoryStore, pod: Pod) -> int:
    """How many pods the pod's group lacks; more than any group has where there is no such group."""
    name = pod.labels.get(POD_GROUP_LABEL)
    if name is None:
        return 0
    groups = [group for group in store.list(PodGroup) if group.name == name]
    if not groups:
        return 1_000_000
    running = sum(
        one.labels.get(POD_GROUP_LABEL) == name
        and bool(one.spec.node_name)
        and not one.is_finished
        and not one.is_terminating
        for one in store.list(Pod)
    )
    return groups[0].spec.min_member - running
