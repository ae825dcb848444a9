"""Pod groups of other schedulers in a what-if cluster, and the Jobs of Volcano that create them.

Groups of dialects (`podGroups` of the configuration) are translated after each change, as the scheduler does
with those that its informers deliver (`scheduler/group_dialects.py`). The PodGroup and the pods of a Job are
those that the controller of `bayplan up` creates (`controllers/volcano/`).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from bayplan.answers.whatif.manifests import LeftOut, Manifest
from bayplan.answers.whatif.outcomes import CHANGED, NEW, UNCHANGED, Applied
from bayplan.answers.whatif.pods import claim_from, create_pod, delete_pod, ephemeral_claims
from bayplan.api import volcano
from bayplan.api.decode import decode_object
from bayplan.api.groups import PodGroup
from bayplan.api.meta import Content, Object
from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import PriorityClass
from bayplan.config.model import PodGroupDialect
from bayplan.controllers.volcano import jobs, objects
from bayplan.controllers.volcano.pods import JobPods
from bayplan.controllers.volcano.spec import (
    JOB,
    InvalidJobError,
    JobSpec,
    not_evaluated,
    read_spec,
)
from bayplan.errors import InputError

if TYPE_CHECKING:
    from bayplan.answers.whatif.cluster import Cluster
    from bayplan.scheduler.group_dialects import Dialect

_API_VERSION: Final = f"{JOB[2]}/{JOB[3]}"
_PARTS: Final = "evaluated without its {parts}"
_LATER: Final = "task {task} begins when {others} {verb} ready, and is not evaluated"


def translate_groups(cluster: Cluster) -> None:
    """Brings the groups that stand for those of dialects up to date, and names them in their members."""
    dialects = _dialects(cluster)
    if not dialects:
        return
    # Imported here: few configurations have other groups.
    from bayplan.scheduler.group_dialects import translate_all

    store = cluster._store
    records: list[type[Object]] = [PriorityClass, Pod]
    records += [dialect.record for dialect in dialects if dialect.record is not None]
    items = [item for record in records for item in store.all(record)]
    known = {id(item) for item in items}
    for item in translate_all(items, dialects):
        if isinstance(item, PodGroup):
            _put_group(cluster, item)
        elif id(item) not in known:
            store.update(replace(item, metadata=replace(item.metadata, resource_version="")))
    cluster._state.deliver()


def in_dialect(cluster: Cluster, pod: Pod) -> Pod:
    """The pod with the group that it names in a dialect."""
    dialects = _dialects(cluster)
    if not dialects:
        return pod
    from bayplan.scheduler.group_dialects import read_member

    return read_member(pod, dialects)[0]


def _dialects(cluster: Cluster) -> list[Dialect]:
    named = cluster._scheduling.profiles.config.bayplan.pod_groups
    others = [dialect for dialect in named if dialect is not PodGroupDialect.KUBERNETES]
    if not others:
        return []
    from bayplan.scheduler.group_dialects import DIALECTS

    return [DIALECTS[dialect] for dialect in others]


def _put_group(cluster: Cluster, group: PodGroup) -> None:
    known = cluster._store.find(PodGroup, group.name, group.namespace)
    if known is None:
        cluster.add(replace(group, metadata=replace(group.metadata, uid="")))
    elif known.spec != group.spec:
        meta = replace(known.metadata, resource_version="")
        cluster._store.update(replace(known, metadata=meta, spec=group.spec))


class VolcanoJob:
    """A Job of a manifest, and its pods in the cluster.

    Raises:
        InputError: Volcano would reject it.
    """

    def __init__(self, cluster: Cluster, manifest: Manifest) -> None:
        self._cluster, self._manifest = cluster, manifest
        name, namespace = manifest.name, manifest.namespace
        there = [pod for pod in cluster._store.all(Pod) if pod.namespace == namespace and _is_of(pod, name)]
        owner = there[0].metadata.controller() if there else None
        uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"Job {manifest.key}")) if owner is None else owner.uid
        meta = {**manifest.content["metadata"], "uid": uid}
        self._job: Content = {
            **manifest.content,
            "apiVersion": _API_VERSION,
            "kind": manifest.kind,
            "metadata": meta,
        }
        self._pods = JobPods(name, there)
        try:
            self._spec: JobSpec = read_spec(self._job)
        except InvalidJobError as error:
            raise InputError(f"Job {manifest.key} is invalid: {error}") from error

    def apply(self) -> Applied:
        """Creates the PodGroup and the pods that can start now, and deletes pods that are too many."""
        cluster, spec = self._cluster, self._spec
        self._name_what_is_not_evaluated()
        is_changed = self._put_group()
        is_new, created, deleted = not self._pods.by_name, 0, self._pods.surplus(spec)
        for pod in deleted:
            delete_pod(cluster, pod)
        for task, index in list(jobs.missing_pods(spec, self._pods)):
            made = objects.make_pod(self._job, spec, task, index)
            pod = cluster._admission.admitted(made, self._manifest.namespace)
            created += not create_pod(cluster, pod, self._claims(made, pod))
        change = NEW if is_new else CHANGED if is_changed or created or deleted else UNCHANGED
        return Applied(self._manifest.kind, self._manifest.key, change, created, len(deleted))

    def models(self) -> list[tuple[Pod, int, list[PersistentVolumeClaim]]]:
        """A pod of each task that belongs to the minimum of the job, and how many do; its PodGroup exists."""
        self._name_parts(not_evaluated(self._spec))
        self._put_group()
        found = []
        counts = objects.minimum_by_task(self._spec, self._priorities())
        for task in self._spec.tasks:
            if counts[task.name]:
                made = objects.make_pod(self._job, self._spec, task, 0)
                pod = self._cluster._admission.admitted(made, self._manifest.namespace)
                found.append((pod, counts[task.name], self._claims(made, pod)))
        return found

    def _priorities(self) -> dict[str, int]:
        return {one.name: one.value for one in self._cluster._store.all(PriorityClass)}

    def _claims(self, made: Content, pod: Pod) -> list[PersistentVolumeClaim]:
        """The claims of a pod: those of the job, and its own."""
        of_job = objects.make_claims(self._job, self._spec)
        own = ephemeral_claims(made, pod.name, pod.namespace)
        return [*(claim_from(claim, pod.namespace) for claim in of_job), *own]

    def _put_group(self) -> bool:
        """Returns whether an existing PodGroup asks for something else now."""
        store = self._cluster._store
        content = objects.make_group(self._job, self._spec, self._priorities())
        made: Any = decode_object({"apiVersion": volcano.API_VERSION, "kind": "PodGroup", **content})
        known = store.find(volcano.PodGroup, made.name, made.namespace)
        if known is None:
            self._cluster.add(made)
        elif known.spec != made.spec:
            meta = replace(known.metadata, resource_version="")
            store.update(replace(known, metadata=meta, spec=made.spec))
        return known is not None and known.spec != made.spec

    def _name_what_is_not_evaluated(self) -> None:
        self._name_parts(not_evaluated(self._spec))
        for task in self._spec.tasks:
            if task.depends_on is not None and not jobs.may_start(self._spec, task, self._pods):
                others = task.depends_on.name
                verb = "is" if len(others) == 1 else "are"
                self._leave_out(_LATER.format(task=task.name, others=" and ".join(others), verb=verb))

    def _name_parts(self, parts: list[str]) -> None:
        if parts:
            self._leave_out(_PARTS.format(parts=" and ".join(parts)))

    def _leave_out(self, why: str) -> None:
        left_out = LeftOut(self._manifest.kind, self._manifest.key, why)
        self._cluster.left_out = (*self._cluster.left_out, left_out)


def _is_of(pod: Pod, job: str) -> bool:
    owner = pod.metadata.controller()
    return owner is not None and (owner.api_version, owner.kind, owner.name) == (_API_VERSION, JOB[1], job)
