"""The objects of a Job of Volcano: its pods and its PodGroup, as Volcano's controller makes them.

The plugins `env` and `svc` of a job set variables, host names and the subdomain. Hosts are in a ConfigMap, to
which the variables refer. No other object is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.api.pod_defaults import pod_amounts
from bayplan.api.quantity import quantity_text
from bayplan.api.volcano import GROUP_ANNOTATION, PREEMPTABLE, TASK_ANNOTATION
from bayplan.controllers.pods import owner_reference, pod_from
from bayplan.controllers.volcano.spec import ENV_PLUGIN, SVC_PLUGIN, JobSpec, TaskSpec

JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
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


def _min_resources(spec: JobSpec, priorities: Mapping[str, int]) -> dict[str, str]:
    """What the pods of the minimum request: those of tasks with a high priority first."""
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
    amounts: Counter[str] = Counter()
    for task in tasks:
        for kind, amount in pod_amounts(task.template["spec"], "requests", with_overhead=True).items():
            amounts[kind] += amount * counts[task.name]
    return {kind: quantity_text(amount, binary=kind != "cpu") for kind, amount in sorted(amounts.items())}


def pod_name(job: str, task: TaskSpec, index: int) -> str:
    """The name of a pod of the job with this name."""
    return f"{job}-{task.name}-{index}"


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
    if SVC_PLUGIN in spec.plugins:
        pod_spec["hostname"] = pod_spec.get("hostname") or pod["metadata"]["name"]
        pod_spec["subdomain"] = pod_spec.get("subdomain") or meta["name"]
    if variables := _variables(job, spec, index):
        for containers in ("containers", "initContainers"):
            if pod_spec.get(containers):
                pod_spec[containers] = [
                    {**each, "env": [*(each.get("env") or ()), *variables]} for each in pod_spec[containers]
                ]
    return pod


def hosts_name(job: str) -> str:
    """The name of the ConfigMap with the hosts of a job."""
    return f"{job}-svc"


def make_hosts(job: Content, spec: JobSpec) -> Content | None:
    """The ConfigMap of the plugin svc; None without it."""
    if SVC_PLUGIN not in spec.plugins:
        return None
    meta, data = job["metadata"], dict[str, str]()
    for task in spec.tasks:
        names = _hosts(meta["name"], task)
        data[f"{task.name}.host"] = "\n".join(names)
        data[f"VC_{_variable(task)}_HOSTS"] = ",".join(names)
        data[f"VC_{_variable(task)}_NUM"] = str(len(names))
    return {
        "metadata": {
            "name": hosts_name(meta["name"]),
            "namespace": meta["namespace"],
            "ownerReferences": [owner_reference(job)],
        },
        "data": data,
    }


def _hosts(job: str, task: TaskSpec) -> list[str]:
    # svc.go: GenerateHosts
    pod_spec = task.template["spec"]
    domain = pod_spec.get("subdomain") or job
    if pod_spec.get("hostname"):
        return [f"{pod_spec['hostname']}.{domain}"]
    return [f"{pod_name(job, task, number)}.{domain}" for number in range(task.replicas)]


def _variable(task: TaskSpec) -> str:
    return task.name.replace("-", "_").upper()


def _variables(job: Content, spec: JobSpec, index: int) -> list[Content]:
    """The environment that the plugins env and svc set."""
    # env.go, svc.go: OnPodCreate
    found: list[Content] = []
    if ENV_PLUGIN in spec.plugins:
        found += [{"name": name, "value": str(index)} for name in ("VK_TASK_INDEX", "VC_TASK_INDEX")]
    if SVC_PLUGIN in spec.plugins and "--inject-hosts-env=false" not in (spec.plugins[SVC_PLUGIN] or ()):
        hosts = hosts_name(job["metadata"]["name"])
        for task in spec.tasks:
            for key in (f"VC_{_variable(task)}_HOSTS", f"VC_{_variable(task)}_NUM"):
                found.append({"name": key, "valueFrom": {"configMapKeyRef": {"name": hosts, "key": key}}})
    return found


def task_of(pod: Pod) -> str:
    return pod.metadata.annotations.get(TASK_ANNOTATION, "")


def version_of(pod: Pod) -> int:
    """The version of the job that created the pod; -1 if the annotation was removed or changed."""
    text = pod.metadata.annotations.get(JOB_VERSION, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
