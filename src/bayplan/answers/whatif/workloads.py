"""A workload of a manifest: new, or matched with what is in the cluster; its pods, and its rollout.

`applying.py` has the rest of applying a manifest, `rollouts.py` plays the rollouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count as count_up
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from bayplan.answers.sources.templates import TEMPLATE_DIGEST, digest_of, template_digest
from bayplan.answers.whatif.manifests import Manifest
from bayplan.answers.whatif.rollouts import ROLLOUTS
from bayplan.answers.whatif.scaling import to_delete
from bayplan.api.decode import decode_object
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Content, Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import Job, ReplicaSet
from bayplan.controllers.pods import REVISION_HASH, TEMPLATE_HASH, hash_of, pod_from
from bayplan.controllers.workloads import (
    Eligibility,
    daemon_pod,
    job_pods,
    node_of,
    stateful_claims,
    stateful_ordinals,
    stateful_pod,
)
from bayplan.embedded.server import statuses
from bayplan.embedded.server.validation.others import workload_update_problems
from bayplan.errors import InputError

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster

from bayplan.answers.whatif.ordered_sets import PARALLEL
from bayplan.answers.whatif.outcomes import CHANGED, NEW, UNCHANGED, Applied
from bayplan.answers.whatif.pods import (
    JOB_LABELS,
    claim_from,
    content_of,
    create_copies,
    create_pod,
    delete_pod,
    ephemeral_claims,
    on_node,
    same_pods,
)

MAX_PODS: Final = 200_000
"""More pods of one workload are an error: they would fill the memory before they are scheduled."""
_TOO_MANY: Final = "{count:,} pods are too many; the limit is {limit:,}"
_JOB_CHANGED: Final = 'Job.batch "{name}" is invalid: spec.template: Invalid value: field is immutable'
_CLAIMS_CHANGED: Final = (
    'StatefulSet.apps "{name}" is invalid: spec: Forbidden: updates to statefulset spec for fields other '
    "than "
    "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
    "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_ON_DELETE: Final = "updateStrategy OnDelete: its pods stay as they are until they are deleted"
_PER_NODE: Final = "a DaemonSet has one pod on each node: use bayplan whatif --add"
_IN_ORDER: Final = "one after the other"
_PAUSED: Final = "paused: no pods until it is resumed"
_PAUSED_ROLLOUT: Final = "paused: the changed template is not rolled out until it is resumed"
_SUSPENDED: Final = "suspended: no pods"


class Workload:
    """A workload of a manifest, and the pods of it that are in the cluster (`rollouts.Workshop`)."""

    def __init__(self, cluster: Cluster, manifest: Manifest, replicas: int | None) -> None:
        self._cluster, self._manifest = cluster, manifest
        self._store = cluster._store
        self.kind, self.name, self.namespace = manifest.kind, manifest.name, manifest.namespace
        record = KINDS[self.kind].record if self.kind in KINDS.names else None
        self._known = None if record is None else self._store.find(record, self.name, self.namespace)
        uid = self._known.uid if self._known is not None else f"{self.kind}-{manifest.key}"
        content = manifest.content
        self.content: Content = {
            **content,
            "metadata": {**content["metadata"], "uid": uid},
            "spec": {**content["spec"]},
        }
        self._sets = self._replica_sets()
        there = list(self.pods())
        if self.kind not in ("DaemonSet", "Job"):
            self.content["spec"]["replicas"] = limited(self._wanted(replicas, there))
        self._template: Content = content["spec"]["template"]
        self._digest = hash_of(self._template)
        self._model: Pod | None = None
        self._is_rolled_out = False
        self._numbers = count_up()
        self._rejected: set[str] = set()

    def _wanted(self, replicas: int | None, there: Sequence[Pod]) -> int:
        if replicas is not None:
            return replicas
        stated = (self._manifest.given.get("spec") or {}).get("replicas")
        if stated is not None:
            return int(stated)
        if self._known is None and not there:
            return 1
        known = _spec_of(self._known).get("replicas")
        return int(known) if known is not None else len(there)

    def apply(self) -> Applied:
        """Creates or changes it."""
        there = list(self.pods())
        is_new = self._known is None and not there
        if not is_new:
            self._check_update()
        is_changed = not is_new and self._has_other_template(there)
        created, deleted, note = 0, 0, ""
        if self._is_paused() and (is_changed or not (there or self._sets)):
            note = _PAUSED_ROLLOUT if there else _PAUSED
            created, deleted = self._scale(there) if there else (0, 0)
        elif is_changed and there and self.kind in ROLLOUTS:
            if self.content["spec"].get("updateStrategy", {}).get("type") == "OnDelete":
                note = _ON_DELETE
            else:
                created, deleted = self._start_rollout(there)
        elif self.kind == "DaemonSet":
            created = self._create_daemons() if is_new or not there else 0
        else:
            note = _SUSPENDED if self.kind == "Job" and self.content["spec"].get("suspend") else ""
            created, deleted = self._scale(there)
            if self.kind == "StatefulSet" and created > 1 and not self._is_parallel():
                note = _IN_ORDER
        if note != _PAUSED_ROLLOUT:
            self._put()
        change = NEW if is_new else CHANGED if is_changed or created or deleted else UNCHANGED
        return Applied(self.kind, self._manifest.key, change, created, deleted, note)

    def _is_parallel(self) -> bool:
        return bool(self.content["spec"].get("podManagementPolicy") == PARALLEL)

    def _is_paused(self) -> bool:
        """Whether it is a Deployment that makes no ReplicaSet for a new template. What the manifest does not
        state stays as it is, as with `kubectl rollout pause`."""
        given = self._manifest.given.get("spec") or {}
        return self.kind == "Deployment" and bool(given.get("paused", _spec_of(self._known).get("paused")))

    def model(self) -> tuple[Pod, list[PersistentVolumeClaim]]:
        """A pod of it, and its claims. Its owner exists, for default spreading."""
        if self.kind == "DaemonSet":
            raise InputError(_PER_NODE)
        if self._known is None:
            self._put()
        self._make_replica_set()
        pod = self._admitted()
        claims = ephemeral_claims(self._template_pod(), pod.name, self.namespace)
        if self.kind == "StatefulSet":
            claims += (claim_from(one, self.namespace) for one in stateful_claims(self.content, 0))
        return pod, claims

    def _check_update(self) -> None:
        """What the server does not allow to change."""
        known = _spec_of(self._known)
        if self.kind in ("Deployment", "DaemonSet") and known.get("selector"):
            problems = workload_update_problems(self.content, {"spec": known})
            if problems:
                raise InputError(str(statuses.invalid(self._manifest.resource, self.name, problems)))
        if self.kind == "StatefulSet" and known.get("volumeClaimTemplates"):
            ours = self.content["spec"].get("volumeClaimTemplates") or ()
            if list(map(_claim_facts, ours)) != list(map(_claim_facts, known["volumeClaimTemplates"])):
                raise InputError(_CLAIMS_CHANGED.format(name=self.name))
        digest = digest_of(self._known) if isinstance(self._known, Job) else ""
        if digest and digest != template_digest(self._template):
            raise InputError(_JOB_CHANGED.format(name=self.name))

    def _has_other_template(self, there: Sequence[Pod]) -> bool:
        if self.kind not in ROLLOUTS:
            return False
        known = "" if self._known is None else digest_of(self._known)
        if known:
            return known != template_digest(self._template)
        if not there:
            return False
        if self.kind == "DaemonSet":
            self._model = self._admitted(node_of(there[0]))
        newest = max(there, key=lambda pod: (bool(pod.spec.node_name), str(pod.metadata.creation_timestamp)))
        return not same_pods(self._admitted(), newest, self._cluster)

    def _scale(self, there: Sequence[Pod]) -> tuple[int, int]:
        """Adds pods, or deletes those that the controller deletes first."""
        surplus = len(there) - self._count(len(there))
        if surplus > 0:
            for pod in to_delete(list(there), surplus):
                delete_pod(self._cluster, pod)
            return 0, surplus
        if not surplus:
            return 0, 0
        if self.kind == "StatefulSet":
            taken = {pod.name for pod in there}
            numbers = stateful_ordinals(self.content["spec"])
            missing = [number for number in numbers if f"{self.name}-{number}" not in taken]
            return sum(not self.create(number) for number in missing), 0
        if there:
            return sum(not why for why in create_copies(self._cluster, there, -surplus)), 0
        self._make_replica_set()
        return sum(not self.create(None) for _ in range(-surplus)), 0

    def _count(self, running: int) -> int:
        spec = self.content["spec"]
        if self.kind != "Job":
            return int(spec["replicas"])
        status = self._known.status if isinstance(self._known, Job) else {}
        if any(
            one.get("status") == "True" for one in status.get("conditions") or () if one["type"] in _ENDED
        ):
            return running
        return limited(job_pods(spec, succeeded=status.get("succeeded", 0), active=running))

    def _start_rollout(self, there: Sequence[Pod]) -> tuple[int, int]:
        """The rollout begins when the cluster is scheduled. A Deployment is scaled before."""
        done = (0, 0)
        self._is_rolled_out = True
        if self.kind == "Deployment":
            surplus = len(there) - int(self.content["spec"]["replicas"])
            if surplus > 0:
                for pod in to_delete(list(there), surplus):
                    delete_pod(self._cluster, pod)
                done = 0, surplus
            elif surplus < 0:
                done = sum(not why for why in create_copies(self._cluster, there, -surplus)), 0
            self._make_replica_set()
        label = TEMPLATE_HASH if self.kind == "Deployment" else REVISION_HASH
        name = f"{self.kind} {self._manifest.key}"
        rollout = ROLLOUTS[self.kind](name, self.content, self._digest, label, self)
        self._cluster._rollouts = (
            *(one for one in self._cluster._rollouts if one.workload != name), rollout,
        )  # fmt: skip
        return done

    # For rollouts

    def pods(self) -> Iterator[Pod]:
        """The pods of the workload that are not being deleted and have not finished."""
        owners = self._sets if self.kind == "Deployment" else {self.name}
        kind = "ReplicaSet" if self.kind == "Deployment" else self.kind
        for pod in self._candidates():
            owner = pod.metadata.controller()
            if owner is None or owner.kind != kind or pod.is_terminating or pod.is_finished:
                continue
            by_hash = f"{self.name}-{pod.labels[TEMPLATE_HASH]}" if TEMPLATE_HASH in pod.labels else None
            if owner.name in owners or (self.kind == "Deployment" and owner.name == by_hash):
                yield pod

    def _candidates(self) -> list[Pod]:
        """Pods of the namespace that the selector may match."""
        selector = self.content["spec"].get("selector") or {}
        labels = selector if self.kind == "ReplicationController" else selector.get("matchLabels") or {}
        if not labels or self.kind == "Job":
            return [pod for pod in self._store.all(Pod) if pod.namespace == self.namespace]
        key, value = next(iter(labels.items()))
        return list(self._store.pods.with_label(self.namespace, key, value))

    def _replica_sets(self) -> set[str]:
        return {
            one.name
            for one in self._store.all(ReplicaSet)
            if one.namespace == self.namespace
            and (owner := one.metadata.controller()) is not None
            and (owner.kind, owner.name) == ("Deployment", self.name)
        }

    def nodes(self) -> Iterable[Node]:
        return list(self._store.all(Node))

    def delete(self, pod: Pod) -> None:
        delete_pod(self._cluster, self._store.get(Pod, pod.name, pod.namespace))

    def create(self, which: int | str | None, *, is_new: bool = True) -> str:
        """Creates a pod: with this ordinal, or for this node. Returns why the server rejects it."""
        if self._is_rolled_out:
            # Controllers try again: an earlier rejection is not the result.
            for key in [key for key in self._cluster._dropped if key in self._rejected]:
                del self._cluster._dropped[key]
            self._rejected.clear()
        pod, claims = self._made(which, is_new=is_new)
        why = create_pod(self._cluster, pod, claims)
        if why:
            self._rejected.add(pod.key)
        elif not self._is_rolled_out:
            self._cluster._created.add(pod.key)
        return why

    def _made(self, which: int | str | None, *, is_new: bool) -> tuple[Pod, list[PersistentVolumeClaim]]:
        if isinstance(which, int):
            content = self.content
            if not is_new and (old := _spec_of(self._known).get("template")):
                content = {**content, "spec": {**content["spec"], "template": old}}
            template = content["spec"]["template"]
            made = stateful_pod(content, template, self._digest if is_new else "", which)
            pod = self._cluster._admission.admitted(made, self.namespace)
            claims = [claim_from(one, self.namespace) for one in stateful_claims(content, which)]
            return pod, claims + ephemeral_claims(made, pod.name, self.namespace)
        if isinstance(which, str):
            pod = self._for_node(which)
        else:
            pod = self._admitted()
            pod = replace(pod, metadata=replace(pod.metadata, name=self._free_name()))
        return pod, ephemeral_claims(self._template_pod(), pod.name, self.namespace)

    def _free_name(self) -> str:
        dropped = self._cluster._dropped
        for number in self._numbers:
            name = f"{self.name}-{number}"
            is_free = self._store.find(Pod, name, self.namespace) is None
            if is_free and f"{self.namespace}/{name}" not in dropped:
                return name
        raise AssertionError("numbers never end")

    def _admitted(self, node: str = "") -> Pod:
        """A pod of the template. Those of one template are admitted once."""
        if self._model is None:
            if self.kind == "DaemonSet":
                made = daemon_pod(self.content, self._digest, node)
                made["metadata"]["name"] = self.name
            elif self.kind == "StatefulSet":
                made = stateful_pod(self.content, self._template, self._digest, 0)
            else:
                made = self._template_pod()
            self._model = self._cluster._admission.admitted(made, self.namespace)
        return self._model

    def _template_pod(self) -> Content:
        owner, labels = self.content, {}
        if self.kind == "Deployment":
            labels = {TEMPLATE_HASH: self._digest}
            set_name = f"{self.name}-{self._digest}"
            meta = {"name": set_name, "uid": f"ReplicaSet-{self.namespace}/{set_name}"}
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta}
        elif self.kind == "Job":
            labels = dict.fromkeys(JOB_LABELS, self.name)
        return pod_from(self._template, owner, name=f"{self.name}-0", labels=labels)

    def _for_node(self, node: str) -> Pod:
        pod = self._admitted(node)
        names = (f"{self.name}-{node}{f'-{number}' if number else ''}" for number in count_up())
        name = next(one for one in names if self._store.find(Pod, one, self.namespace) is None)
        return replace(
            pod,
            metadata=replace(pod.metadata, name=name),
            spec=replace(pod.spec, affinity=on_node(pod, node)),
        )

    def _make_replica_set(self) -> None:
        """So that matchLabelKeys, default spreading and its selector tell these pods from earlier ones."""
        name = f"{self.name}-{self._digest}"
        if self.kind != "Deployment" or self._store.find(ReplicaSet, name, self.namespace) is not None:
            return
        selector = self.content["spec"]["selector"]
        labels = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: self._digest}
        raw = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name, "controller": True,
                     "uid": self.content["metadata"]["uid"]},
                ],
            },
            "spec": {"selector": {**selector, "matchLabels": labels}},
        }  # fmt: skip
        self._store.create(cast(ReplicaSet, decode_object(raw)))
        self._sets.add(name)

    def _create_daemons(self) -> int:
        eligibility = Eligibility(self.content)
        nodes = [node.name for node in self._in_order() if eligibility.of(node)[0]]
        return sum(not self.create(node) for node in nodes)

    def _in_order(self) -> list[Node]:
        return [self._cluster.node(name) for name in self._cluster.nodes]

    def _put(self) -> None:
        """The workload itself, for later changes: `--add-nodes` needs DaemonSets."""
        item = decode_object(self.content)
        assert item is not None, "workloads are kinds that are read"
        if self._known is None:
            self._store.create(item)
        else:
            fields: dict[str, Any] = {"metadata": replace(self._known.metadata, resource_version="")}
            if hasattr(self._known, "status"):
                fields["status"] = self._known.status
            notes = {key: text for key, text in self._known.annotations.items() if key != TEMPLATE_DIGEST}
            fields["metadata"] = replace(fields["metadata"], annotations=notes)
            self._store.update(replace(item, **fields))


_ENDED: Final = ("Complete", "Failed")


def _spec_of(item: Object | None) -> Content:
    spec = getattr(item, "spec", None)
    if spec is None or isinstance(spec, dict):
        return spec or {}
    return content_of(item)["spec"] if item is not None else {}


def _claim_facts(claim: Content) -> tuple[object, ...]:
    spec = claim.get("spec") or {}
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return (claim.get("metadata") or {}).get("name"), spec.get("storageClassName"), str(size)


def limited(count: int) -> int:
    if count > MAX_PODS:
        raise InputError(_TOO_MANY.format(count=count, limit=MAX_PODS))
    return count
