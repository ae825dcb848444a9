"""Rows of workloads and of what they use: services, settings, secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bayplan.api.times import seconds_of
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.tables.durations import human_duration
from bayplan.embedded.server.tables.rows import (
    NONE,
    Content,
    Row,
    Rows,
    age_of,
    columns,
    joined,
    labels_text,
    name_of,
    selector_text,
)


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

ROWS: Final[Mapping[Resource, Rows]] = {
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
