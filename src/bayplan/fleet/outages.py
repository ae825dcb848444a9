"""What happens to the workloads of a member that is drained or lost: where they go, and what stays pending.

Each workload of the member is treated as Karmada treats one that is evicted from a cluster: the replicas in
other members stay, and those that are missing are divided among the others. Every replica is scheduled
there, most important workloads first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from bayplan.answers.whatif.cluster import Cluster
from bayplan.answers.whatif.controllers import violated_budgets
from bayplan.answers.whatif.scaling import pods_of_workload
from bayplan.api.meta import ObjectReference, OwnerReference
from bayplan.api.pod import Pod
from bayplan.api.workloads import PodDisruptionBudget, ReplicaSet
from bayplan.controllers.pods import TEMPLATE_HASH, belongs_to_node
from bayplan.fleet.karmada.clusters import ClusterTable
from bayplan.fleet.karmada.kinds import (
    AGGREGATED,
    BindingSpec,
    EvictionTask,
    Placement,
    PropagationPolicy,
    ReplicaScheduling,
    TargetCluster,
)
from bayplan.fleet.karmada.templates import policy_of, requirements_of, with_placement_defaults
from bayplan.fleet.members import Member
from bayplan.fleet.placing import decide, described
from bayplan.fleet.room import AT_MOST, Exact, create_namespace, room_for_pod

_AGGREGATED = Placement(replica_scheduling=ReplicaScheduling(replica_division_preference=AGGREGATED))
_VOLUMES = "it has volumes whose data is in {cluster}: not moved"
_NO_ROOM = "no other cluster has room"
_NO_CONTROLLER = "it has no controller that would create it again"


@dataclass(frozen=True, slots=True)
class Move:
    """Where the pods of one workload go."""

    kind: str
    key: str
    replicas: int
    """In the member that is drained or lost."""
    to: Mapping[str, int] = field(default_factory=dict)
    """Replicas that are scheduled elsewhere."""
    pending: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A budget that allows fewer evictions than a drain needs."""

    budget: str
    pods: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Outage:
    """Everything that a drain or a loss changes."""

    cluster: str
    moves: tuple[Move, ...]
    blocked: tuple[Blocked, ...] = ()
    daemons: int = 0
    """Pods that belong to the nodes of the member, and end with them."""

    @property
    def pending(self) -> int:
        return sum(move.pending for move in self.moves)


def leave(
    members: Sequence[Member],
    leaving: Member,
    policies: Sequence[PropagationPolicy] = (),
    *,
    is_drain: bool,
    at_most: int = AT_MOST,
) -> Outage:
    """Moves the workloads of a member to the others; use it within `placing.branches`."""
    pods = [pod for pod in leaving.cluster.pods if not pod.is_terminating]
    moving = [pod for pod in pods if not belongs_to_node(pod)]
    blocked = []
    if is_drain:
        budgets = leaving.cluster.objects_of(PodDisruptionBudget)
        running = [pod for pod in moving if pod.spec.node_name]
        blocked = [
            Blocked(budget.key, count, budget.status.disruptions_allowed)
            for budget, count in violated_budgets(budgets, running)
        ]
    moves = [
        _move(kind, key, group, members, leaving, policies, at_most)
        for (kind, key), group in _by_workload(moving, leaving.cluster)
    ]
    return Outage(leaving.name, tuple(moves), tuple(blocked), len(pods) - len(moving))


def _by_workload(pods: Iterable[Pod], cluster: Cluster) -> list[tuple[tuple[str, str], list[Pod]]]:
    """The pods by kind and key of what owns them, the highest priority first."""
    sets = {one.key: one.metadata.controller() for one in cluster.objects_of(ReplicaSet)}
    groups: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        kind, name = workload_of(pod, sets)
        groups.setdefault((kind, f"{pod.namespace}/{name}"), []).append(pod)
    return sorted(groups.items(), key=lambda one: (-max(pod.priority for pod in one[1]), one[0]))


def workload_of(pod: Pod, sets: Mapping[str, OwnerReference | None]) -> tuple[str, str]:
    """Kind and name of the workload that a user has created for a pod.

    Args:
        sets: the owners of ReplicaSets, by key. Without it a ReplicaSet of a Deployment is known by its name.
    """
    owner = pod.metadata.controller()
    if owner is None:
        return "Pod", pod.name
    if owner.kind == "ReplicaSet":
        above = sets.get(f"{pod.namespace}/{owner.name}")
        if above is not None:
            return above.kind, above.name
        suffix = f"-{pod.labels.get(TEMPLATE_HASH, '')}"
        if len(suffix) > 1 and owner.name.endswith(suffix):
            return "Deployment", owner.name.removesuffix(suffix)
    return owner.kind, owner.name


def _move(
    kind: str,
    key: str,
    pods: Sequence[Pod],
    members: Sequence[Member],
    leaving: Member,
    policies: Sequence[PropagationPolicy],
    at_most: int,
) -> Move:
    count = len(pods)
    if kind == "Pod":
        return Move(kind, key, count, pending=count, reason=_NO_CONTROLLER)
    if any(pod.claim_name(volume) for pod in pods[:1] for volume in pod.spec.volumes):
        return Move(kind, key, count, pending=count, reason=_VOLUMES.format(cluster=leaving.name))
    namespace, _, name = key.partition("/")
    model = _model(pods[0], leaving.cluster)
    content = {
        "apiVersion": _api_version(kind),
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": dict(pods[0].labels)},
    }
    policy = policy_of(content, policies)
    placement = with_placement_defaults(_AGGREGATED if policy is None else policy.spec.placement)
    others = [member for member in members if member.name != leaving.name]
    previous = {
        member.name: len(
            pods_of_workload(namespace, name, member.cluster.pods, member.cluster.objects_of(ReplicaSet))
        )
        for member in others
    }
    spec = BindingSpec(
        resource=ObjectReference(
            api_version=_api_version(kind), kind=kind, namespace=namespace, name=name, uid=""
        ),
        replicas=count if placement.is_duplicated else count + sum(previous.values()),
        replica_requirements=requirements_of(model),
        placement=placement,
        clusters=tuple(
            TargetCluster(name=one, replicas=replicas) for one, replicas in previous.items() if replicas
        ),
        graceful_eviction_tasks=(EvictionTask(from_cluster=leaving.name),),
    )
    rooms = {member.name: room_for_pod(member, model, max(at_most, count)) for member in others}
    table = ClusterTable(described(member.karmada_cluster(), spec) for member in others)
    # As many as fit anywhere are moved: what is left stays pending, as it would.
    fitting = min(count, sum(room.exact for room in rooms.values()))
    lacking = [f"{name}: {room.next_lacks}" for name, room in rooms.items() if room.next_lacks]
    reason = "" if fitting == count else "; ".join(lacking) or _NO_ROOM
    missing = 0 if placement.is_duplicated else count - fitting
    partial = msgspec.structs.replace(spec, replicas=spec.replicas - missing)
    exact = Exact({name: room.exact for name, room in rooms.items()})
    _, result = decide(partial, table, (exact,))
    if result.reason is not None:
        return Move(kind, key, count, pending=count, reason=result.error)
    to: dict[str, int] = {}
    for member in others:
        wanted = result.replicas.get(member.name, 0) - previous[member.name]
        if wanted > 0:
            to[member.name], why = _schedule(member, model, wanted)
            reason = reason or why
    placed = sum(to.values())
    return Move(kind, key, count, {name: n for name, n in to.items() if n}, count - placed, reason)


def _schedule(member: Member, model: Pod, count: int) -> tuple[int, str]:
    """Schedules copies in a member. Returns how many found a node, and why the first of the others did
    not."""
    with member.cluster.branch() as branch:
        create_namespace(branch, model.namespace)
        placed = branch.schedule(branch.add(model, replicas=count))
        branch.commit()
    member.changed()
    reasons = Counter(one.reason for one in placed.not_scheduled)
    return len(placed.scheduled), next(iter(reasons), "")


def _model(pod: Pod, cluster: Cluster) -> Pod:
    """A pod of the workload as another cluster would get it."""
    made = cluster.as_created(pod)
    return replace(made, metadata=replace(made.metadata, name=f"{pod.name}-moved"))


def _api_version(kind: str) -> str:
    return "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
