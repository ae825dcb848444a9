"""Rows of volumes and devices, of limits and quotas, and of kinds without a controller here.

An entry of the table has the columns between name and age, and a function for their cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.embedded.server import kinds
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.tables.rows import (
    NONE,
    UNKNOWN,
    UNSET,
    Row,
    Rows,
    access_modes,
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

_MAX_SHOWN: Final = 3
"""Maximum number of addresses and ports in a cell; of further ones it has the number."""


def _part(content: Content, *path: str) -> Any:
    """The struct or list at a path; an empty struct where there is none."""
    for step in path:
        content = content.get(step) or {}
    return content


def _shortened(texts: Iterable[str], empty: str = UNSET) -> str:
    found = list(texts)
    shown = ",".join(found[:_MAX_SHOWN]) or empty
    return f"{shown} + {len(found) - _MAX_SHOWN} more..." if len(found) > _MAX_SHOWN else shown


def _created_at(content: Content, now: float) -> Row:
    return [content["metadata"].get("creationTimestamp", "")]


def _ingress(content: Content, now: float) -> Row:
    spec = _part(content, "spec")
    addresses = _part(content, "status", "loadBalancer", "ingress") or ()
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    return [
        spec.get("ingressClassName", NONE),
        _shortened(hosts, "*"),
        ",".join(address.get("ip") or address.get("hostname", "") for address in addresses),
        "80, 443" if spec.get("tls") else "80",
    ]


def _ingress_class(content: Content, now: float) -> Row:
    spec = _part(content, "spec")
    parameters = NONE
    if of := spec.get("parameters"):
        kind = ".".join(filter(None, (of.get("kind", ""), of.get("apiGroup", ""))))
        parameters = f"{kind}/{of.get('name', '')}"
    return [spec.get("controller", ""), parameters]


def _binding(content: Content, now: float) -> Row:
    role, subjects = _part(content, "roleRef"), content.get("subjects") or ()
    names: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in subjects:
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        names.setdefault(subject.get("kind", ""), []).append(name)
    users, groups, accounts = (", ".join(names[kind]) for kind in ("User", "Group", "ServiceAccount"))
    return [f"{role.get('kind', '')}/{role.get('name', '')}", users, groups, accounts]


def _autoscaler(content: Content, now: float) -> Row:
    spec = _part(content, "spec")
    target = _part(spec, "scaleTargetRef")
    return [
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(spec.get("metrics") or ()),
        str(spec.get("minReplicas", UNSET)),
        spec.get("maxReplicas", 0),
        _part(content, "status").get("currentReplicas", 0),
    ]


def _metrics(metrics: Iterable[Content]) -> str:
    """The targets of an autoscaler. Nothing is measured here, so current values are unknown."""
    texts = []
    for metric in metrics:
        kind = metric.get("type", "")
        source = _part(metric, kind[:1].lower() + kind[1:])
        wanted = _part(source, "target")
        if "averageUtilization" in wanted:
            text = f"{wanted['averageUtilization']}%"
        else:
            text = str(wanted.get("averageValue", wanted.get("value", UNKNOWN)))
        name = f"{source['name']}: " if kind in ("Resource", "ContainerResource") and "name" in source else ""
        texts.append(f"{name}{UNKNOWN}/{text}")
    shown = ", ".join(texts[:2]) or NONE
    return f"{shown} + {len(texts) - 2} more..." if len(texts) > 2 else shown


def _quota(content: Content, now: float) -> Row:
    hard, used = _part(content, "status", "hard"), _part(content, "status", "used")
    cells: tuple[list[str], list[str]] = ([], [])
    for name in sorted(hard):
        cells[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{hard[name]}")
    return [", ".join(cell) for cell in cells]


def _endpoints(content: Content, now: float) -> Row:
    found = []
    for subset in content.get("subsets") or ():
        ports = [f":{port.get('port', '')}" for port in subset.get("ports") or ()] or [""]
        found += [f"{at.get('ip', '')}{port}" for port in ports for at in subset.get("addresses") or ()]
    return [_shortened(found, NONE)]


def _endpoint_slice(content: Content, now: float) -> Row:
    ports = [str(port.get("port") or port.get("name") or "*") for port in content.get("ports") or ()]
    addresses = [each for at in content.get("endpoints") or () for each in at.get("addresses") or ()]
    return [content.get("addressType", ""), _shortened(ports), _shortened(addresses)]


def _signing_request(content: Content, now: float) -> Row:
    spec = _part(content, "spec")
    kinds = {condition.get("type") for condition in _part(content, "status").get("conditions") or ()}
    state = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    state += ",Failed" if "Failed" in kinds else ""
    state += ",Issued" if _part(content, "status").get("certificate") else ""
    seconds = spec.get("expirationSeconds")
    return [
        spec.get("signerName") or NONE,
        spec.get("username", ""),
        NONE if seconds is None else human_duration(seconds),
        state,
    ]


def _api_service(content: Content, now: float) -> Row:
    service = (content.get("spec") or {}).get("service")
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    available = UNKNOWN
    for condition in _part(content, "status").get("conditions") or ():
        if condition.get("type") == "Available":
            is_true = condition.get("status") == "True"
            available = (
                "True" if is_true else f"{condition.get('status', '')} ({condition.get('reason', '')})"
            )
    return [where, available]


def _cron_job(content: Content, now: float) -> Row:
    spec, status = _part(content, "spec"), _part(content, "status")
    job = _part(spec, "jobTemplate", "spec")
    containers = _part(job, "template", "spec").get("containers") or ()
    last = status.get("lastScheduleTime")
    return [
        spec.get("schedule", ""),
        spec.get("timeZone", NONE),
        str(spec.get("suspend", False)),
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        *_names_and_images(containers),
        selector_text(job.get("selector")),
    ]


def _pod_template(content: Content, now: float) -> Row:
    template = _part(content, "template")
    containers = _part(template, "spec").get("containers") or ()
    return [*_names_and_images(containers), labels_text(_part(template, "metadata").get("labels"))]


def _names_and_images(containers: Iterable[Content]) -> Row:
    found = list(containers)
    return [",".join(each.get(field, "") for each in found) for field in ("name", "image")]


def _flow_schema(content: Content, now: float) -> Row:
    spec = _part(content, "spec")
    return [
        _part(spec, "priorityLevelConfiguration").get("name", ""),
        spec.get("matchingPrecedence", 0),
        _part(spec, "distinguisherMethod").get("type", NONE),
        "?",
    ]


def _priority_level(content: Content, now: float) -> Row:
    spec = _part(content, "spec")
    limited = _part(spec, "limited")
    queuing = _part(limited, "limitResponse", "queuing")
    return [
        spec.get("type", ""),
        limited.get("nominalConcurrencyShares", NONE),
        *(queuing.get(name, NONE) for name in ("queues", "handSize", "queueLengthLimit")),
    ]


def _policy(rules: str) -> Callable[[Content, float], Row]:
    def cells(content: Content, now: float) -> Row:
        spec = _part(content, "spec")
        of = spec.get("paramKind")
        kind = f"{of.get('apiVersion', '')}/{of.get('kind', '')}" if of else UNSET
        return [len(spec.get(rules) or ()), kind]

    return cells


def _policy_binding(content: Content, now: float) -> Row:
    spec = _part(content, "spec")
    of = _part(spec, "paramRef")
    name = f"{of.get('namespace') or '*'}/{of['name']}" if of.get("name") else UNSET
    return [spec.get("policyName", ""), name]


def _rows(names: tuple[str, ...], cells: Callable[[Content, float], Row]) -> Rows:
    """The name first, then the cells, and the age if it has a column."""
    place = names.index("Age") if "Age" in names else None

    def row(content: Content, now: float) -> Row:
        made = cells(content, now)
        if place is not None:
            made.insert(place, age(content["metadata"].get("creationTimestamp"), now))
        return [content["metadata"]["name"], *made]

    return Rows(columns("Name", *names), row)


_BINDING: Final = (("Role", "Age", "Users*", "Groups*", "ServiceAccounts*"), _binding)
_CREATED: Final = (("Created At:date",), _created_at)
_WEBHOOKS: Final = (("Webhooks:integer", "Age"), lambda content, now: [len(content.get("webhooks") or ())])
_BOUND_POLICY: Final = (("PolicyName", "ParamRef", "Age"), _policy_binding)

_CELLS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Content, float], Row]]]] = {
    "APIService": (("Service", "Available", "Age"), _api_service),
    "CertificateSigningRequest": (
        ("Age", "SignerName", "Requestor", "RequestedDuration", "Condition"),
        _signing_request,
    ),
    "ClusterRole": _CREATED,
    "ClusterRoleBinding": _BINDING,
    "CronJob": (
        (
            "Schedule",
            "Timezone",
            "Suspend:boolean",
            "Active:integer",
            "Last Schedule",
            "Age",
            "Containers*",
            "Images*",
            "Selector*",
        ),
        _cron_job,
    ),
    "EndpointSlice": (("AddressType", "Ports", "Endpoints", "Age"), _endpoint_slice),
    "Endpoints": (("Endpoints", "Age"), _endpoints),
    "FlowSchema": (
        ("PriorityLevel", "MatchingPrecedence", "DistinguisherMethod", "Age", "MissingPL"),
        _flow_schema,
    ),
    "HorizontalPodAutoscaler": (
        ("Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"),
        _autoscaler,
    ),
    "Ingress": (("Class", "Hosts", "Address", "Ports", "Age"), _ingress),
    "IngressClass": (("Controller", "Parameters", "Age"), _ingress_class),
    "LimitRange": _CREATED,
    "MutatingAdmissionPolicy": (("Mutations:integer", "ParamKind", "Age"), _policy("mutations")),
    "MutatingAdmissionPolicyBinding": _BOUND_POLICY,
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "NetworkPolicy": (
        ("Pod-Selector", "Age"),
        lambda content, now: [selector_text(_part(content, "spec").get("podSelector"))],
    ),
    "PodTemplate": (("Containers", "Images", "Pod Labels"), _pod_template),
    "PriorityLevelConfiguration": (
        ("Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit", "Age"),
        _priority_level,
    ),
    "ResourceQuota": (("Request", "Limit", "Age"), _quota),
    "Role": _CREATED,
    "RoleBinding": _BINDING,
    "RuntimeClass": (("Handler", "Age"), lambda content, now: [content.get("handler", "")]),
    "ValidatingAdmissionPolicy": (("Validations:integer", "ParamKind", "Age"), _policy("validations")),
    "ValidatingAdmissionPolicyBinding": _BOUND_POLICY,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "VolumeAttributesClass": (("DriverName", "Age"), lambda content, now: [content.get("driverName", "")]),
}

ROWS: Final[dict[Resource, Rows]] = {
    resource: _rows(*_CELLS[resource.kind]) for resource in Catalog() if resource.kind in _CELLS
}


def _claim(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if "deletionTimestamp" in content["metadata"] else status.get("phase", "")
    return [
        name_of(content),
        phase,
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        access_modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(content, now),
        spec.get("volumeMode", UNSET),
    ]


def _volume(content: Content, now: float) -> Row:
    spec, status = content.get("spec") or {}, content.get("status") or {}
    claim = spec.get("claimRef")
    return [
        name_of(content),
        (spec.get("capacity") or {}).get("storage", ""),
        access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if "deletionTimestamp" in content["metadata"] else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        age_of(content, now),
        spec.get("volumeMode", UNSET),
    ]


def _storage_class(content: Content, now: float) -> Row:
    name = name_of(content)
    marks = content["metadata"].get("annotations") or {}
    if marks.get("storageclass.kubernetes.io/is-default-class") == "true":
        name = f"{name} (default)"
    return [
        name,
        content.get("provisioner", ""),
        content.get("reclaimPolicy", "Delete"),
        content.get("volumeBindingMode", "Immediate"),
        "true" if content.get("allowVolumeExpansion") else "false",
        age_of(content, now),
    ]


def _csi_node(content: Content, now: float) -> Row:
    return [name_of(content), len((content.get("spec") or {}).get("drivers") or ()), age_of(content, now)]


def _csi_driver(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    audiences = [token.get("audience", "") for token in spec.get("tokenRequests") or ()]
    return [
        name_of(content),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        joined(audiences, UNSET),
        spec.get("requiresRepublish", False),
        joined(spec.get("volumeLifecycleModes") or ()),
        age_of(content, now),
    ]


def _attachment(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    return [
        name_of(content),
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        (content.get("status") or {}).get("attached", False),
        age_of(content, now),
    ]


def _device_claim(content: Content, now: float) -> Row:
    status = content.get("status") or {}
    states = []
    if "deletionTimestamp" in content["metadata"]:
        states.append("deleted")
    states.append("allocated" if status.get("allocation") else "pending")
    if status.get("reservedFor"):
        states.append("reserved")
    return [name_of(content), ",".join(states), age_of(content, now)]


def _slice(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    return [
        name_of(content),
        spec.get("nodeName") or UNSET,
        spec.get("driver", ""),
        pool,
        age_of(content, now),
    ]


def _taint_rule(content: Content, now: float) -> Row:
    taint = (content.get("spec") or {}).get("taint") or {}
    added = taint.get("timeAdded")
    return [
        name_of(content),
        taint.get("key", ""),
        taint.get("value", ""),
        taint.get("effect", ""),
        age(added, now) if added else "<unknown>",
        age_of(content, now),
    ]


_VOLUME_COLUMNS: Final = (
    "Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass",
    "VolumeAttributesClass", "Reason", "Age", "VolumeMode*",
)  # fmt: skip


def _group(content: Content, now: float) -> Row:
    spec = content.get("spec") or {}
    policy = "Gang" if (spec.get("schedulingPolicy") or {}).get("gang") is not None else "Basic"
    workload = (spec.get("workloadRef") or {}).get("workloadName") or NONE
    return [name_of(content), policy, workload, age_of(content, now)]


def _pod_group(content: Content, now: float) -> Row:
    # printers.go: printPodGroup
    *row, age = _group(content, now)
    status = "Pending"
    conditions = {one.get("type"): one for one in (content.get("status") or {}).get("conditions") or ()}
    if (condition := conditions.get("PodGroupInitiallyScheduled")) is not None:
        status = "Scheduled" if condition.get("status") == "True" else "Unschedulable"
    if (condition := conditions.get("DisruptionTarget")) is not None:
        status = condition.get("reason", "")
    return [*row, status, age]


def _named(content: Content, now: float) -> Row:
    return [name_of(content), age_of(content, now)]


GROUP_ROWS: Final[Mapping[Resource, Rows]] = {
    kinds.COMPOSITE_POD_GROUPS: Rows(columns("Name", "Policy", "Workload", "Age"), _group),
    kinds.POD_GROUPS: Rows(columns("Name", "Policy", "Workload", "Status", "Age"), _pod_group),
    kinds.WORKLOADS: Rows(columns("Name", "Age"), _named),
}

_CLAIM_COLUMNS: Final = (
    "Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age",
    "VolumeMode*",
)  # fmt: skip
_DRIVER_COLUMNS: Final = (
    "Name", "AttachRequired:boolean", "PodInfoOnMount:boolean", "StorageCapacity:boolean", "TokenRequests",
    "RequiresRepublish:boolean", "Modes", "Age",
)  # fmt: skip

STORAGE_ROWS: Final[Mapping[Resource, Rows]] = {
    kinds.CSI_DRIVERS: Rows(columns(*_DRIVER_COLUMNS), _csi_driver),
    kinds.CSI_NODES: Rows(columns("Name", "Drivers:integer", "Age"), _csi_node),
    kinds.CSI_STORAGE_CAPACITIES: Rows(columns("Name", "Created At:date"), name_and_creation),
    kinds.DEVICE_TAINT_RULES: Rows(
        columns("Name", "Key", "Value", "Effect", "TimeAdded", "Age"), _taint_rule
    ),
    kinds.PERSISTENT_VOLUMES: Rows(columns(*_VOLUME_COLUMNS), _volume),
    kinds.PERSISTENT_VOLUME_CLAIMS: Rows(columns(*_CLAIM_COLUMNS), _claim),
    kinds.RESOURCE_CLAIMS: Rows(columns("Name", "State", "Age"), _device_claim),
    kinds.RESOURCE_SLICES: Rows(columns("Name", "Node", "Driver", "Pool", "Age"), _slice),
    kinds.STORAGE_CLASSES: Rows(
        columns("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
        _storage_class,
    ),
    kinds.VOLUME_ATTACHMENTS: Rows(
        columns("Name", "Attacher", "PV", "Node", "Attached:boolean", "Age"), _attachment
    ),
}
