"""Invariants of a scheduler and its cluster after all faults have ended and everything is quiescent.

Each check yields sentences about violations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bayplan.api import groups
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.api.workloads import POD_GROUP_LABEL, PodDisruptionBudget, PodGroup
from bayplan.plugins.library.coscheduling import Coscheduling
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryStore
from bayplan.state.devices import ClaimInFlight
from tests.faults.cluster import room_of, sum_of


def untidiness(scheduler: Scheduler, store: MemoryStore) -> Iterator[str]:
    """Differences between the scheduler's state and the cluster."""
    yield from nothing_under_way(scheduler)
    yield from knowledge(scheduler, store)
    yield from waiting(scheduler, store)
    yield from nominations(scheduler)


@dataclass(frozen=True, slots=True)
class Oversight:
    """An action that another attempt of a pod would lead to."""

    subject: str
    """The pending pod or group."""
    text: str
    may_be_hints: bool
    """Whether the pod waits for other plugins' events. These are upstream's and do not cover everything: the
    pod is then scheduled after five minutes. Pods that Coscheduling rejects must be requeued by Coscheduling
    itself."""


def oversights(scheduler: Scheduler, store: MemoryStore) -> Iterator[Oversight]:
    """Pods that could run but do not."""
    yield from forgotten(scheduler, store)
    yield from incomplete_groups(scheduler, store)
    yield from stale_nominations(scheduler, store)


def misplaced(scheduler: Scheduler, pod: Pod, node_name: str) -> Iterator[str]:
    """Every node that was chosen for a pod had room for it, by everything the scheduler knew at that time."""
    cluster = scheduler.context.cluster
    row = cluster.nodes.row_of.get(node_name)
    node = None if row is None else cluster.nodes.node[row]
    if row is None or node is None:
        yield f"pod {pod.key} gets {node_name}, which is not there"
        return
    here = [*cluster.pods_on(row), pod]
    room, used = room_of(node), sum_of(here)
    for name in ("pods", *DEFAULT_RELEASE.accounting.assigned_requests(pod)):
        if used[name] > room.get(name, 0):
            names = " ".join(other.name for other in here)
            yield f"pod {pod.key} gets {node_name}: {name} {used[name]} of {room.get(name, 0)} by {names}"


def nothing_under_way(scheduler: Scheduler) -> Iterator[str]:
    """No assumption has leaked, and no attempt still counts as in flight."""
    context = scheduler.context
    for pod in context.cache.assumed_pods():
        yield f"pod {pod.key} is still assumed on {context.cache.node_of(pod.uid)}"
    for what, many in (
        ("pods wait for a permit", len(context.waiting)),
        ("pods are in PreBind", len(context.pre_binding)),
        ("preemptions are under way", len(context.queue.nominations.preemptions)),
        ("victims are waited for", len(context.queue.nominations.last_victims)),
        ("tasks are running", len(context.tasks)),
        ("claims are in flight", len(context.cluster.objects.of(ClaimInFlight))),
    ):
        if many:
            yield f"{many} {what}"
    in_flight = context.queue.in_flight_counts()
    if in_flight:
        yield f"in flight: {in_flight}"


def knowledge(scheduler: Scheduler, store: MemoryStore) -> Iterator[str]:
    """The scheduler's state is that of the cluster: objects, and the pods of each node."""
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
        known_node = scheduler.context.cache.node_of(pod.uid)
        if known_node != pod.spec.node_name:
            yield f"pod {pod.key} is on {pod.spec.node_name}, but counted on {known_node or 'no node'}"
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
    """Exactly our pods without a node are in the queue, in their latest version."""
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
    """Only pending pods are nominated, and columns and queue agree on the nodes."""
    queue, cluster = scheduler.context.queue, scheduler.context.cluster
    known = 0
    for pod in queue.pending_pods():
        node_name = queue.nominations.node_of(pod.uid)
        known += node_name is not None
        if (node_name or None) != cluster.nominated_node(pod.uid):
            there = cluster.nominated_node(pod.uid)
            yield f"pod {pod.key} is nominated to {node_name}, in columns to {there}"
    if len(queue.nominations.nodes) != known:
        yield f"{len(queue.nominations.nodes) - known} pods are nominated that do not wait"
    if sum(map(len, cluster.nominated.values())) > known:
        yield "columns have nominations of pods that do not wait"


def forgotten(scheduler: Scheduler, store: MemoryStore) -> Iterator[Oversight]:
    """A pending pod fits on no node, and could not preempt."""
    core = fresh_core(scheduler, store)
    for pod in store.list(Pod):
        if pod.spec.scheduling_group is not None and scheduler.context.cluster.groups is not None:
            continue  # `groups.py` checks the group as a whole
        if not can_be_tried(scheduler, pod) or missing_of_group(store, pod) > 0:
            continue
        decision = core.decide(pod)
        if decision.fits:
            yield oversight(scheduler, pod.key, f"fits on {decision.node_name}, but waits", [pod])
        elif decision.post_filter is not None and decision.post_filter.eviction is not None:
            victims = " ".join(victim.name for victim in decision.post_filter.eviction.victims)
            yield oversight(scheduler, pod.key, f"could preempt {victims}, but waits", [pod])


def incomplete_groups(scheduler: Scheduler, store: MemoryStore) -> Iterator[Oversight]:
    """A group with too few running pods has no pending pods that would fit and complete it."""
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
            text = (
                f"wants {group.spec.min_member} and has {running}, "
                f"but {fitting} of {len(candidates)} more would fit"
            )
            yield oversight(scheduler, f"group {group.name}", text, candidates)


def stale_nominations(scheduler: Scheduler, store: MemoryStore) -> Iterator[Oversight]:
    """Nominations exist only for pods that wait for victims on their node.

    A pod that may not preempt, or is gated, keeps its nomination, and so does a member of a group that fits
    nowhere: upstream's rules.
    """
    nodes, queue = {node.name for node in store.list(Node)}, scheduler.context.queue
    for pod in queue.pending_pods():
        node_name, info = queue.nominations.node_of(pod.uid), queue.find(pod.key)
        is_kept_out = info is None or bool(info.gating_plugin)
        if pod.spec.scheduling_group is not None and scheduler.context.cluster.groups is not None:
            continue
        if not node_name or is_kept_out or pod.spec.preemption_policy == "Never":
            continue
        leaving = [
            other for other in store.list(Pod) if other.spec.node_name == node_name and other.is_terminating
        ]
        if not leaving:
            there = "" if node_name in nodes else ", which is gone"
            yield oversight(
                scheduler, pod.key, f"is nominated to {node_name}{there}, but nobody leaves", [pod]
            )


def oversight(scheduler: Scheduler, subject: str, text: str, pods: Sequence[Pod]) -> Oversight:
    """The same with the objects that the pods wait for."""
    waiting = [info for pod in pods if (info := scheduler.context.queue.find(pod.key)) is not None]
    plugins = set().union(*(info.rejectors for info in waiting))
    parts = {info.sub_queue.label for info in waiting if info.sub_queue is not None}
    return Oversight(
        subject,
        f"{subject} {text}; {' '.join(sorted(parts))}, by {' '.join(sorted(plugins)) or 'nobody'}",
        may_be_hints=bool(plugins - {Coscheduling.name}),
    )


def fresh_core(
    scheduler: Scheduler, store: MemoryStore, release: Release = DEFAULT_RELEASE
) -> SchedulingCore:
    """A second scheduler core with the same objects, which computes everything from scratch.

    Nominations are those the scheduler uses. The pods' statuses may be older: a status that could not be
    written is not written again before the next attempt.
    """
    core = SchedulingCore(cache=False, release=release)
    core.load([*store.list(Node), *store.list(PodDisruptionBudget), *store.list(Pod)])
    for item in (*store.list(groups.PodGroup), *store.list(groups.CompositePodGroup)):
        core.cluster.objects.put(item)
    for pod in store.list(Pod):
        if is_ours(scheduler, pod) and not pod.spec.node_name:
            core.cluster.remove_nomination(pod.uid)
            node_name = scheduler.context.queue.nominations.node_of(pod.uid)
            if node_name:
                core.cluster.nominate(pod, node_name)
    return core


def is_ours(scheduler: Scheduler, pod: Pod) -> bool:
    return pod.spec.scheduler_name in scheduler.core.frameworks and not pod.is_finished


def can_be_tried(scheduler: Scheduler, pod: Pod) -> bool:
    return is_ours(scheduler, pod) and not pod.spec.node_name and not pod.spec.scheduling_gates


def missing_of_group(store: MemoryStore, pod: Pod) -> int:
    """How many pods the pod's group lacks; more than any group has if there is no such group."""
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
