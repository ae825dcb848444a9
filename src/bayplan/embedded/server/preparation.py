"""Fields that the server itself sets when an object is created or changed, by kind.

Defaults complete missing fields (`defaults.py`); this module sets what users cannot: the status of a new
object, the QoS class of a pod, and the labels and selector of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.api.quantity import parse_quantity
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource

_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "lastTransitionTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_UID_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
_NAME_LABELS: Final = ("batch.kubernetes.io/job-name", "job-name")


_GATED_FIELDS: Final = {
    "schedulingGroup": "GenericWorkload",
    "schedulingConstraints": "TopologyAwareWorkloadScheduling",
    "resourceClaims": "DRAWorkloadResourceClaims",
    "preemptionPolicy": "PodGroupPreemptionPolicy",
    "parentCompositePodGroupName": "CompositePodGroup",
}
"""Fields of groups, and of their members, that belong to a feature gate."""
GROUP_PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


def drop_disabled(
    resource: Resource, content: Content, gates: frozenset[str], old: Content | None = None
) -> None:
    """Removes fields whose feature gate is off, unless the object had them before."""
    spec, known = content.get("spec"), (old or {}).get("spec") or {}
    if not isinstance(spec, dict):
        return
    if resource == kinds.PODS:
        if "schedulingGroup" in spec:
            _drop(spec, known, ("schedulingGroup",), gates)
    elif resource in (kinds.POD_GROUPS, kinds.COMPOSITE_POD_GROUPS):
        _drop(spec, known, _GATED_FIELDS, gates)
    elif resource == kinds.WORKLOADS:
        for template in spec.get("podGroupTemplates") or ():
            _drop(template, known, _GATED_FIELDS, gates)


def _drop(part: Content, known: Content, names: Iterable[str], gates: frozenset[str]) -> None:
    for name in names:
        if name in part and _GATED_FIELDS[name] not in gates and name not in known:
            del part[name]


def prepare_new(resource: Resource, content: Content) -> None:
    """Sets the server's fields in an object that is being created; its metadata is complete."""
    prepare = _NEW.get(resource)
    if prepare is not None:
        prepare(content)
    elif resource.subresource("status") is not None:
        content.pop("status", None)
        if resource.schema is None:
            content["status"] = {}


def _pod(content: Content) -> None:
    content["status"] = {"phase": "Pending", "qosClass": quality_of_service(content.get("spec") or {})}
    if (content.get("spec") or {}).get("schedulingGates"):
        now = content["metadata"]["creationTimestamp"]
        content["status"]["conditions"] = [{**_GATED, "lastTransitionTime": now}]


def quality_of_service(spec: Content) -> str:
    """Guaranteed, Burstable or BestEffort, from the cpu and memory of its containers."""
    seen = False
    guaranteed = True
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = parse_quantity(requests.get(name)), parse_quantity(limits.get(name))
            seen = seen or bool(request or limit)
            guaranteed = guaranteed and bool(limit) and request == limit
    if not seen:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def resized_pod(given: Content, old: Content) -> Content:
    """Spec and status of a pod with new requests and limits of its containers, and nothing else that is new.

    A kubelet reports what each container has. The simulated one does so once a pod is resized, for the status
    of every other pod would be longer for nothing: so what the containers had is noted here.
    """
    wanted = {each.get("name"): each for each in (given.get("spec") or {}).get("containers") or ()}
    containers = []
    for container in old["spec"]["containers"]:
        resources = wanted.get(container["name"], container).get("resources") or {}
        containers.append({**container, "resources": resources})
    parts: Content = {"spec": {**old["spec"], "containers": containers}, "status": old.get("status") or {}}
    if known := parts["status"].get("containerStatuses"):
        had = {container["name"]: container.get("resources") or {} for container in old["spec"]["containers"]}
        running = [{**_had(had.get(each["name"], {})), **each} for each in known]
        parts["status"] = {**parts["status"], "containerStatuses": running}
    return parts


def _had(resources: Content) -> Content:
    return {"resources": resources, "allocatedResources": resources.get("requests") or {}}


def restart_taint_time(content: Content, old: Content, now: str) -> None:
    """Sets timeAdded to now if the effect of a DeviceTaintRule changed, but timeAdded did not."""
    taint, known = content["spec"]["taint"], old["spec"]["taint"]
    if taint.get("effect") != known.get("effect") and taint.get("timeAdded") == known.get("timeAdded"):
        taint["timeAdded"] = now


def _namespace(content: Content) -> None:
    content["spec"] = {"finalizers": ["kubernetes"]}
    content["status"] = {"phase": "Active"}


def _node(content: Content) -> None:
    status = content.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    info = status.setdefault("nodeInfo", {})
    for name in (
        "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
        "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
    ):  # fmt: skip
        info.setdefault(name, "")


def _volume(content: Content) -> None:
    now = content["metadata"]["creationTimestamp"]
    content["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}


def _job(content: Content) -> None:
    content["status"] = {}
    spec, meta = content["spec"], content["metadata"]
    if spec.get("manualSelector"):
        return
    spec["manualSelector"] = False
    labels = {**dict.fromkeys(_UID_LABELS, meta["uid"]), **dict.fromkeys(_NAME_LABELS, meta.get("name", ""))}
    for target in (meta, spec["template"].setdefault("metadata", {})):
        target["labels"] = {**(target.get("labels") or {}), **labels}
    spec["selector"] = {"matchLabels": {_UID_LABELS[0]: meta["uid"]}}


def _daemon_set(content: Content) -> None:
    meta = content["metadata"]
    meta.setdefault("annotations", {})["deprecated.daemonset.template.generation"] = "1"
    names = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    content["status"] = dict.fromkeys(names, 0)


def _pod_group(content: Content) -> None:
    content["status"] = {}
    meta = content["metadata"]
    if GROUP_PROTECTION not in (meta.get("finalizers") or ()):
        # podgroupprotection/admission.go
        meta["finalizers"] = [*(meta.get("finalizers") or ()), GROUP_PROTECTION]


def _status(**fields: Any) -> Callable[[Content], None]:
    def prepare(content: Content) -> None:
        content["status"] = dict(fields)

    return prepare


_NEW: Final[dict[Resource, Callable[[Content], None]]] = {
    kinds.AUTOSCALERS: _status(desiredReplicas=0),
    kinds.DAEMON_SETS: _daemon_set,
    kinds.INGRESSES: _status(loadBalancer={}),
    kinds.JOBS: _job,
    kinds.NAMESPACES: _namespace,
    kinds.NODES: _node,
    kinds.PERSISTENT_VOLUMES: _volume,
    kinds.PERSISTENT_VOLUME_CLAIMS: _status(phase="Pending"),
    kinds.PODS: _pod,
    kinds.POD_DISRUPTION_BUDGETS: _status(
        disruptionsAllowed=0, currentHealthy=0, desiredHealthy=0, expectedPods=0
    ),
    kinds.POD_GROUPS: _pod_group,
    kinds.REPLICATION_CONTROLLERS: _status(replicas=0),
    kinds.REPLICA_SETS: _status(replicas=0),
    kinds.SERVICES: _status(loadBalancer={}),
    kinds.STATEFUL_SETS: _status(replicas=0, availableReplicas=0),
    kinds.VOLUME_ATTACHMENTS: _status(attached=False),
}
