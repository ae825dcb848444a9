"""The objects of a Job of Volcano: its pods, PodGroup and claims, as Volcano's controller makes them.

`plugins.py` has what the plugins of a job add.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Final

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.api.pod_defaults import pod_amounts
from bayplan.api.quantity import quantity_text
from bayplan.api.volcano import GROUP_ANNOTATION, PREEMPTABLE, TASK_ANNOTATION
from bayplan.controllers.pods import owner_reference, pod_from
from bayplan.controllers.volcano.plugins import change_pod
from bayplan.controllers.volcano.spec import JOB_NAME, JOB_NAMESPACE, JobSpec, TaskSpec, pod_name

JOB_VERSION: Final = "volcano.sh/job-version"
JOB_RETRIES: Final = "volcano.sh/job-retry-count"
QUEUE_NAME: Final = "volcano.sh/queue-name"
TASK_INDEX: Final = "volcano.sh/task-index"
TEMPLATE: Final = "volcano.sh/template-uid"
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
"""On a pod that the controller deletes: its end is not an event."""
_ON_PODS: Final = (PREEMPTABLE, "volcano.sh/cooldown-time")
"""Annotations and labels of a job that its pods get, too."""


def group_name(job: Content) -> str:
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def make_group(job: Content, spec: JobSpec, priorities: Mapping[str, int]) -> Content:
    """The PodGroup of a job.

    Args:
        priorities: the values of PriorityClasses by name.
    """
    meta = job["metadata"]
    described = {kind: dict(meta[kind]) for kind in ("labels", "annotations") if meta.get(kind)}
    return {
        "metadata": {
            "name": group_name(job),
            "namespace": meta["namespace"],
            "ownerReferences": [owner_reference(job)],
            **described,
        },
        "spec": group_spec(spec, priorities),
    }


def group_spec(spec: JobSpec, priorities: Mapping[str, int]) -> Content:
    # job_controller_actions.go: createOrUpdatePodGroup
    wanted: Content = {
        "minMember": spec.min_available,
        "minTaskMember": {task.name: task.minimum for task in spec.tasks},
        "queue": spec.queue,
        "minResources": _min_resources(spec, priorities),
    }
    if spec.priority_class_name:
        wanted["priorityClassName"] = spec.priority_class_name
    return wanted


def minimum_by_task(spec: JobSpec, priorities: Mapping[str, int]) -> dict[str, int]:
    """How many pods of each task are the minimum of a job: those of tasks with a high priority first."""
    # job_controller_actions.go: calcPGMinResources
    tasks = sorted(
        spec.tasks,
        key=lambda task: -priorities.get(task.template["spec"].get("priorityClassName") or "", 0),
    )
    left = spec.min_available
    counts: dict[str, int] = {}
    if left >= sum(task.minimum for task in tasks):
        for task in tasks:
            counts[task.name] = task.minimum
            left -= task.minimum
    for task in tasks:
        more = min(left, task.replicas - counts.get(task.name, 0))
        counts[task.name] = counts.get(task.name, 0) + more
        left -= more
    return counts


def _min_resources(spec: JobSpec, priorities: Mapping[str, int]) -> dict[str, str]:
    """What the pods of the minimum request."""
    counts = minimum_by_task(spec, priorities)
    amounts: Counter[str] = Counter()
    for task in spec.tasks:
        for kind, amount in pod_amounts(task.template["spec"], "requests", with_overhead=True).items():
            amounts[kind] += amount * counts[task.name]
    return {kind: quantity_text(amount, binary=kind != "cpu") for kind, amount in sorted(amounts.items())}


def make_pod(job: Content, spec: JobSpec, task: TaskSpec, index: int) -> Content:
    """The pod of a task with this index."""
    # job_controller_util.go: createJobPod
    meta, status = job["metadata"], job.get("status") or {}
    labels = {
        TASK_INDEX: str(index),
        JOB_NAME: meta["name"],
        TASK_ANNOTATION: task.name,
        JOB_NAMESPACE: meta["namespace"],
        QUEUE_NAME: spec.queue,
    }
    annotations = {
        TASK_INDEX: str(index),
        TASK_ANNOTATION: task.name,
        GROUP_ANNOTATION: group_name(job),
        JOB_NAME: meta["name"],
        QUEUE_NAME: spec.queue,
        JOB_VERSION: str(status.get("version", 0)),
        TEMPLATE: f"{meta['name']}-{task.name}",
        JOB_RETRIES: str(status.get("retryCount", 0)),
    }
    for key in _ON_PODS:
        if key in (meta.get("labels") or {}):
            labels[key] = meta["labels"][key]
        if key in (meta.get("annotations") or {}):
            annotations[key] = meta["annotations"][key]
    pod = pod_from(task.template, job, name=pod_name(meta["name"], task, index), labels=labels)
    pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **annotations}
    pod_spec = pod["spec"]
    pod_spec["schedulerName"] = pod_spec.get("schedulerName") or spec.scheduler_name
    if spec.priority_class_name and not pod_spec.get("priorityClassName"):
        pod_spec["priorityClassName"] = spec.priority_class_name
    _mount(pod_spec, job, spec)
    change_pod(pod, meta["name"], spec, task, index)
    return pod


def _mount(pod_spec: Content, job: Content, spec: JobSpec) -> None:
    """Mounts the volumes of a job in all containers."""
    for number, volume in enumerate(spec.volumes):
        name, claim = f"{job['metadata']['name']}-volume-{number}", claim_name(job, spec, number)
        source = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        mount = {"name": name, "mountPath": volume.mount_path}
        pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), source]
        pod_spec["containers"] = [
            {**each, "volumeMounts": [*(each.get("volumeMounts") or ()), mount]}
            for each in pod_spec.get("containers") or ()
        ]


def claim_name(job: Content, spec: JobSpec, number: int) -> str:
    """The PersistentVolumeClaim of a volume: the one that it names, or a new one of the job.

    Volcano chooses the name of a new one at random and writes it into the spec.
    """
    meta, volume = job["metadata"], spec.volumes[number]
    made = hashlib.sha256(f"{meta['uid']} {number}".encode()).hexdigest()[:12]
    return volume.volume_claim_name or f"{meta['name']}-pvc-{made}"


def make_claims(job: Content, spec: JobSpec) -> list[Content]:
    """The PersistentVolumeClaims that a job makes."""
    meta = job["metadata"]
    return [
        {
            "metadata": {
                "name": claim_name(job, spec, number),
                "namespace": meta["namespace"],
                "ownerReferences": [owner_reference(job)],
            },
            "spec": volume.volume_claim,
        }
        for number, volume in enumerate(spec.volumes)
        if volume.volume_claim is not None
    ]


def task_of(pod: Pod) -> str:
    return pod.metadata.annotations.get(TASK_ANNOTATION, "")


def version_of(pod: Pod) -> int:
    """The version of the job that created the pod; -1 if the annotation was removed or changed."""
    text = pod.metadata.annotations.get(JOB_VERSION, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
