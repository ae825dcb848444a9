"""The tree of groups that one attempt schedules, with the members that wait.

Usually it is one PodGroup. With CompositePodGroups the inner groups have no members of their own: they ask
for a number of groups that are placed together, and may restrict them to one topology domain.

    CompositePodGroup training, 2 of 3 groups
    ├── PodGroup workers-a, 4 of 4 members
    ├── PodGroup workers-b, 4 of 4 members
    └── PodGroup workers-c, 4 of 4 members
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bayplan.api.pod import Pod
from bayplan.state.groups import (
    MAX_DEPTH,
    PREEMPT_LOWER_PRIORITY,
    Group,
    GroupKey,
    GroupState,
    GroupStates,
    group_key,
)


@dataclass(frozen=True, slots=True)
class GroupTree:
    """A group, the members to schedule, and the groups below it."""

    group: Group
    states: Sequence[GroupState]
    """What is known of its members; of a composite group those of all PodGroups below it."""
    pods: Sequence[Pod]
    """The members to schedule, in order; those of a composite group, group by group."""
    children: Sequence[GroupTree] = ()

    @property
    def scheduled_count(self) -> int:
        return sum([len(state.scheduled) for state in self.states])

    def scheduled(self) -> list[Pod]:
        """The members that count on a node."""
        return [pod for state in self.states for pod in state.scheduled.values()]

    def leaves(self) -> list[Group]:
        """The PodGroups of the tree."""
        if not self.group.key.is_composite:
            return [self.group]
        return [leaf for child in self.children for leaf in child.leaves()]


def tree_of(states: GroupStates, root: Group, pods: Iterable[Pod]) -> GroupTree:
    """The tree below this group, with these waiting members."""
    if not root.key.is_composite:
        return GroupTree(root, (states[root.key],), list(pods))
    waiting: dict[GroupKey | None, list[Pod]] = {}
    for pod in pods:
        waiting.setdefault(group_key(pod), []).append(pod)
    return _composite(states, root, waiting, MAX_DEPTH)


def _composite(
    states: GroupStates, group: Group, waiting: dict[GroupKey | None, list[Pod]], depth: int
) -> GroupTree:
    if not group.key.is_composite:
        return GroupTree(group, (states[group.key],), waiting.get(group.key, ()))
    below = states.children(group.key) if depth > 1 else ()
    children = [_composite(states, child, waiting, depth - 1) for child in below]
    return GroupTree(
        group,
        [state for child in children for state in child.states],
        [pod for child in children for pod in child.pods],
        children,
    )


def invalid(tree: GroupTree, *, has_own_policy: bool = False) -> str:
    """Why the members of a group cannot be scheduled together; empty if they can.

    `has_own_policy`: the group has a preemption policy, which its pods must share.
    """
    group, first = tree.group, tree.pods[0]
    for pod in (*tree.pods, *tree.scheduled()):
        if pod.spec.scheduler_name != first.spec.scheduler_name:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{pod.spec.scheduler_name}" and "{first.spec.scheduler_name}"'
            )
        if pod.priority != group.priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's priority, "
                f"got {pod.priority} and {group.priority}"
            )
        policy = _policy(pod)
        if has_own_policy and policy != group.preemption_policy:
            return (
                "all pods in a single pod group should have the same preemption policy as the pod group's "
                f"preemption policy, got {policy} and {group.preemption_policy}"
            )
        if not has_own_policy and policy != _policy(first):
            return (
                "all pods in a single pod group should have the same preemption policy, "
                f"got {policy} and {_policy(first)}"
            )
    return ""


def _policy(pod: Pod) -> str:
    return pod.spec.preemption_policy or PREEMPT_LOWER_PRIORITY
