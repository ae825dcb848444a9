"""Creates, deletes and compares pods of a what-if cluster, and gives new nodes the pods of DaemonSets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec.structs import replace

from bayplan.answers.sources.templates import template_of
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.answers.whatif.controllers import UNKNOWN_UID, template_labels
from bayplan.answers.whatif.outcomes import Outcome, Placement
from bayplan.answers.whatif.scaling import new_pods
from bayplan.api.decode import decode_object
from bayplan.api.meta import Content, Object
from bayplan.api.node import Node
from bayplan.api.pod import Affinity, Pod, PodStatus
from bayplan.api.quantity import parse_quantity
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import DaemonSet
from bayplan.controllers.claims import ephemeral_claim
from bayplan.controllers.pods import REVISION_HASH, TEMPLATE_HASH, hash_of
from bayplan.controllers.workloads import (
    Eligibility,
    daemon_pod,
    node_of,
)

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster

JOB_LABELS: Final = ("batch.kubernetes.io/job-name", "job-name")


def create_pod(cluster: Cluster, pod: Pod, claims: Iterable[PersistentVolumeClaim] = ()) -> str:
    """Creates a pod and its claims. If the server rejects one, returns why, and the result has the pod."""
    store, admission = cluster._store, cluster._admission
    missing = [one for one in claims if store.find_claim(one.name, one.namespace) is None]
    why = next(filter(None, map(admission.rejection, missing)), "") or admission.rejection(pod)
    if why:
        cluster._dropped[pod.key] = Placement(pod.key, Outcome.REJECTED, reason=why)
        return why
    cluster._dropped.pop(pod.key, None)
    if missing:
        cluster.add(*missing)
    meta = replace(pod.metadata, uid="", resource_version="", creation_timestamp=None, finalizers=())
    store.create(replace(pod, metadata=meta))
    cluster._state.deliver()
    return ""


def create_copies(cluster: Cluster, there: Sequence[Pod], count: int) -> list[str]:
    """More pods of a workload, like those that are there. Returns why each is rejected, or nothing."""
    claims: list[PersistentVolumeClaim] = []
    results = []
    for item in new_pods(list(there), count, cluster._store):
        if isinstance(item, PersistentVolumeClaim):
            claims.append(item)
            continue
        assert isinstance(item, Pod)
        results.append(create_pod(cluster, item, claims))
        cluster._created.add(item.key)
        claims = []
    return results


def delete_pod(cluster: Cluster, pod: Pod) -> None:
    cluster._store.delete(Pod, pod.name, pod.namespace)
    cluster._state.deliver()
    cluster._admission.released(pod)
    cluster._state.deliver()


def copies_of(item: Object, replicas: int) -> list[Object]:
    """The object as it is created: without what a server has set."""
    if not isinstance(item, Pod):
        return [item]
    meta = replace(
        item.metadata,
        uid="",
        resource_version="",
        creation_timestamp=None,
        deletion_timestamp=None,
        finalizers=(),
    )
    status = PodStatus(nominated_node_name="")
    fresh = replace(item, metadata=meta, status=status)
    if replicas == 1:
        return [fresh]
    return [
        replace(fresh, metadata=replace(meta, name=f"{meta.name}-{number}")) for number in range(replicas)
    ]


def ephemeral_claims(pod: Content, name: str, namespace: str) -> list[PersistentVolumeClaim]:
    """The claims that the controller of generic ephemeral volumes creates for a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": UNKNOWN_UID}}
    made = (ephemeral_claim(owner, volume) for volume in pod["spec"].get("volumes") or ())
    return [claim_from(content, namespace) for content in made if content is not None]


def claim_from(content: Content, namespace: str) -> PersistentVolumeClaim:
    meta = {**content["metadata"], "namespace": namespace}
    raw = {**content, "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
    return cast(PersistentVolumeClaim, decode_object(raw))


# Comparing pods

_GENERATED_LABELS: Final = frozenset(
    (
        TEMPLATE_HASH, REVISION_HASH, *JOB_LABELS, "batch.kubernetes.io/controller-uid", "controller-uid",
        "pod-template-generation", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
    )
)  # fmt: skip
_TOKEN_VOLUME: Final = "kube-api-access-"


def same_pods(made: Pod, known: Pod, cluster: Cluster) -> bool:
    """Whether a pod that exists could be from the template of a new one, in what scheduling reads."""
    return _facts(made, made.labels) == _facts(known, template_labels(known, cluster._store))


def _facts(pod: Pod, labels: dict[str, str]) -> tuple[object, ...]:
    spec = pod.spec
    affinity = None if node_of(replace(pod, spec=replace(spec, node_name=""))) else spec.affinity
    own_claims = {volume.name for volume in spec.volumes if volume.persistent_volume_claim is not None}
    containers = [
        (one.name, one.image, _amounts(one.resources.requests), _amounts(one.resources.limits), one.ports)
        for one in (*spec.containers, *spec.init_containers)
    ]
    return (
        {key: text for key, text in labels.items() if key not in _GENERATED_LABELS},
        spec.scheduler_name,
        spec.priority or 0,
        spec.node_selector or {},
        affinity,
        frozenset((one.key, one.operator or "Equal", one.value, one.effect) for one in spec.tolerations),
        spec.topology_spread_constraints,
        containers,
        _amounts(spec.overhead),
        frozenset(
            one.name
            for one in spec.volumes
            if not one.name.startswith(_TOKEN_VOLUME) and one.name not in own_claims
        ),
        spec.resource_claims,
    )


def _amounts(resources: Any) -> dict[str, int]:
    return {name: parse_quantity(amount) for name, amount in resources.items()}


# Nodes that are added

_BY_PODS: Final = (
    "DaemonSet {key} is not in the dump: whether it has pods on new nodes is known from its pods only"
)


def add_daemons(cluster: Cluster, nodes: Sequence[Node], like: str) -> None:
    """Creates the pods that DaemonSets have on new nodes; `like` is the node that these are copies of.

    A DaemonSet that is not in the dump is known by its pods: copies of a node with such a pod get one, and
    nodes of another shape if its node selector and tolerations allow it.
    """
    models: list[tuple[Pod, list[Node]]] = []
    known: set[str] = set()
    for item in sorted(cluster._store.all(DaemonSet), key=lambda one: one.key):
        if template_of(item):
            known.add(item.key)
            content = {"apiVersion": "apps/v1", "kind": "DaemonSet", **content_of(item)}
            eligible = _eligible(content, nodes)
            if eligible:
                made = daemon_pod(content, hash_of(template_of(item)), eligible[0].name)
                made["metadata"]["name"] = item.name
                models.append((cluster._admission.admitted(made, item.namespace), eligible))
    for key, pods in _daemons_by_set(cluster).items():
        if key in known:
            continue
        here = [pod for pod in pods if pod.spec.node_name == like]
        spec = content_of(pods[0])["spec"]
        spec.pop("affinity", None)
        others = [] if like in cluster.nodes else _eligible({"spec": {"template": {"spec": spec}}}, nodes)
        models.append(((here or pods)[0], list(nodes) if here else others))
        warning = Warning(_BY_PODS.format(key=key), reason=Reason.MISSING_OBJECT, object=f"DaemonSet {key}")
        cluster._admission.warnings[warning] = None
    for pod, eligible in models:
        for node in eligible:
            create_pod(cluster, _daemon_for(cluster, pod, node.name))


def _eligible(daemon_set: Content, nodes: Sequence[Node]) -> list[Node]:
    eligibility = Eligibility(daemon_set)
    return [node for node in nodes if eligibility.of(node)[0]]


def _daemons_by_set(cluster: Cluster) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in cluster._store.all(Pod):
        owner = pod.metadata.controller()
        if owner is not None and owner.kind == "DaemonSet" and not (pod.is_terminating or pod.is_finished):
            found.setdefault(f"{pod.namespace}/{owner.name}", []).append(pod)
    return found


def _daemon_for(cluster: Cluster, pod: Pod, node: str) -> Pod:
    """A pod of a DaemonSet for another node."""
    owner = pod.metadata.controller()
    assert owner is not None, "it is of a DaemonSet"
    meta = replace(
        pod.metadata,
        name=f"{owner.name}-{node}",
        generate_name="",
        labels=template_labels(pod, cluster._store),
    )
    return Pod(metadata=meta, spec=replace(pod.spec, node_name="", affinity=on_node(pod, node)))


def on_node(pod: Pod, node: str) -> Affinity:
    """The affinity of a daemon pod: the node's name replaces the required terms of node affinity."""
    affinity = {} if pod.spec.affinity is None else content_of(pod)["spec"]["affinity"]
    owner: Content = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": pod.name, "uid": ""},
        "spec": {"template": {"spec": {"affinity": affinity}}},
    }
    return msgspec.convert(daemon_pod(owner, "", node)["spec"]["affinity"], Affinity)


def content_of(item: Object) -> Content:
    found: Content = msgspec.json.decode(msgspec.json.encode(item))
    return found
