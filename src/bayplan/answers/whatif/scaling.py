"""Scales a workload of a cluster: creates copies of its pods, or deletes those that its controller would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import count as count_up
from itertools import islice
from typing import Final

from bayplan.answers.whatif.controllers import template_labels
from bayplan.answers.whatif.pod_claims import for_copy
from bayplan.answers.whatif.state import BranchStore
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod
from bayplan.api.workloads import ReplicaSet
from bayplan.errors import InputError

TEMPLATE_HASH: Final = "pod-template-hash"
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_NO_PODS: Final = (
    "cannot scale {key}: no Deployment, ReplicaSet, StatefulSet or Job of that name has a pod to copy; "
    "check the namespace (NAMESPACE/NAME), or add its manifest instead"
)
_BY_PHASE: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def pods_of_workload(namespace: str, name: str, pods: Iterable[Pod], sets: Iterable[ReplicaSet]) -> list[Pod]:
    """The pods of a Deployment, or of another workload, that are not being deleted."""
    replica_sets = {
        one.name
        for one in sets
        if one.namespace == namespace
        and (owner := one.metadata.controller()) is not None
        and (owner.kind, owner.name) == ("Deployment", name)
    }
    found = []
    for pod in pods:
        owner = pod.metadata.controller()
        if pod.namespace != namespace or owner is None or pod.is_terminating or pod.is_finished:
            continue
        by_hash = f"{name}-{pod.labels.get(TEMPLATE_HASH, '')}"
        if owner.name == name or owner.name in replica_sets or owner.name == by_hash:
            found.append(pod)
    return found


def to_delete(pods: list[Pod], count: int) -> list[Pod]:
    """The pods that the controller deletes first.

    A StatefulSet: the highest ordinals. All others: pods without a node, then by phase, deletion cost and
    number of its pods on the node, newest first.
    """
    owner = pods[0].metadata.controller()
    if owner is not None and owner.kind == "StatefulSet":
        return sorted(pods, key=_ordinal)[len(pods) - count :]
    on_node = Counter(pod.spec.node_name for pod in pods)

    def rank(pod: Pod) -> tuple[bool, int, int, int, float]:
        created = pod.metadata.creation_timestamp
        return (
            bool(pod.spec.node_name),
            _BY_PHASE.get(pod.status.phase, 2),
            _cost(pod),
            -on_node[pod.spec.node_name],
            -(created.timestamp() if created is not None else 0.0),
        )

    return sorted(pods, key=rank)[:count]


def new_pods(key: str, pods: list[Pod], count: int, store: BranchStore) -> list[Object]:
    """Further pods like those that are there, and their claims.

    Raises:
        InputError: there are none.
    """
    if not pods:
        raise InputError(_NO_PODS.format(key=key))
    owners = Counter(pod.metadata.owner_references for pod in pods)
    model = next(pod for pod in pods if pod.metadata.owner_references == owners.most_common(1)[0][0])
    owner = model.metadata.controller()
    assert owner is not None
    has_ordinals = owner.kind == "StatefulSet"
    names = (
        f"{owner.name}-{number}" if has_ordinals else f"{owner.name}-new-{number}" for number in count_up()
    )
    taken, find = {pod.name for pod in pods}, store.find_claim
    labels = template_labels(model, store)
    made: list[Object] = []
    for name in islice((name for name in names if name not in taken), count):
        own = {POD_NAME: name, POD_INDEX: name.rpartition("-")[2]} if has_ordinals else {}
        meta = ObjectMeta(
            name=name,
            namespace=model.namespace,
            labels={key: own.get(key, value) for key, value in labels.items()},
            annotations=model.annotations,
            owner_references=model.metadata.owner_references,
        )
        spec, claims = for_copy(model, name, find)
        # The claims of a StatefulSet stay when it is scaled down, and are used again.
        made += (claim for claim in claims if find(claim.name, claim.namespace) is None)
        made.append(Pod(metadata=meta, spec=spec))
    return made


def _ordinal(pod: Pod) -> int:
    number = pod.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _cost(pod: Pod) -> int:
    text = pod.annotations.get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0
