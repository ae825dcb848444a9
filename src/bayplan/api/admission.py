"""Admission: the steps of an API server at the creation of an object that affect scheduling.

An object with a uid or a resourceVersion has been admitted before (it was read from a server) and is not
changed: a pod's priority, for example, is set at its creation, and later changes of the class do not affect
it.

| plugin or step | what it does here |
|---|---|
| names and uids | `generateName` becomes a name; uids are derived from kind and key, so runs repeat |
| Priority | priority and preemption policy from the pod's class, or from the default class |
| DefaultTolerationSeconds | pods stay 300 s on a node that is not ready or unreachable |
| DefaultStorageClass | claims without a class get the default one |
| LimitRanger | containers get the default requests and limits of their namespace |
| RuntimeClass | a pod gets the overhead, node selector and tolerations of its class |
| pod creation | phase Pending; (mis)matchLabelKeys become part of their selectors |

Each step is a function on plain values, which the embedded server uses, too. `Admission` applies them to
typed objects from files. Files are rarely complete: a RuntimeClass that is not among them is no error here
(`answers.sources.warnings` names it). What would only reject a pod (bounds of LimitRanges, quotas) is left to
the API server.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from bayplan.api.check import object_key
from bayplan.api.kinds import KINDS
from bayplan.api.meta import DEFAULT_NAMESPACE, Content, Object
from bayplan.api.pod import EXISTS, NO_EXECUTE, Pod
from bayplan.api.pod_defaults import affinity_terms, amounts
from bayplan.api.storage import CLASS_ANNOTATION, PersistentVolumeClaim, StorageClass
from bayplan.api.workloads import LimitRange, PriorityClass, RuntimeClass
from bayplan.errors import InputError

CLUSTER_SCOPED: Final = frozenset(kind.record for kind in KINDS if not kind.namespaced)
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority classes that every cluster has."""
PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"

TOLERATED_SECONDS: Final = 300
_ABSENCES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_BETA_DEFAULT_CLASS: Final = "storageclass.beta.kubernetes.io/is-default-class"

LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"
"""The annotation that lists what a LimitRange set."""
_CONTAINERS: Final = (("containers", "container"), ("initContainers", "init container"))

_UIDS: Final = uuid.UUID("6a1f7c1e-3d55-5f0e-9c43-b1a9e0d0c0de")
_GROUP_PRIORITY: Final = (
    "priority set in the {} ({}) must match the priority computed ({}) based on the priority class set in "
    "the spec"
)
_STATED: Final = (
    "the {} ({}) must not be provided in pod spec; priority admission controller computed {} from the given "
    "PriorityClass name"
)


class Admission:
    """Admits objects one after the other, with the classes that are among them."""

    def __init__(self, objects: Iterable[Object]) -> None:
        objects = tuple(objects)
        self._priority_classes: dict[str, Content] = {
            one.name: msgspec.to_builtins(one) for one in objects if isinstance(one, PriorityClass)
        }
        self._default_priority_class = default_priority_class(self._priority_classes.values())
        self._default_storage_class = default_storage_class(
            msgspec.to_builtins(one)
            for one in sorted(objects, key=lambda one: one.name)
            if isinstance(one, StorageClass)
        )
        self._runtime_classes: dict[str, Content] = {
            one.name: msgspec.to_builtins(one) for one in objects if isinstance(one, RuntimeClass)
        }
        self._limit_ranges: dict[str, list[Content]] = {}
        for one in sorted(objects, key=lambda one: one.name):
            if isinstance(one, LimitRange):
                self._limit_ranges.setdefault(_namespace_of(one), []).append(msgspec.to_builtins(one))
        self._taken = {(type(obj), _namespace_of(obj), obj.name) for obj in objects}

    def admit(self, obj: Object) -> Object:
        """The object after its creation.

        Raises:
            InputError: a pod refers to a priority class that does not exist, or contradicts its RuntimeClass.
        """
        is_new = not obj.uid and not obj.metadata.resource_version
        obj = self._identified(obj)
        if is_new and isinstance(obj, Pod):
            return self._admit_pod(obj)
        if is_new and isinstance(obj, PersistentVolumeClaim):
            return self._admit_claim(obj)
        return obj

    def _identified(self, obj: Object) -> Object:
        meta = obj.metadata
        namespace, name, uid = _namespace_of(obj), meta.name, meta.uid
        if not name and meta.generate_name:
            name = self._generated(type(obj), namespace, meta.generate_name)
        if not uid:
            uid = str(uuid.uuid5(_UIDS, f"{type(obj).__name__}/{namespace}/{name}"))
        if (namespace, name, uid) == (meta.namespace, meta.name, meta.uid):
            return obj
        return replace(obj, metadata=replace(meta, namespace=namespace, name=name, uid=uid))

    def _generated(self, kind: type[Object], namespace: str, prefix: str) -> str:
        number = 1
        while (kind, namespace, f"{prefix}{number:05}") in self._taken:
            number += 1
        name = f"{prefix}{number:05}"
        self._taken.add((kind, namespace, name))
        return name

    def _admit_pod(self, pod: Pod) -> Pod:
        content = msgspec.to_builtins(pod)
        spec = content.setdefault("spec", {})
        for limit_range in self._limit_ranges.get(pod.namespace, ()):
            give_defaults(limit_range, content)
        try:
            # A priority in the file is used as it is; a server would require a class.
            prioritize(spec, self._priority_classes.get, self._default_priority_class, strict=False)
        except AdmissionError as error:
            raise InputError(str(error), object_key=object_key(pod), field="spec.priorityClassName") from None
        add_default_tolerations(spec)
        runtime_class = self._runtime_classes.get(spec.get("runtimeClassName") or "")
        if runtime_class is not None:
            try:
                apply_runtime_class(spec, runtime_class)
            except AdmissionError as error:
                raise InputError(
                    str(error), object_key=object_key(pod), field="spec.runtimeClassName"
                ) from None
        merge_label_keys(spec, pod.labels)
        status = content.setdefault("status", {})
        status["phase"] = status.get("phase") or "Pending"
        return msgspec.convert(content, Pod)

    def _admit_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        content = msgspec.to_builtins(claim)
        set_storage_class(content, self._default_storage_class)
        return msgspec.convert(content, PersistentVolumeClaim)


def _namespace_of(obj: Object) -> str:
    return "" if type(obj) in CLUSTER_SCOPED else obj.namespace or DEFAULT_NAMESPACE


# The steps, on plain values


class AdmissionError(Exception):
    """An object is rejected; the message is that of Kubernetes' admission plugin."""


def prioritize(
    spec: Content, find: Callable[[str], Content | None], default: Content | None, *, strict: bool
) -> None:
    """Sets priority and preemption policy of a pod from its class, or from the default class.

    Args:
        find: a PriorityClass by name.
        strict: reject a priority or policy in the spec that differs from the class, as a server does;
            otherwise it is kept.

    Raises:
        AdmissionError: there is no such class, or, if strict, the spec differs.
    """
    # priority/admission.go: admitPod
    name, stated = spec.get("priorityClassName", ""), spec.get("priority")
    found: Content | None = None
    if name in SYSTEM_PRIORITIES:
        priority = SYSTEM_PRIORITIES[name]
    elif name:
        found = find(name)
        if found is None and (strict or stated is None):
            raise AdmissionError(f"no PriorityClass with name {name} was found")
        priority = (found or {}).get("value", 0)
    else:
        found = default if strict or stated is None else None
        priority = (found or {}).get("value", 0)
        if found is not None:
            spec["priorityClassName"] = found["metadata"].get("name", "")
    policy = (found or {}).get("preemptionPolicy") or PREEMPT_LOWER_PRIORITY
    stated_policy = spec.get("preemptionPolicy")
    if strict and stated is not None and stated != priority:
        raise AdmissionError(_STATED.format("integer value of priority", stated, priority))
    if strict and stated_policy is not None and stated_policy != policy:
        raise AdmissionError(_STATED.format("string value of PreemptionPolicy", stated_policy, policy))
    spec["priority"] = priority if stated is None else stated
    spec["preemptionPolicy"] = stated_policy or policy


def prioritize_group(
    spec: Content,
    find: Callable[[str], Content | None],
    default: Content | None,
    *,
    what: str,
    with_policy: bool,
) -> None:
    """Sets the priority of a new pod group, and its preemption policy if its feature gate is on.

    Raises:
        AdmissionError: there is no such class, or the spec differs from it.
    """
    # priority/admission.go: admitPodGroup, admitCompositePodGroup
    name, stated, policy = (
        spec.get("priorityClassName", ""),
        spec.get("priority"),
        spec.get("preemptionPolicy"),
    )
    given = {"priorityClassName": name} if name else {}
    prioritize(given, find, default, strict=True)
    if stated is not None and stated != given["priority"]:
        raise AdmissionError(_GROUP_PRIORITY.format(what, stated, given["priority"]))
    if with_policy and policy is not None and policy != given["preemptionPolicy"]:
        text = _STATED.format("string value of PreemptionPolicy", policy, given["preemptionPolicy"])
        raise AdmissionError(text.replace("in pod spec", f"in {what} spec"))
    if not with_policy:
        del given["preemptionPolicy"]
    spec |= given


def default_priority_class(classes: Iterable[Content]) -> Content | None:
    """The class with globalDefault; among several the one with the lowest value."""
    marked = (one for one in classes if one.get("globalDefault"))
    return min(marked, key=lambda one: one.get("value", 0), default=None)


def add_default_tolerations(spec: Content) -> None:
    """Pods stay 300 s on a node that is not ready or unreachable."""
    # defaulttolerationseconds/admission.go: Admit
    tolerations = spec.get("tolerations") or ()
    added = [
        {"key": key, "operator": EXISTS, "effect": NO_EXECUTE, "tolerationSeconds": TOLERATED_SECONDS}
        for key in _ABSENCES
        if not any(
            one.get("key", "") in ("", key) and one.get("effect", "") in ("", NO_EXECUTE)
            for one in tolerations
        )
    ]
    if added:
        spec["tolerations"] = [*tolerations, *added]


def merge_label_keys(spec: Content, labels: Mapping[str, str]) -> None:
    """(mis)matchLabelKeys become part of the selectors beside them.

    A key that the pod does not have is ignored; a missing selector stays missing.
    """
    # registry/core/pod/strategy.go: mutatePodAffinity, mutateTopologySpreadConstraints
    for term in (*(spec.get("topologySpreadConstraints") or ()), *affinity_terms(spec)):
        selector = term.get("labelSelector")
        if selector is None:
            continue
        added = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for operator, field in (("In", "matchLabelKeys"), ("NotIn", "mismatchLabelKeys"))
            for key in term.get(field) or ()
            if key in labels
        ]
        if added:
            selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *added]


def apply_runtime_class(spec: Content, runtime_class: Content | None) -> None:
    """Sets overhead, node selector and tolerations from the RuntimeClass that a pod names, if it names one.

    Raises:
        AdmissionError: the class is missing, or the pod contradicts it.
    """
    # runtimeclass/admission.go: Admit
    name, found = spec.get("runtimeClassName"), runtime_class or {}
    if name and runtime_class is None:
        raise AdmissionError(f'pod rejected: RuntimeClass "{name}" not found')
    overhead = (found.get("overhead") or {}).get("podFixed") or {}
    if spec.get("overhead") and not overhead:
        raise AdmissionError(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )
    if overhead:
        if spec.get("overhead") and amounts(spec["overhead"]) != amounts(overhead):
            raise AdmissionError("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = overhead
    scheduling = found.get("scheduling") or {}
    for key, wanted in sorted((scheduling.get("nodeSelector") or {}).items()):
        given = spec.setdefault("nodeSelector", {}).setdefault(key, wanted)
        if given != wanted:
            raise AdmissionError(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; "
                f"pod.spec.nodeSelector[{key}] = {given}"
            )
    tolerations = spec.get("tolerations") or ()
    added = [each for each in scheduling.get("tolerations") or () if each not in tolerations]
    if added:
        spec["tolerations"] = [*tolerations, *added]


def give_defaults(limit_range: Content, pod: Content) -> None:
    """Sets the default requests and limits of a LimitRange, and lists them in an annotation."""
    # limitranger/admission.go: mergePodResourceRequirements
    requests: Content = {}
    limits: Content = {}
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            requests.update(item.get("defaultRequest") or {})
            limits.update(item.get("default") or {})
    notes = []
    for field, called in _CONTAINERS:
        for container in pod["spec"].get(field) or ():
            resources = container.setdefault("resources", {})
            for which, defaults in (("requests", requests), ("limits", limits)):
                missing = sorted(defaults.keys() - (resources.get(which) or {}).keys())
                if missing:
                    given = resources.setdefault(which, {})
                    given.update({name: defaults[name] for name in missing})
                    notes.append(
                        f"{', '.join(missing)} {which[:-1]} for {called} {container.get('name', '')}"
                    )
    if notes:
        note = f"LimitRanger plugin set: {'; '.join(notes)}"
        pod["metadata"].setdefault("annotations", {})[LIMIT_RANGER] = note


def set_storage_class(claim: Content, default: str | None) -> None:
    """Gives a claim without a class the default one."""
    # storageclass/setdefault/admission.go: Admit
    spec = claim.setdefault("spec", {})
    notes = claim["metadata"].get("annotations") or {}
    if default is not None and "storageClassName" not in spec and CLASS_ANNOTATION not in notes:
        spec["storageClassName"] = default


def default_storage_class(classes: Iterable[Content]) -> str | None:
    """The class marked as default; among several the newest, then the first: pass them by name."""
    marked = []
    for one in classes:
        notes = (one.get("metadata") or {}).get("annotations") or {}
        if "true" in (notes.get(_DEFAULT_CLASS), notes.get(_BETA_DEFAULT_CLASS)):
            marked.append(one["metadata"])
    newest = max(marked, key=lambda meta: str(meta.get("creationTimestamp", "")), default=None)
    return None if newest is None else str(newest["name"])
