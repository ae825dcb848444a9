"""Rows of pods, nodes, workloads, and what they use: services, settings, secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bayplan.api.go_values import seconds_of
from bayplan.api.meta import Content
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.tables.rows import (
    NONE,
    UNKNOWN,
    Row,
    Rows,
    age,
    age_of,
    columns,
    human_duration,
    joined,
    labels_text,
    name_and_creation,
    name_of,
    selector_text,
)

_ROLE: Final = "node-role.kubernetes.io/"


# Pods


def _pod(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    statuses = status.get("containerStatuses") or []
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    total = len(spec.get("containers") or ()) + len(sidecars)
    names = {c.get("name") for c in sidecars}
    started = [s for s in status.get("initContainerStatuses") or () if s.get("name") in names]
    ready = sum(bool(s.get("ready")) for s in (*statuses, *started))
    restarts = sum(s.get("restartCount", 0) for s in (*statuses, *started))
    addresses = [entry.get("ip", "") for entry in status.get("podIPs") or ()]
    return [
        name_of(content),
        f"{ready}/{total}",
        pod_status(content),
        str(restarts),
        age_of(content, now),
        joined(filter(None, addresses[:1]), status.get("podIP") or NONE),
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def pod_status(content: Content) -> str:
    """The STATUS column: the phase, or a more specific reason."""
    meta, status = content["metadata"], content.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    initializing = _init_reason(content)
    if initializing is not None:
        reason = initializing
    else:
        running = False
        for state in reversed(status.get("containerStatuses") or ()):
            container_reason = _container_reason(state)
            if container_reason:
                reason = container_reason
            elif state.get("ready") and "running" in (state.get("state") or {}):
                running = True
        if reason == "Completed" and running:
            reason = "Running" if _has_condition(status, "Ready") else "NotReady"
    if "deletionTimestamp" in meta and status.get("reason") == "NodeLost":
        return "Unknown"
    if "deletionTimestamp" in meta and status.get("phase") not in ("Succeeded", "Failed"):
        return "Terminating"
    return reason


def _init_reason(content: Content) -> str | None:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    states = status.get("initContainerStatuses") or ()
    restartable = {
        c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"
    }
    for i, state in enumerate(states):
        ended = (state.get("state") or {}).get("terminated")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if state.get("name") in restartable and state.get("started"):
            continue
        container_reason = _container_reason(state)
        if container_reason and container_reason != "PodInitializing":
            return f"Init:{container_reason}"
        return f"Init:{i}/{len(spec.get('initContainers') or ())}"
    return None


def _container_reason(state: Content) -> str:
    inner = state.get("state") or {}
    waiting, ended = inner.get("waiting") or {}, inner.get("terminated")
    if waiting.get("reason"):
        return str(waiting["reason"])
    if ended is None:
        return ""
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _has_condition(status: Content, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions") or ())


def _readiness_gates(spec: Content, status: Content) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return NONE
    open_gates = sum(_has_condition(status, gate.get("conditionType", "")) for gate in gates)
    return f"{open_gates}/{len(gates)}"


# Nodes


def _node(content: Content, now: float) -> Row:
    meta, spec, status = content["metadata"], content.get("spec") or {}, content.get("status") or {}
    info = status.get("nodeInfo") or {}
    words = [
        "Ready" if c.get("status") == "True" else "NotReady"
        for c in status.get("conditions") or ()
        if c.get("type") == "Ready"
    ]
    words = words or ["Unknown"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    labels = meta.get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE) and key != _ROLE}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return [
        name_of(content),
        ",".join(words),
        joined(sorted(roles)),
        age_of(content, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _address(status: Content, kind: str) -> str:
    found = [entry.get("address") for entry in status.get("addresses") or () if entry.get("type") == kind]
    return str(found[0]) if found else NONE


# Others


def _namespace(content: Content, now: float) -> Row:
    return [name_of(content), (content.get("status") or {}).get("phase", ""), age_of(content, now)]


def _event(content: Content, now: float) -> Row:
    about = content.get("involvedObject") or {}
    series = content.get("series") or {}
    first = content.get("firstTimestamp") or content.get("eventTime")
    last = series.get("lastObservedTime") or content.get("lastTimestamp") or first
    count = series.get("count") or content.get("count") or 1
    source = content.get("source") or {}
    component = source.get("component") or content.get("reportingComponent") or ""
    host = source.get("host") or content.get("reportingInstance") or ""
    target = about.get("kind", "").lower()
    return [
        age(last, now),
        content.get("type", ""),
        content.get("reason", ""),
        f"{target}/{about['name']}" if about.get("name") else target,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        content.get("message", "").strip(),
        age(first, now),
        str(count),
        name_of(content),
    ]


def _budget(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    return [
        name_of(content),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        status.get("disruptionsAllowed", 0),
        age_of(content, now),
    ]


def _priority_class(content: Content, now: float) -> Row:
    return [
        name_of(content),
        content.get("value", 0),
        bool(content.get("globalDefault")),
        age_of(content, now),
        content.get("preemptionPolicy", ""),
    ]


def _lease(content: Content, now: float) -> Row:
    holder = (content.get("spec") or {}).get("holderIdentity", "")
    return [name_of(content), holder, age_of(content, now)]


_EVENT_COLUMNS: Final = (
    "Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message", "First Seen*", "Count*",
    "Name*",
)  # fmt: skip
_NODE_COLUMNS: Final = (
    "Name", "Status", "Roles", "Age", "Version", "Internal-IP*", "External-IP*", "OS-Image*",
    "Kernel-Version*", "Container-Runtime*",
)  # fmt: skip
_POD_COLUMNS: Final = (
    "Name", "Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*", "Readiness Gates*",
)  # fmt: skip

ROWS: Final[Mapping[Resource, Rows]] = {
    kinds.CUSTOM_RESOURCE_DEFINITIONS: Rows(columns("Name", "Created At:date"), name_and_creation),
    kinds.EVENTS: Rows(columns(*_EVENT_COLUMNS), _event),
    kinds.LEASES: Rows(columns("Name", "Holder", "Age"), _lease),
    kinds.NAMESPACES: Rows(columns("Name", "Status", "Age"), _namespace),
    kinds.NODES: Rows(columns(*_NODE_COLUMNS), _node),
    kinds.PODS: Rows(columns(*_POD_COLUMNS), _pod),
    kinds.POD_DISRUPTION_BUDGETS: Rows(
        columns("Name", "Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"), _budget
    ),
    kinds.PRIORITY_CLASSES: Rows(
        columns("Name", "Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"), _priority_class
    ),
}


def _containers(content: Content) -> Row:
    """Names and images of a template's containers."""
    template = (content.get("spec") or {}).get("template") or {}
    found = (template.get("spec") or {}).get("containers") or ()
    return [
        ",".join(c.get("name", "") for c in found),
        ",".join(c.get("image", "") for c in found),
    ]


def _replicas(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    return [
        name_of(content),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age_of(content, now),
        *_containers(content),
        selector_text(spec.get("selector")),
    ]


def _deployment(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    return [
        name_of(content),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        str(status.get("updatedReplicas", 0)),
        str(status.get("availableReplicas", 0)),
        age_of(content, now),
        *_containers(content),
        selector_text(spec.get("selector")),
    ]


def _stateful_set(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name_of(content), ready, age_of(content, now), *_containers(content)]


def _daemon_set(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    return [
        name_of(content),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels_text(template.get("nodeSelector")),
        age_of(content, now),
        *_containers(content),
        selector_text(spec.get("selector")),
    ]


def _job(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    succeeded, wanted = status.get("succeeded", 0), spec.get("completions")
    if wanted is not None:
        completions = f"{succeeded}/{wanted}"
    elif spec.get("parallelism", 1) > 1:
        completions = f"{succeeded}/1 of {spec['parallelism']}"
    else:
        completions = f"{succeeded}/1"
    start, end = seconds_of(status.get("startTime")), seconds_of(status.get("completionTime"))
    duration = "" if start is None else human_duration((now if end is None else end) - start)
    return [
        name_of(content),
        _job_status(content),
        completions,
        duration,
        age_of(content, now),
        *_containers(content),
        selector_text(spec.get("selector")),
    ]


def _job_status(content: Content) -> str:
    status = content.get("status") or {}
    holds = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
    for condition, word in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
    ):
        if condition in holds:
            return word
    if "deletionTimestamp" in content["metadata"]:
        return "Terminating"
    for condition, word in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if condition in holds:
            return word
    return "Running"


def _service(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    ports = [
        f"{p.get('port')}:{p['nodePort']}/{p.get('protocol', 'TCP')}"
        if p.get("nodePort")
        else f"{p.get('port')}/{p.get('protocol', 'TCP')}"
        for p in spec.get("ports") or ()
    ]
    return [
        name_of(content),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        _external(content),
        joined(ports),
        age_of(content, now),
        labels_text(spec.get("selector")),
    ]


def _external(content: Content) -> str:
    spec = content.get("spec") or {}
    kind = spec.get("type")
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    given = list(spec.get("externalIPs") or ())
    if kind == "LoadBalancer":
        balancer = ((content.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        given = [each.get("ip") or each.get("hostname", "") for each in balancer] + given
        return joined(given, "<pending>")
    return joined(given)


def _config_map(content: Content, now: float) -> Row:
    count = len(content.get("data") or ()) + len(content.get("binaryData") or ())
    return [name_of(content), str(count), age_of(content, now)]


def _secret(content: Content, now: float) -> Row:
    return [
        name_of(content),
        content.get("type", ""),
        str(len(content.get("data") or ())),
        age_of(content, now),
    ]


def _revision(content: Content, now: float) -> Row:
    owner: dict[str, Any] = next(
        (o for o in content["metadata"].get("ownerReferences") or () if o.get("controller")), {}
    )
    group = owner.get("apiVersion", "").rpartition("/")[0]
    kind = owner.get("kind", "").lower()
    controller = f"{kind}.{group}/{owner['name']}" if owner else NONE
    return [name_of(content), controller, str(content.get("revision", 0)), age_of(content, now)]


def _rows(make: Callable[[Content, float], Row], *names: str) -> Rows:
    return Rows(columns(*names), make)


_REPLICA_COLUMNS: Final = (
    "Name", "Desired:integer", "Current:integer", "Ready:integer", "Age", "Containers*", "Images*",
    "Selector*",
)  # fmt: skip
_DAEMON_COLUMNS: Final = (
    "Name", "Desired:integer", "Current:integer", "Ready:integer", "Up-to-date:integer", "Available:integer",
    "Node Selector", "Age", "Containers*", "Images*", "Selector*",
)  # fmt: skip

WORKLOAD_ROWS: Final[Mapping[Resource, Rows]] = {
    kinds.CONFIG_MAPS: _rows(_config_map, "Name", "Data", "Age"),
    kinds.CONTROLLER_REVISIONS: _rows(_revision, "Name", "Controller", "Revision", "Age"),
    kinds.DAEMON_SETS: _rows(_daemon_set, *_DAEMON_COLUMNS),
    kinds.DEPLOYMENTS: _rows(
        _deployment, "Name", "Ready", "Up-to-date", "Available", "Age", "Containers*", "Images*", "Selector*"
    ),
    kinds.JOBS: _rows(
        _job, "Name", "Status", "Completions", "Duration", "Age", "Containers*", "Images*", "Selector*"
    ),
    kinds.REPLICATION_CONTROLLERS: _rows(_replicas, *_REPLICA_COLUMNS),
    kinds.REPLICA_SETS: _rows(_replicas, *_REPLICA_COLUMNS),
    kinds.SECRETS: _rows(_secret, "Name", "Type", "Data", "Age"),
    kinds.SERVICES: _rows(
        _service, "Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector*"
    ),
    kinds.STATEFUL_SETS: _rows(_stateful_set, "Name", "Ready", "Age", "Containers*", "Images*"),
}
