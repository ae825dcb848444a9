"""Groups whose attempt ends with an error: what failed, and what to do.

An error is what neither more room nor another priority can mend: members that contradict each other, a plugin
that failed, a request that the API server did not answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from bayplan.answers.explain.remedies import named
from bayplan.api.pod import Pod
from bayplan.framework.status import Code
from bayplan.scheduler.failure import SCHEDULER_ERROR
from bayplan.scheduler.group_cycle import GroupDecision
from bayplan.state.cluster import Cluster
from bayplan.state.group_trees import GroupTree
from bayplan.state.groups import Group

LAST: Final = "the last attempt failed with an error: {message}"
NOT_SEEN: Final = (
    "the error is not seen here: it came from the API server, an extender, or a plugin that this command "
    "does not run (--config, --plugin). The log of the scheduler has more; it tries again after a backoff"
)
OTHER_PRIORITY: Final = (
    "create these pods again with the priority of the group, {priority}: {pods}; or create the PodGroup "
    "again with theirs"
)
OTHER_SCHEDULER: Final = "create these pods again with schedulerName {name}: {pods}"
OTHER_POLICY: Final = "create the pods again with one preemptionPolicy: it must be the same for all"
PLUGIN: Final = (
    "fix the plugin {plugin}, which failed for pod {pod}, or disable it: the group is tried again, and "
    "fails as long as the plugin does"
)
SEVERAL_DOMAINS: Final = (
    "delete the members outside of one value of {key}, which all must share; they run with {counts}"
)
NO_LABEL: Final = "give node {node} the label {key}, or delete {pods}, which runs there"
NO_NODE: Final = "delete {pods}: node {node} does not exist any more"
NO_NODES: Final = "add nodes: the cluster has none"
MAX_NAMES: Final = 5


def last_error(group: Group | None, waiting: Iterable[Pod]) -> str:
    """The error with which the scheduler's last attempt ended, as conditions show it; empty if with none."""
    for pod in waiting:
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.reason == SCHEDULER_ERROR:
                return condition.message
    condition_of_group = None if group is None else group.condition()
    if condition_of_group is not None and condition_of_group.reason == SCHEDULER_ERROR:
        return condition_of_group.message
    return ""


def remedies_for_contradiction(tree: GroupTree) -> list[str]:
    """What to do about members that cannot be scheduled together (`group_trees.invalid`)."""
    first, pods = tree.pods[0], [*tree.pods, *tree.scheduled()]
    scheduler = [pod for pod in pods if pod.spec.scheduler_name != first.spec.scheduler_name]
    if scheduler:
        return [OTHER_SCHEDULER.format(name=first.spec.scheduler_name, pods=_names(scheduler))]
    priority = [pod for pod in pods if pod.priority != tree.group.priority]
    if priority:
        return [OTHER_PRIORITY.format(priority=tree.group.priority, pods=_names(priority))]
    return [OTHER_POLICY]


def remedies_for_error(cluster: Cluster, tree: GroupTree, decision: GroupDecision) -> list[str]:
    """What to do about an attempt that ended with an error, or that an error followed."""
    if not len(cluster.order):
        return [NO_NODES]
    for member in decision.decisions:
        if member is not None and member.status.code is Code.ERROR:
            return [PLUGIN.format(plugin=member.status.plugin, pod=member.pod.key)]
    key, scheduled = tree.group.topology_key, tree.scheduled()
    return _remedies_for_domains(cluster, key, scheduled) if key and scheduled else []


def _remedies_for_domains(cluster: Cluster, key: str, scheduled: Sequence[Pod]) -> list[str]:
    """What to do about members that run where no single domain contains them."""
    counts, remedies = Counter[str](), list[str]()
    by_node: dict[str, list[Pod]] = {}
    for pod in scheduled:
        by_node.setdefault(cluster.node_of(pod.uid), []).append(pod)
    for name, pods in by_node.items():
        row = cluster.nodes.row_of.get(name)
        node = None if row is None else cluster.nodes.node[row]
        value = None if node is None else node.labels.get(key)
        if node is None:
            remedies.append(NO_NODE.format(pods=_names(pods), node=name))
        elif value is None:
            remedies.append(NO_LABEL.format(node=name, key=key, pods=_names(pods)))
        else:
            counts[value] += len(pods)
    if len(counts) > 1:
        shown = ", ".join(f"{value} ({count})" for value, count in sorted(counts.items()))
        remedies.append(SEVERAL_DOMAINS.format(key=key, counts=shown))
    return remedies


def _names(pods: Sequence[Pod]) -> str:
    return named(sorted(pod.key for pod in pods), MAX_NAMES)
