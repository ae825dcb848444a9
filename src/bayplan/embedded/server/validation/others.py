"""The rules of kinds other than pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from bayplan.api.meta import Content, LabelSelector
from bayplan.api.names import dns_label_problems, label_key_problems, label_value_problems
from bayplan.api.selectors import compile_selector
from bayplan.cron import ScheduleError, parse_schedule
from bayplan.embedded.server.schema.types import named_type
from bayplan.embedded.server.statuses import (
    FieldProblem,
    duplicate,
    forbidden_field,
    invalid_field,
    required,
    too_many,
    unsupported,
)
from bayplan.embedded.server.validation.custom import schema_problems
from bayplan.embedded.server.validation.devices import (
    driver_problems,
    name_problems,
    pool_problems,
    taint_problems,
)
from bayplan.embedded.server.validation.pods import pod_spec_problems
from bayplan.embedded.server.validation.values import (
    EFFECTS,
    IMMUTABLE,
    choice_problems,
    label_problems,
    not_negative,
    quantity_problems,
    selector_problems,
)
from bayplan.errors import SelectorError

_HIGHEST_PRIORITY: Final = 1_000_000_000
_SYSTEM: Final = "system-"

MAX_DATA_BYTES: Final = 1024 * 1024
"""Of all entries of a ConfigMap or a Secret."""


def node_problems(node: Content) -> list[FieldProblem]:
    problems = []
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        at = f"metadata.taints[{i}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        problems += [invalid_field(f"{at}.key", key, why) for why in label_key_problems(key)]
        text = taint.get("value", "")
        if why_not := "; ".join(label_value_problems(text)):
            problems.append(invalid_field(f"{at}.value", text, why_not))
        if effect not in EFFECTS:
            problems.append(unsupported(f"{at}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": text, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            problems.append(duplicate(at, shown, "taints must be unique by key and effect pair"))
        seen.add((key, effect))
    status = node.get("status") or {}
    for part in ("capacity", "allocatable"):
        for name, quantity in (status.get(part) or {}).items():
            problems += quantity_problems(name, quantity, f"status.{part}.{name}")
    return problems


def priority_class_problems(item: Content) -> list[FieldProblem]:
    name, priority = item["metadata"].get("name", ""), item.get("value", 0)
    problems = []
    if name.startswith(_SYSTEM):
        known = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
        if known.get(name) != priority:
            why = "priority class names with 'system-' prefix are reserved for system use only. error: "
            detail = f"{name} is not a known system priority class"
            problems.append(forbidden_field("metadata.name", why + detail))
    elif priority > _HIGHEST_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        problems.append(forbidden_field("value", why))
    return problems + choice_problems(item, named_type("PriorityClass"))


def priority_class_update_problems(item: Content, old: Content) -> list[FieldProblem]:
    problems = []
    if item.get("value", 0) != old.get("value", 0):
        problems.append(forbidden_field("value", "may not be changed in an update."))
    if item.get("preemptionPolicy") != old.get("preemptionPolicy"):
        problems.append(invalid_field("preemptionPolicy", item.get("preemptionPolicy"), IMMUTABLE))
    return problems


def budget_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    problems = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        why = "minAvailable and maxUnavailable cannot be both set"
        shown = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        problems.append(invalid_field("spec", shown, why))
    for name in ("minAvailable", "maxUnavailable"):
        problems += _count_or_percentage(spec, name, "spec")
    return problems + selector_problems(spec.get("selector"), "spec.selector")


def _count_or_percentage(spec: Content, name: str, path: str) -> list[FieldProblem]:
    given = spec.get(name)
    if isinstance(given, int):
        return not_negative(spec, name, path)
    if isinstance(given, str) and not (given.endswith("%") and given[:-1].isdecimal()):
        why = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
            "'93%', regex used for validation is '[0-9]+%')"
        )
        return [invalid_field(f"{path}.{name}", given, why)]
    return []


def workload_problems(item: Content) -> list[FieldProblem]:
    """ReplicaSets, Deployments, StatefulSets and DaemonSets."""
    spec = item.get("spec") or {}
    problems = not_negative(spec, "replicas", "spec")
    problems += not_negative(spec, "minReadySeconds", "spec")
    selector = spec.get("selector")
    if selector is None:
        problems.append(required("spec.selector"))
    else:
        problems += selector_problems(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            problems.append(
                invalid_field("spec.selector", selector, "empty selector is invalid for deployment")
            )
    template = spec.get("template") or {}
    # The StatefulSet controller adds a volume to a pod for each claim template.
    claims = [(each.get("metadata") or {}).get("name", "") for each in spec.get("volumeClaimTemplates") or ()]
    problems += _template(template, selector, claims)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy not in (None, "Always"):
        problems.append(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    return problems


def _template(template: Content, selector: Any, claims: Iterable[str] = ()) -> list[FieldProblem]:
    path = "spec.template"
    labels = (template.get("metadata") or {}).get("labels") or {}
    problems = label_problems(labels, f"{path}.labels")
    try:
        wanted = None if selector is None else msgspec.convert(selector, LabelSelector)
        matches = compile_selector(wanted).matches(labels)
    except (SelectorError, msgspec.ValidationError):
        matches = True  # the problems of the selector have been reported
    if not matches:
        why = "`selector` does not match template `labels`"
        problems.append(invalid_field(f"{path}.metadata.labels", labels or None, why))
    return problems + pod_spec_problems(template.get("spec") or {}, f"{path}.spec", claims)


def replication_controller_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    problems = not_negative(spec, "replicas", "spec")
    if not spec.get("selector"):
        problems.append(required("spec.selector"))
    return problems + _template(spec.get("template") or {}, {"matchLabels": spec.get("selector") or {}})


def workload_update_problems(item: Content, old: Content) -> list[FieldProblem]:
    selector, known = (item.get("spec") or {}).get("selector"), (old.get("spec") or {}).get("selector")
    return [] if selector == known else [invalid_field("spec.selector", selector, IMMUTABLE)]


def job_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    problems = []
    for name in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds"):
        problems += not_negative(spec, name, "spec")
    template = spec.get("template") or {}
    problems += _template(template, spec.get("selector"))
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy == "Always":
        at = "spec.template.spec.restartPolicy"
        problems.append(required(at, 'valid values: "OnFailure", "Never"'))
    return problems


def cron_job_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    problems = []
    try:
        parse_schedule(schedule)
    except ScheduleError as error:
        problems.append(invalid_field("spec.schedule", schedule, str(error)))
    else:
        try:
            parse_schedule(schedule, zone or "")
        except ScheduleError as error:
            problems.append(invalid_field("spec.timeZone", zone, str(error)))
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit", "startingDeadlineSeconds"):
        problems += not_negative(spec, name, "spec")
    return problems + choice_problems(item, named_type("CronJob"))


def claim_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    problems = selector_problems(spec.get("selector"), "spec.selector")
    if not spec.get("accessModes"):
        problems.append(required("spec.accessModes", "at least 1 access mode is required"))
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        problems.append(required("spec.resources[storage]"))
    else:
        problems += quantity_problems("storage", storage, "spec.resources[storage]")
    return problems + choice_problems(item, named_type("PersistentVolumeClaim"))


def volume_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    problems = []
    if not spec.get("accessModes"):
        problems.append(required("spec.accessModes"))
    if not spec.get("capacity"):
        problems.append(required("spec.capacity"))
    if set(spec.get("capacity") or ()) != {"storage"}:
        problems.append(unsupported("spec.capacity", spec.get("capacity"), ("storage",)))
    sources = [name for name in spec if name in _VOLUME_SOURCES]
    if not sources:
        problems.append(required("spec", "must specify a volume type"))
    why = "may not specify more than 1 volume type"
    problems += [forbidden_field(f"spec.{extra}", why) for extra in sources[1:]]
    return problems + choice_problems(item, named_type("PersistentVolume"))


_VOLUME_SOURCES: Final = frozenset(
    {
        "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume",
        "flocker", "gcePersistentDisk", "glusterfs", "hostPath", "iscsi", "local", "nfs",
        "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
    }
)  # fmt: skip


def storage_class_problems(item: Content) -> list[FieldProblem]:
    problems = [] if item.get("provisioner") else [required("provisioner")]
    return problems + choice_problems(item, named_type("StorageClass"))


def storage_class_update_problems(item: Content, old: Content) -> list[FieldProblem]:
    return [
        forbidden_field(name, f"updates to {name} are forbidden.")
        for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        if item.get(name) != old.get(name)
    ]


def lease_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    problems = []
    for name in ("leaseDurationSeconds",):
        number = spec.get(name)
        if number is not None and number <= 0:
            problems.append(invalid_field(f"spec.{name}", number, "must be greater than 0"))
    return problems + not_negative(spec, "leaseTransitions", "spec")


def service_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    problems = []
    if not spec.get("ports") and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        problems.append(required("spec.ports"))
    for i, port in enumerate(spec.get("ports") or ()):
        number = port.get("port", 0)
        if not 1 <= number <= 65535:
            why = "must be between 1 and 65535, inclusive"
            problems.append(invalid_field(f"spec.ports[{i}].port", number, why))
        if len(spec["ports"]) > 1 and not port.get("name"):
            problems.append(required(f"spec.ports[{i}].name"))
    return problems + choice_problems(item, named_type("Service"))


def config_map_problems(item: Content) -> list[FieldProblem]:
    """Kubernetes names no field for it."""
    data = (item.get("data") or {}).values(), (item.get("binaryData") or {}).values()
    return _size_problems("[]", sum(len(text.encode()) for text in data[0]) + sum(map(_decoded, data[1])))


def secret_problems(item: Content) -> list[FieldProblem]:
    return _size_problems("data", sum(map(_decoded, (item.get("data") or {}).values())))


def _decoded(text: str) -> int:
    """The decoded size of base64 text."""
    return len(text) * 3 // 4 - text[-2:].count("=")


def _size_problems(field: str, size: int) -> list[FieldProblem]:
    if size <= MAX_DATA_BYTES:
        return []
    return [
        FieldProblem(field, f"Too long: may not be more than {MAX_DATA_BYTES} bytes", "FieldValueTooLong")
    ]


def definition_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    names = spec.get("names") or {}
    problems = []
    for name, given in (("spec.group", spec.get("group")), ("spec.scope", spec.get("scope"))):
        if not given:
            problems.append(required(name))
    if spec.get("group") and "." not in spec["group"]:
        why = "should be a domain with at least one dot"
        problems.append(invalid_field("spec.group", spec["group"], why))
    problems += [required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)]
    if spec.get("scope") not in (None, "Cluster", "Namespaced"):
        problems.append(unsupported("spec.scope", spec["scope"], ("Cluster", "Namespaced")))
    expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if item["metadata"].get("name") != expected:
        why = 'must be spec.names.plural+"."+spec.group'
        problems.append(invalid_field("metadata.name", item["metadata"].get("name", ""), why))
    versions = spec.get("versions") or ()
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        problems.append(invalid_field("spec.versions", list(versions), why))
    for field in ("plural", "singular", "kind", "listKind"):
        if given := names.get(field):
            whys = dns_label_problems(given.lower())
            problems += [invalid_field(f"spec.names.{field}", given, why) for why in whys]
    seen: set[str] = set()
    for i, version in enumerate(versions):
        name = version.get("name", "")
        if not name:
            problems.append(required(f"spec.versions[{i}].name"))
        else:
            whys = dns_label_problems(name)
            problems += [invalid_field(f"spec.versions[{i}].name", name, why) for why in whys]
        if name in seen:
            problems.append(duplicate(f"spec.versions[{i}].name", name))
        seen.add(name)
        problems += _version_problems(version, f"spec.versions[{i}]")
        at = f"spec.versions[{i}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        problems += schema_problems(schema, at) if schema else [required(at)]
    return problems


def _version_problems(version: Content, path: str) -> list[FieldProblem]:
    """The problems of what a version has besides its schema: without them tables and selectors would fail."""
    problems = []
    for i, column in enumerate(version.get("additionalPrinterColumns") or ()):
        at = f"{path}.additionalPrinterColumns[{i}]"
        problems += [required(f"{at}.{each}") for each in ("name", "type") if not column.get(each)]
        problems += _path_problems(column.get("jsonPath", ""), f"{at}.jsonPath")
        if (kind := column.get("type")) and kind not in _COLUMN_TYPES:
            problems.append(unsupported(f"{at}.type", kind, _COLUMN_TYPES))
    for i, field in enumerate(version.get("selectableFields") or ()):
        problems += _path_problems(field.get("jsonPath", ""), f"{path}.selectableFields[{i}].jsonPath")
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        for name in ("specReplicasPath", "statusReplicasPath"):
            problems += _path_problems(scale.get(name, ""), f"{path}.subresources.scale.{name}")
    return problems


def _path_problems(json_path: str, at: str) -> list[FieldProblem]:
    if not json_path:
        return [required(at)]
    return (
        []
        if json_path.startswith(".")
        else [invalid_field(at, json_path, "must be a json path starting with .")]
    )


_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")

MAX_CONDITIONS: Final = 8


def taint_rule_problems(item: Content) -> list[FieldProblem]:
    spec = item.get("spec") or {}
    selector = spec.get("deviceSelector") or {}
    problems: list[FieldProblem] = []
    for name, check in (("driver", driver_problems), ("pool", pool_problems), ("device", name_problems)):
        if (value := selector.get(name)) is not None:
            problems += check(value, f"spec.deviceSelector.{name}")
    return problems + taint_problems(spec.get("taint") or {}, "spec.taint")


def taint_rule_status_problems(item: Content, old: Content) -> list[FieldProblem]:
    conditions = (item.get("status") or {}).get("conditions") or []
    if len(conditions) <= MAX_CONDITIONS:
        return []
    return [too_many("status.conditions", len(conditions), MAX_CONDITIONS)]
