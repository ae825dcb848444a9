"""Volcano's Jobs, Queues and Commands on a cluster without Volcano's controllers.

They work once the kinds exist (`bayplan queues crds`); until then they see nothing and cost nothing. What
becomes of a job is decided in `bayplan/controllers/volcano/`. Its pods are created when the scheduler has
admitted its PodGroup.

    Job ──► PodGroup ── the scheduler: Inqueue ──► pods ──► phase of the Job

https://volcano.sh/en/docs/vcjob/
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, islice
from typing import ClassVar, Final

import msgspec

from bayplan.api.go_values import seconds_or_1970
from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.api.volcano import QueueSpec
from bayplan.controllers.pods import controller_of, owner_reference
from bayplan.controllers.volcano import jobs, objects, plugins
from bayplan.controllers.volcano.pods import JobPods
from bayplan.controllers.volcano.spec import (
    JOB,
    POD_EVICTED,
    SSH,
    SVC,
    InvalidJobError,
    JobSpec,
    not_supported,
    read_spec,
)
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange, names_of, owner_references, uid_of
from bayplan.embedded.controllers.controller import Controller, KeyMapper, earliest, own_key, write_status
from bayplan.embedded.controllers.pod_owner import pods_per_call, refers_to
from bayplan.embedded.server.deletion import FOREGROUND, DeleteOptions
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
    Resource,
)
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import NotFoundError

JOBS: Final = Resource(*JOB)
POD_GROUPS: Final = Resource("podgroups", "PodGroup", "scheduling.volcano.sh", "v1beta1")
QUEUES: Final = Resource("queues", "Queue", "scheduling.volcano.sh", "v1beta1", namespaced=False)
COMMANDS: Final = Resource("commands", "Command", "bus.volcano.sh", "v1alpha1")
"""As the definitions name them; `_served` is the resource with its schema."""

_QUEUE_STATES: Final = {"OpenQueue": "Open", "CloseQueue": "Closing"}
_OWN_QUEUES: Final = ("root", "default")
_PHASES: Final = ("pending", "inqueue", "running", "unknown", "completed")
"""The fields of a queue's status that count its PodGroups."""
_ADMISSION_SECONDS: Final = 10.0
"""After that long without a phase, a PodGroup is waiting for a scheduler that does not exist."""
_CLAIM_SECONDS: Final = 5.0
"""How often a job looks for a claim that it needs."""
_CONDITION_SECONDS: Final = 2.0
"""A condition of a PodGroup that lasts: while its pods are created there are too few of them."""
NOT_ADMITTED: Final = (
    "PodGroup {} has no phase: no scheduler reads it. Start one with podGroups: [volcano] and queues: "
    "{{dialect: volcano}}"
)

NO_CLAIM: Final = "pvc {} is not found, the job will be in the Pending state until the PVC is created"


class _Volcano(Controller):
    """What the controllers have in common: kinds that may not exist, and Commands."""

    def _served(self, resource: Resource) -> Resource | None:
        return self.api.catalog.find(resource.group, resource.version, resource.plural)

    def _targets(self, change: ObjectChange, resource: Resource) -> Iterable[str]:
        """The key of what a new Command is for."""
        target = {} if change.after is None else change.after.parse().get("target")
        if not isinstance(target, dict) or target.get("kind") != resource.kind or not target.get("name"):
            return ()
        return (resource.key(str(target["name"]), names_of(change.key)[1]),)

    def _command(self, about: Content) -> str:
        """The action of the oldest Command for an object, which is deleted: it is carried out now."""
        resource = self._served(COMMANDS)
        if resource is None:
            return ""
        meta = about["metadata"]
        for document in self.api.documents(resource, meta.get("namespace", "")):
            command = document.parse()
            target, action = command.get("target"), command.get("action")
            if not isinstance(target, dict) or not isinstance(action, str):
                continue
            is_meant = (target.get("kind"), target.get("name")) == (about["kind"], meta["name"])
            if is_meant and target.get("uid") in (None, "", meta["uid"]):
                own = command["metadata"]
                self.api.delete(resource, own["name"], own["namespace"])
                self.events.normal(about, "CommandIssued", f"Start to execute command {action}")
                return action
        return ""


class VolcanoJobs(_Volcano):
    """Reconciles Jobs of batch.volcano.sh."""

    name: ClassVar = "vc-controller-manager"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._known: set[str] = set()
        """The jobs that exist."""
        self._pods: dict[str, JobPods] = {}
        """By uid of the job, since its first reconcile."""
        self._evicted: dict[str, list[tuple[int, jobs.Occurrence]]] = {}
        """By uid of the job: pods that were deleted, with the version of the job that they belong to."""
        self._hosts: dict[str, dict[str, int]] = {}
        """By uid of the job: the replicas of its tasks when the objects of its plugins were written."""
        self._told: dict[str, str] = {}
        """By uid of the job: what was last reported about its PodGroup."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {
            JOBS: self._job,
            PODS: self._pod,
            POD_GROUPS: self._group,
            COMMANDS: lambda change: self._targets(change, JOBS),
        }

    # From changes to keys

    def _job(self, change: ObjectChange) -> Iterable[str]:
        if change.after is not None:
            self._known.add(change.key)
        else:
            self._known.discard(change.key)
            if change.before is not None:
                uid = uid_of(change.before)
                self._evicted.pop(uid, None)
                self._told.pop(uid, None)
                self._pods.pop(uid, None)
                self._hosts.pop(uid, None)
        return (change.key,)

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        document = change.after or change.before
        if not self._known or document is None:
            return ()
        pod = document.record(Pod)
        owner = controller_of(pod)
        if owner is None or not refers_to(JOBS, owner.api_version, owner.kind):
            return ()
        if (counted := self._pods.get(owner.uid)) is not None:
            if change.after is None:
                counted.remove(pod.name)
            else:
                counted.put(pod)
        if change.after is None and objects.OUT_OF_SYNC not in pod.metadata.annotations:
            found = jobs.Occurrence(POD_EVICTED, self.api.time(), objects.task_of(pod), pod.name)
            self._evicted.setdefault(owner.uid, []).append((objects.version_of(pod), found))
        return (f"{pod.namespace}/{owner.name}",)

    def _group(self, change: ObjectChange) -> Iterable[str]:
        _, namespace = names_of(change.key)
        owners = owner_references(change.after or change.before)
        return [f"{namespace}/{one.name}" for one in owners if refers_to(JOBS, one.api_version, one.kind)]

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        job, served, groups = self.cluster.find(JOBS, key), self._served(JOBS), self._served(POD_GROUPS)
        if job is None or served is None or "deletionTimestamp" in job["metadata"]:
            return None
        try:
            spec = read_spec(job)
        except InvalidJobError as error:
            self.events.warning(job, "InvalidJob", str(error))
            state = {"phase": jobs.PENDING, "reason": "InvalidJob", "message": str(error)}
            write_status(self.api, served, job, {**(job.get("status") or {}), "state": state})
            return None
        if groups is None:
            text = "PodGroups of scheduling.volcano.sh are not served: bayplan queues crds prints their kind"
            self.events.warning(job, "PodGroupError", text)
            return None
        return self._proceed(job, spec, served, groups)

    def _proceed(self, job: Content, spec: JobSpec, served: Resource, groups: Resource) -> float | None:
        meta = job["metadata"]
        uid = meta["uid"]
        group = self.cluster.find(POD_GROUPS, f"{meta['namespace']}/{objects.group_name(job)}")
        version = (job.get("status") or {}).get("version", 0)
        self._evicted[uid] = evicted = [each for each in self._evicted.get(uid, ()) if each[0] == version]
        if uid not in self._pods:
            self._pods[uid] = JobPods(meta["name"], self.cluster.pods.owned_by(uid).pods.values())
        plan = jobs.plan(
            job,
            spec,
            self._pods[uid],
            now=self.api.time(),
            written=self.api.now(),
            group_phase=((group or {}).get("status") or {}).get("phase", ""),
            evicted=[found for _, found in evicted],
            command=self._command(job),
        )
        if plan.action or plan.again is None:
            self._evicted.pop(uid, None)
        if "status" not in job and (missing := not_supported(spec)):
            self.events.warning(job, "NotSupported", f"Not done here: {', '.join(missing)}")
        if plan.action:
            self.events.normal(job, "ExecuteAction", f"Start to execute action {plan.action}")
        for pod in plan.delete:
            self._delete(pod)
        self._keep_group(job, spec, group if plan.keeps_group else None, groups, wanted=plan.keeps_group)
        try:
            missing_claim = self._keep_objects(job, spec)
        except StatusError as error:
            self.events.warning(job, "PluginError", f"Execute plugin when job add failed, err: {error}")
            raise
        job = write_status(self.api, served, job, plan.status)
        if missing_claim:
            self.events.warning(job, "PVCNotFound", NO_CLAIM.format(missing_claim))
            return earliest(plan.again, _CLAIM_SECONDS)
        more = self._create(job, spec, plan)
        waiting = self._report_group(job, group) if plan.keeps_group and more is None else None
        again = earliest(plan.again, more, waiting)
        return earliest(again, self._delete_when_old(job, spec, served))

    def _delete(self, pod: Pod) -> None:
        with suppress(NotFoundError):
            mark = {"metadata": {"annotations": {objects.OUT_OF_SYNC: "true"}}}
            self.api.patch(PODS, pod.name, pod.namespace, mark)
            self.api.delete(PODS, pod.name, pod.namespace, DeleteOptions(uid=pod.uid))

    def _keep_group(
        self, job: Content, spec: JobSpec, group: Content | None, resource: Resource, *, wanted: bool
    ) -> None:
        """Creates, updates or deletes the PodGroup of a job."""
        meta = job["metadata"]
        if not wanted:
            with suppress(NotFoundError):
                self.api.delete(resource, objects.group_name(job), meta["namespace"])
            return
        made = objects.make_group(job, spec, self._priorities(spec))
        if group is None:
            self.api.create(resource, made, meta["namespace"])
        elif any(group["spec"].get(name) != value for name, value in made["spec"].items()):
            self.api.update(resource, {**group, "spec": {**group["spec"], **made["spec"]}})

    def _keep_objects(self, job: Content, spec: JobSpec) -> str:
        """Creates what a job and its plugins need, and updates hosts if the replicas of tasks have changed.

        Returns the name of a claim that the job needs and that does not exist; "" if there is none.
        """
        meta = job["metadata"]
        uid, name, namespace = meta["uid"], meta["name"], meta["namespace"]
        for number, volume in enumerate(spec.volumes):
            claim = objects.claim_name(job, spec, number)
            if volume.volume_claim is None and not self._exists(PERSISTENT_VOLUME_CLAIMS, claim, namespace):
                return claim
        replicas = {task.name: task.replicas for task in spec.tasks}
        if self._hosts.get(uid) == replicas:
            return ""
        for made in objects.make_claims(job, spec):
            if not self._exists(PERSISTENT_VOLUME_CLAIMS, made["metadata"]["name"], namespace):
                self.api.create(PERSISTENT_VOLUME_CLAIMS, made, namespace)
        owned = {"namespace": namespace, "ownerReferences": [owner_reference(job)]}
        if SVC in spec.plugins:
            hosts, data = plugins.hosts_name(name), plugins.make_hosts(name, spec)
            known = self.cluster.find(CONFIG_MAPS, f"{namespace}/{hosts}")
            if known is None:
                made = {"metadata": {"name": hosts, **owned}, "data": data}
                self.api.create(CONFIG_MAPS, made, namespace)
            elif known.get("data") != data:
                self.api.update(CONFIG_MAPS, {**known, "data": data})
            specs = {
                SERVICES: plugins.make_service(name, namespace, spec),
                NETWORK_POLICIES: plugins.make_network_policy(name, namespace, spec),
            }
            for resource, made_spec in specs.items():
                if made_spec is not None and not self._exists(resource, name, namespace):
                    made = {"metadata": {"name": name, **owned}, "spec": made_spec}
                    self.api.create(resource, made, namespace)
        if SSH in spec.plugins and not self._exists(SECRETS, plugins.secret_name(name), namespace):
            secret = {"metadata": {"name": plugins.secret_name(name), **owned}, "type": "Opaque"}
            files = plugins.make_key(name, spec).items()
            data = {file: base64.b64encode(text.encode()).decode() for file, text in files}
            self.api.create(SECRETS, {**secret, "data": data}, namespace)
        self._hosts[uid] = replicas
        return ""

    def _exists(self, resource: Resource, name: str, namespace: str) -> bool:
        return self.cluster.find(resource, f"{namespace}/{name}") is not None

    def _priorities(self, spec: JobSpec) -> dict[str, int]:
        names = {task.template["spec"].get("priorityClassName") for task in spec.tasks}
        found = (self.cluster.find(PRIORITY_CLASSES, name) for name in names if name)
        return {each["metadata"]["name"]: each["value"] for each in found if each is not None}

    def _create(self, job: Content, spec: JobSpec, plan: jobs.Plan) -> float | None:
        """Creates pods, some per call. Returns when to create more; None if no pod is missing."""
        missing = iter(plan.create)
        first = next(missing, None)
        if first is None:
            return None
        count = pods_per_call(first[0].template)
        for task, index in chain((first,), islice(missing, count - 1)):
            try:
                self.api.create(PODS, objects.make_pod(job, spec, task, index), job["metadata"]["namespace"])
            except StatusError as error:
                self.events.warning(job, "FailedCreate", f"Error creating pods: {error}")
                raise
        return 0.0

    def _report_group(self, job: Content, group: Content | None) -> float | None:
        """Reports why a PodGroup waits, once for each reason. Returns when to look at it again."""
        if group is None:
            return _ADMISSION_SECONDS
        meta, uid, status = group["metadata"], job["metadata"]["uid"], group.get("status") or {}
        name, text = f"{meta['namespace']}/{meta['name']}", ""
        known = [each for each in status.get("conditions") or () if each.get("status") == "True"]
        known.sort(key=lambda each: str(each.get("lastTransitionTime", "")))
        if known and known[-1].get("type") != "Scheduled":
            kind, message = str(known[-1].get("type")).lower(), known[-1].get("message")
            text = f"PodGroup {name} {kind}, reason: {message}"
            since, patience = known[-1].get("lastTransitionTime"), _CONDITION_SECONDS
        elif not status.get("phase"):
            text = NOT_ADMITTED.format(name)
            since, patience = meta["creationTimestamp"], _ADMISSION_SECONDS
        if text and (left := seconds_or_1970(since) + patience - self.api.time()) > 0:
            return left
        if text and self._told.get(uid) != text:
            self.events.warning(job, "PodGroupPending", text)
        self._told[uid] = text
        return None

    def _delete_when_old(self, job: Content, spec: JobSpec, served: Resource) -> float | None:
        ttl, state = spec.ttl_seconds_after_finished, job["status"]["state"]
        if ttl is None or state["phase"] not in jobs.FINISHED:
            return None
        left = seconds_or_1970(state["lastTransitionTime"]) + ttl - self.api.time()
        if left > 0:
            return left
        meta = job["metadata"]
        with suppress(NotFoundError):
            options = DeleteOptions(uid=meta["uid"], propagation=FOREGROUND)
            self.api.delete(served, meta["name"], meta["namespace"], options)
        return None


class VolcanoQueues(_Volcano):
    """The queues `root` and `default`, and the status of queues: their state, and PodGroups by phase."""

    name: ClassVar = "vc-controller-manager"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._groups: dict[str, Counter[str]] = {}
        """By queue: its PodGroups by phase."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {
            CUSTOM_RESOURCE_DEFINITIONS: self._definition,
            QUEUES: own_key,
            POD_GROUPS: self._group,
            COMMANDS: lambda change: self._targets(change, QUEUES),
        }

    def _definition(self, change: ObjectChange) -> Iterable[str]:
        return _OWN_QUEUES if change.key == f"{QUEUES.plural}.{QUEUES.group}" else ()

    def _group(self, change: ObjectChange) -> Iterable[str]:
        before, after = (_queue_and_phase(each) for each in (change.before, change.after))
        if before == after:
            return ()
        for found, sign in ((before, -1), (after, 1)):
            if found is not None:
                queue, phase = found
                self._groups.setdefault(queue, Counter())[phase] += sign
        return {found[0] for found in (before, after) if found is not None}

    def reconcile(self, key: str) -> float | None:
        served = self._served(QUEUES)
        if served is None:
            return None
        queue = self.cluster.find(QUEUES, key)
        if queue is None:
            if key not in _OWN_QUEUES:
                return None
            queue = self.api.create(served, {"metadata": {"name": key}, "spec": {"weight": 1}})
        status = queue.get("status") or {}
        if not status.get("state") and (fields := _not_used(queue)):
            self.events.warning(queue, "NotSupported", f"Not used by the scheduler: {', '.join(fields)}")
        state = _QUEUE_STATES.get(self._command(queue)) or status.get("state") or "Open"
        groups = self._groups.get(key) or Counter()
        if state == "Closing" and not groups.total():
            state = "Closed"
        counts = {phase: groups[phase] or None for phase in _PHASES}
        write_status(self.api, served, queue, {**status, **counts, "state": state})
        return None


def _not_used(queue: Content) -> tuple[str, ...]:
    try:
        return msgspec.convert(queue.get("spec") or {}, QueueSpec).not_used
    except msgspec.ValidationError:
        return ()  # the scheduler reports that it cannot read it


def _queue_and_phase(document: Document | None) -> tuple[str, str] | None:
    """The queue of a PodGroup, and the field of the queue's status that counts it."""
    # queue_controller_action.go: syncQueue
    if document is None:
        return None
    group = document.parse()
    phase = str((group.get("status") or {}).get("phase") or "Pending").lower()
    return str((group.get("spec") or {}).get("queue") or "default"), phase
