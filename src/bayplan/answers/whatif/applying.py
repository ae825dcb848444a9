"""Applies manifests to a what-if cluster: as `kubectl apply` and the controllers would.

An object that exists is matched by kind, namespace and name. A workload with another number of replicas is
scaled: pods are added, or those deleted that its controller deletes first. One with another pod template is
rolled out (`rollouts.py`) when the cluster is scheduled. What the manifest does not state (replicas) stays.

Whether a template has changed is known from the workload, or from its hash in a snapshot. If the dump has
only its pods, they are compared with the template, in what scheduling reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from bayplan.answers.sources.groups import PREEMPTION_POLICY
from bayplan.answers.whatif.manifests import AUTOSCALER, WORKLOADS, LeftOut, Manifest, Manifests
from bayplan.api.decode import decode_object
from bayplan.api.node import Namespace, Node
from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.volcano import Queue
from bayplan.api.workloads import HorizontalPodAutoscaler
from bayplan.embedded.server.kinds import POD_GROUPS
from bayplan.errors import InputError

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster

from bayplan.answers.whatif.foreign_groups import VolcanoJob, in_dialect, translate_groups
from bayplan.answers.whatif.outcomes import CHANGED, NEW, UNCHANGED, Applied
from bayplan.answers.whatif.pods import add_daemons, create_pod, ephemeral_claims, same_pods
from bayplan.answers.whatif.workloads import Workload, limited

_ALWAYS_THERE: Final = frozenset(("default", "kube-system", "kube-public", "kube-node-lease"))
_NO_NAMESPACE: Final = 'namespaces "{name}" not found'
_NO_QUEUES: Final = "the configuration has no queues of Volcano: pass one with queues: {dialect: volcano}"
_OWN_REPLICAS: Final = "a Job of Volcano has the replicas of its tasks: another number cannot be given"
_POD_CHANGED: Final = (
    'Pod "{name}" is invalid: spec: Forbidden: pod updates may not change fields other than '
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow "
    "it to be set to 1 if it was previously negative)"
)


def apply_manifests(cluster: Cluster, manifests: Manifests, replicas: int | None = None) -> list[Applied]:
    """Applies everything. Workloads come last, so that their pods find classes, claims and quotas.

    Raises:
        InputError: an API server would reject an object.
    """
    knows_namespaces = not cluster._scheduling.lacks_kind("Namespace")
    done: dict[int, Applied] = {}
    order = sorted(range(len(manifests.objects)), key=lambda i: _rank(manifests.objects[i].kind))
    for index in order:
        manifest = manifests.objects[index]
        try:
            if knows_namespaces:
                _check_namespace(cluster, manifest)
            applied = _apply(cluster, manifest, replicas)
        except InputError as error:
            raise error.at(source=manifest.source, line=manifest.line) from error.__cause__
        if applied is not None:
            done[index] = applied
        cluster._state.deliver()
    translate_groups(cluster)
    return [done[index] for index in sorted(done)]


def models_of(cluster: Cluster, manifests: Manifests) -> list[list[tuple[Pod, int]]]:
    """Pods of each pod and workload, for copies, each with its share. Everything else is applied.

    It is one pod, but for a job with several tasks; the claims of all exist.

    Raises:
        InputError: as `apply_manifests`; or there is a DaemonSet.
    """
    creating = [one for one in manifests.objects if _rank(one.kind) > 0]
    others = [one for one in manifests.objects if _rank(one.kind) <= 0]
    knows_namespaces = not cluster._scheduling.lacks_kind("Namespace")
    apply_manifests(cluster, Manifests(manifests.source, tuple(others)))
    models = []
    for manifest in creating:
        try:
            if knows_namespaces:
                _check_namespace(cluster, manifest)
            models.append(_models(cluster, manifest))
            translate_groups(cluster)
        except InputError as error:
            raise error.at(source=manifest.source, line=manifest.line) from error.__cause__
    cluster._state.deliver()
    return [[(in_dialect(cluster, pod), share) for pod, share in each] for each in models]


def _models(cluster: Cluster, manifest: Manifest) -> list[tuple[Pod, int]]:
    if manifest.kind == "Pod":
        pod = cluster._admission.admitted(manifest.content, manifest.namespace)
        made = [(pod, 1, ephemeral_claims(manifest.content, manifest.name, manifest.namespace))]
    elif manifest.is_volcano_job:
        made = VolcanoJob(cluster, manifest).models()
    else:
        pod, claims = Workload(cluster, manifest, None).model()
        made = [(pod, 1, claims)]
    for _, _, claims in made:
        missing = [one for one in claims if cluster._store.find_claim(one.name, one.namespace) is None]
        cluster.add(*missing)
    return [(pod, share) for pod, share, _ in made]


def _check_namespace(cluster: Cluster, manifest: Manifest) -> None:
    name = manifest.namespace
    if name and name not in _ALWAYS_THERE and cluster._store.find(Namespace, name) is None:
        raise InputError(_NO_NAMESPACE.format(name=name))


def _rank(kind: str) -> int:
    return 2 if kind in WORKLOADS else 1 if kind == "Pod" else 0 if kind != "Namespace" else -1


def _apply(cluster: Cluster, manifest: Manifest, replicas: int | None) -> Applied | None:
    if manifest.is_volcano_job:
        if replicas is not None:
            raise InputError(_OWN_REPLICAS)
        return VolcanoJob(cluster, manifest).apply()
    if manifest.kind in WORKLOADS:
        applied = Workload(cluster, manifest, replicas).apply()
        if applied.change == NEW or "replicas" in (manifest.given.get("spec") or {}):
            cluster.left_out = (*cluster.left_out, *_autoscalers(cluster, manifest))
        return applied
    if manifest.kind == "Pod":
        return _apply_pods(cluster, manifest, replicas)
    return _apply_other(cluster, manifest)


def _autoscalers(cluster: Cluster, manifest: Manifest) -> list[LeftOut]:
    """What will change the replicas that a manifest states. Replicas that stay are those that it has set."""
    found = []
    for one in cluster._store.all(HorizontalPodAutoscaler):
        target = one.spec.scale_target_ref
        if (one.namespace, target.kind, target.name) == (manifest.namespace, manifest.kind, manifest.name):
            why = AUTOSCALER.format(
                kind=target.kind, name=target.name, least=one.spec.min_replicas, most=one.spec.max_replicas
            )
            found.append(LeftOut("HorizontalPodAutoscaler", one.key, why))
    return found


def _apply_other(cluster: Cluster, manifest: Manifest) -> Applied | None:
    """An object that scheduling reads; None for other kinds."""
    content = manifest.content
    if manifest.resource == POD_GROUPS:
        with_policy = PREEMPTION_POLICY in cluster.columns.release.gates
        content = cluster._admission.admit_group(content, with_policy=with_policy)
    item = decode_object(content)
    if item is None:
        return None
    if isinstance(item, Queue) and not cluster.has_volcano_queues:
        raise InputError(_NO_QUEUES, object_key=f"Queue {item.name}")
    known = cluster._store.find(type(item), item.name, item.namespace)
    if known is None:
        cluster.add(item)
        if isinstance(item, Node):
            add_daemons(cluster, [cluster.node(item.name)], item.name)
        return Applied(manifest.kind, manifest.key, NEW)
    labels, notes = {**known.labels, **item.labels}, {**known.annotations, **item.annotations}
    fields: dict[str, Any] = {"metadata": replace(known.metadata, labels=labels, annotations=notes)}
    if hasattr(known, "status"):
        fields["status"] = known.status
    if isinstance(known, PersistentVolumeClaim):
        fields["spec"] = known.spec  # immutable, apart from its size
    merged = replace(item, **fields)
    if merged == known:
        return Applied(manifest.kind, manifest.key, UNCHANGED)
    cluster._store.update(replace(merged, metadata=replace(merged.metadata, resource_version="")))
    return Applied(manifest.kind, manifest.key, CHANGED)


def _apply_pods(cluster: Cluster, manifest: Manifest, replicas: int | None) -> Applied:
    names = [manifest.name]
    if replicas is not None and replicas != 1:
        names = [f"{manifest.name}-{number}" for number in range(limited(replicas))]
    created, known = 0, 0
    for name in names:
        content = {**manifest.content, "metadata": {**manifest.content["metadata"], "name": name, "uid": ""}}
        pod = cluster._admission.admitted(content, manifest.namespace)
        existing = cluster._store.find(Pod, name, manifest.namespace)
        if existing is not None:
            if not same_pods(pod, existing, cluster):
                raise InputError(_POD_CHANGED.format(name=name))
            known += 1
        elif not create_pod(cluster, pod, ephemeral_claims(content, name, manifest.namespace)):
            created += 1
    return Applied("Pod", manifest.key, UNCHANGED if known and not created else NEW, created)
