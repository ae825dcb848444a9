"""Scales a workload of a cluster: creates copies of its pods, or deletes those that its controller would.

A copy of a pod needs PersistentVolumeClaims of its own where the claims belong to one pod: those of
StatefulSets and of generic ephemeral volumes. They are copied from those of the pod, unbound, because nothing
else says what the StatefulSet or the volume has as a template.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count as count_up
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from bayplan.answers.explain.remedies import counted
from bayplan.answers.whatif.controllers import UNKNOWN_UID, template_labels, unbound
from bayplan.answers.whatif.state import BranchStore
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Content, Object, ObjectMeta, OwnerReference
from bayplan.api.pod import PersistentVolumeClaimVolumeSource, Pod, PodSpec, Volume
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import Deployment, ReplicaSet, StatefulSet
from bayplan.controllers.pods import TEMPLATE_HASH, deletion_order
from bayplan.controllers.workloads import POD_INDEX_LABEL, POD_NAME_LABEL
from bayplan.errors import InputError

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster

FindClaim = Callable[[str, str], PersistentVolumeClaim | None]
"""By name and namespace."""


def for_copy(pod: Pod, name: str, find: FindClaim) -> tuple[PodSpec, list[PersistentVolumeClaim]]:
    """The spec of a copy of the pod with another name, and the claims to create for it.

    If a claim is not known, the copy refers to one that does not exist: it is unschedulable, with a warning.
    """
    volumes: list[Volume] = []
    claims: list[PersistentVolumeClaim] = []
    for volume in pod.spec.volumes:
        known = find(pod.claim_name(volume) or "", pod.namespace)
        if volume.ephemeral is not None:
            if known is not None:
                claims.append(unbound(known, f"{name}-{volume.name}", _owner(name)))
        elif is_of_stateful_set(pod, volume):
            claim_name = f"{volume.name}-{name}"
            volume = replace(
                volume, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=claim_name)
            )
            if known is not None:
                claims.append(unbound(known, claim_name))
        volumes.append(volume)
    return replace(pod.spec, node_name="", volumes=tuple(volumes)), claims


def is_of_stateful_set(pod: Pod, volume: Volume) -> bool:
    """Whether the volume's claim is from a template of the pod's StatefulSet, not shared by its pods."""
    owner, source = pod.metadata.controller(), volume.persistent_volume_claim
    if owner is None or owner.kind != "StatefulSet" or source is None:
        return False
    return source.claim_name == f"{volume.name}-{pod.name}"


def _owner(pod_name: str) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Pod", name=pod_name, uid=UNKNOWN_UID, controller=True)


_NO_PODS: Final = (
    "cannot scale {key}: no Deployment, ReplicaSet, StatefulSet or Job of that name has a pod to copy, and "
    "no pod template is known; check the namespace (NAMESPACE/NAME), or add its manifest instead"
)


def known_manifest(store: BranchStore, namespace: str, name: str) -> Content:
    """A Deployment or StatefulSet without pods, as a manifest.

    Raises:
        InputError: there is none, or its template is not known (snapshots have only a hash of it).
    """
    for record in (Deployment, StatefulSet):
        found = store.find(record, name, namespace)
        content = msgspec.json.decode(msgspec.json.encode(found)) if found is not None else {}
        if (content.get("spec") or {}).get("template"):
            kind = KINDS.of(record)
            meta = {"name": name, "namespace": namespace}
            spec = content["spec"]
            return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": spec}
    raise InputError(_NO_PODS.format(key=f"{namespace}/{name}"))


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

    A StatefulSet: the highest ordinals. All others: `deletion_order`.
    """
    owner = pods[0].metadata.controller()
    if owner is not None and owner.kind == "StatefulSet":
        return sorted(pods, key=_ordinal)[len(pods) - count :]
    return deletion_order(pods)[:count]


def scale_and_count(cluster: Cluster, workload: str, replicas: int) -> str:
    """Scales a workload, and says how many pods that creates or deletes."""
    before = cluster.pod_count
    created = len(cluster.scale(workload, replicas))
    deleted = before + created - cluster.pod_count
    counts = [
        f"{counted(count, 'pod')} {what}"
        for count, what in ((created, "created"), (deleted, "deleted"))
        if count
    ]
    return f"scale {workload} to {replicas:,}: {' and '.join(counts) or 'no change'}"


def new_pods(pods: list[Pod], count: int, store: BranchStore) -> list[Object]:
    """Further pods like those that are there, and their claims."""
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
        own = {POD_NAME_LABEL: name, POD_INDEX_LABEL: name.rpartition("-")[2]} if has_ordinals else {}
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
