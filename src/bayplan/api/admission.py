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
| pod creation | phase Pending; (mis)matchLabelKeys become part of their selectors |
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from bayplan.api.check import object_key
from bayplan.api.kinds import KINDS
from bayplan.api.meta import DEFAULT_NAMESPACE, LabelSelector, LabelSelectorRequirement, Object
from bayplan.api.pod import Affinity, Pod, PodAffinity, PodAffinityTerm, PodSpec, Toleration
from bayplan.api.storage import (
    PersistentVolumeClaim,
    StorageClass,
)
from bayplan.api.tolerations import EXISTS, NO_EXECUTE
from bayplan.api.workloads import PriorityClass
from bayplan.errors import InputError

CLUSTER_SCOPED: Final = frozenset(kind.record for kind in KINDS if not kind.namespaced)
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority classes that every cluster has."""
PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"

TOLERATED_SECONDS: Final = 300
_ABSENCES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_BETA_DEFAULT_CLASS: Final = "storageclass.beta.kubernetes.io/is-default-class"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"

_UIDS: Final = uuid.UUID("6a1f7c1e-3d55-5f0e-9c43-b1a9e0d0c0de")
_NO_PRIORITY_CLASS: Final = "no PriorityClass with name {name} was found"


class Admission:
    """Admits objects one after the other, with the classes that are among them."""

    def __init__(self, objects: Iterable[Object]) -> None:
        objects = tuple(objects)
        self._priority_classes = {pc.name: pc for pc in objects if isinstance(pc, PriorityClass)}
        defaults = [pc for pc in self._priority_classes.values() if pc.global_default]
        self._default_priority_class = min(defaults, key=lambda pc: pc.value, default=None)
        self._default_storage_class = _default_storage_class(objects)
        self._taken = {(type(obj), _namespace_of(obj), obj.name) for obj in objects}

    def admit(self, obj: Object) -> Object:
        """The object after its creation.

        Raises:
            InputError: a pod refers to a priority class that does not exist.
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
        spec = self._prioritized(pod)
        spec = replace(
            spec,
            tolerations=_with_absences(spec.tolerations),
            affinity=None if spec.affinity is None else _merged_affinity(spec.affinity, pod.labels),
            topology_spread_constraints=tuple(
                replace(
                    constraint,
                    label_selector=_merged(
                        constraint.label_selector, pod.labels, match=constraint.match_label_keys
                    ),
                )
                for constraint in spec.topology_spread_constraints
            ),
        )
        status = pod.status if pod.status.phase else replace(pod.status, phase="Pending")
        return replace(pod, spec=spec, status=status)

    def _prioritized(self, pod: Pod) -> PodSpec:
        """A priority in the file is used as it is; a server would require a class."""
        spec = pod.spec
        found: PriorityClass | None = None
        name, priority = spec.priority_class_name, 0
        if spec.priority is not None:
            priority = spec.priority
            found = self._priority_classes.get(name)
        elif not name:
            found = self._default_priority_class
            if found is not None:
                name, priority = found.name, found.value
        elif name in SYSTEM_PRIORITIES:
            priority = SYSTEM_PRIORITIES[name]
        else:
            found = self._priority_classes.get(name)
            if found is None:
                raise InputError(
                    _NO_PRIORITY_CLASS.format(name=name),
                    object_key=object_key(pod),
                    field="spec.priorityClassName",
                )
            priority = found.value
        policy = spec.preemption_policy
        if policy is None:
            policy = found.preemption_policy if found is not None else None
        return replace(
            spec,
            priority=priority,
            priority_class_name=name,
            preemption_policy=policy or PREEMPT_LOWER_PRIORITY,
        )

    def _admit_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        has_class = claim.spec.storage_class_name is not None or _BETA_CLASS in claim.annotations
        if has_class or self._default_storage_class is None:
            return claim
        return replace(claim, spec=replace(claim.spec, storage_class_name=self._default_storage_class))


def _namespace_of(obj: Object) -> str:
    return "" if type(obj) in CLUSTER_SCOPED else obj.namespace or DEFAULT_NAMESPACE


def _default_storage_class(objects: Iterable[Object]) -> str | None:
    """The class marked as default; among several the newest, then the first by name."""
    marked = [
        obj
        for obj in objects
        if isinstance(obj, StorageClass)
        and "true" in (obj.annotations.get(_DEFAULT_CLASS), obj.annotations.get(_BETA_DEFAULT_CLASS))
    ]
    marked.sort(key=lambda obj: obj.name)
    marked.sort(key=_age, reverse=True)
    return marked[0].name if marked else None


def _age(obj: Object) -> float:
    created = obj.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0


def _with_absences(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    added = tuple(
        Toleration(key=key, operator=EXISTS, effect=NO_EXECUTE, toleration_seconds=TOLERATED_SECONDS)
        for key in _ABSENCES
        if not any(t.key in ("", key) and t.effect in ("", NO_EXECUTE) for t in tolerations)
    )
    return (*tolerations, *added)


def _merged_affinity(affinity: Affinity, labels: dict[str, str]) -> Affinity:
    return replace(
        affinity,
        pod_affinity=_merged_pod_affinity(affinity.pod_affinity, labels),
        pod_anti_affinity=_merged_pod_affinity(affinity.pod_anti_affinity, labels),
    )


def _merged_pod_affinity(affinity: PodAffinity | None, labels: dict[str, str]) -> PodAffinity | None:
    if affinity is None:
        return None
    return replace(
        affinity,
        required=tuple(_merged_term(term, labels) for term in affinity.required),
        preferred=tuple(
            replace(weighted, pod_affinity_term=_merged_term(weighted.pod_affinity_term, labels))
            for weighted in affinity.preferred
        ),
    )


def _merged_term(term: PodAffinityTerm, labels: dict[str, str]) -> PodAffinityTerm:
    selector = _merged(
        term.label_selector, labels, match=term.match_label_keys, mismatch=term.mismatch_label_keys
    )
    return replace(term, label_selector=selector)


def _merged(
    selector: LabelSelector | None,
    labels: dict[str, str],
    *,
    match: tuple[str, ...],
    mismatch: tuple[str, ...] = (),
) -> LabelSelector | None:
    """The selector, restricted to pods with equal (or different) values of the labels with these keys.

    A key that the pod does not have is ignored; a missing selector stays missing.
    """
    if selector is None:
        return None
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for operator, keys in (("In", match), ("NotIn", mismatch))
        for key in keys
        if key in labels
    ]
    if not added:
        return selector
    return replace(selector, match_expressions=(*selector.match_expressions, *added))
