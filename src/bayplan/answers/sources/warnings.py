"""Warnings: ways in which a result may differ from what a scheduler would do on the cluster itself.

Most are about objects that pods refer to and that were not loaded (`MissingObjects`): a dump is rarely
complete (`kubectl get nodes,pods`). Each warning names what is missing and says how the result may differ
because of it. A dump does not show whether a kind is absent because the cluster has no such objects; a
snapshot and an API server do (`LoadedCluster.listed`), and then there is no warning: the object does not
exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from bayplan.api.devices import ResourceClaim
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.api.pod import Pod, PodAffinityTerm
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import POD_GROUP_LABEL
from bayplan.framework.points import Point
from bayplan.runtime.profile import Profile


class Reason(StrEnum):
    """What kind of warning it is, for programs."""

    MISSING_OBJECT = "MissingObject"
    """An object that a pod refers to was not loaded."""
    MISSING_KIND = "MissingKind"
    """No object of a kind was loaded, or it could not be listed."""
    UNREADABLE_OBJECT = "UnreadableObject"
    """An object has fields that cannot be read."""
    NOT_RUN = "NotRun"
    """An extension point or an extender that the configuration has is not run."""
    ABSENT_PLUGIN = "AbsentPlugin"
    """The configuration names a plugin that is not there."""
    OTHER_VERSION = "OtherVersion"
    """The API server has a version that bayplan does not implement."""
    REPORTED_UNSCHEDULABLE = "ReportedUnschedulable"
    """The pod's own scheduler has reported that it does not fit, and this result is that it does."""
    EVICTION_BLOCKED = "EvictionBlocked"
    """A PodDisruptionBudget allows no eviction at all, so that a drain does not go on."""
    CLUSTER_CHANGED = "ClusterChanged"
    """The pod was scheduled on an earlier state of the cluster."""


@dataclass(frozen=True, slots=True)
class Warning:
    """A way in which the result may be wrong."""

    message: str
    pod: str = ""
    """namespace/name; empty if it concerns all pods."""
    reason: Reason = Reason.MISSING_OBJECT
    object: str = ""
    """What is missing: `PersistentVolumeClaim default/data`, `poddisruptionbudgets`, a plugin's name."""

    def as_json(self) -> dict[str, str]:
        fields = {
            "pod": self.pod,
            "reason": self.reason.value,
            "object": self.object,
            "message": self.message,
        }
        return {name: text for name, text in fields.items() if text}


OWNERS: Final = ("ReplicaSet", "ReplicationController", "StatefulSet")
"""Kinds whose selectors determine default topology spreading, besides Services."""

_NO_OBJECT: Final = "{kind} {name} is not in the dump: evaluated as if it did not exist"
_NO_KIND: Final = "the dump has no {plural}: {effect}"
_NAMESPACES: Final = "the namespaceSelector of an affinity term matches pods of no other namespace"
_BUDGETS: Final = "preemption victims are chosen as if none were protected"
_DEFAULT_CLASS: Final = "a claim without a class is evaluated as if there were no default class"
_CSI_NODES: Final = "limits of volumes per node are not checked"
_SLICES: Final = "no node has devices"
_NO_TEMPLATE: Final = (
    "{kind} {name} is not in the dump: evaluated as if no ResourceClaim could be created from it"
)
NO_RUNTIME_CLASS: Final = (
    "{kind} {name} is not in the dump: evaluated without its overhead, node selector and tolerations"
)
_NO_OWNER: Final = "{kind} {name} is not in the dump: default topology spreading does not count for the score"
COSCHEDULING: Final = "Coscheduling"
_NO_GROUPS: Final = (
    "the label {label} asks to be scheduled with its group, and {plugin} is not run: "
    "pass --plugin {plugin}, or --config, if the cluster's scheduler has it"
)
GANG_SCHEDULING: Final = "GangScheduling"
_ALONE: Final = (
    "evaluated without the other members of pod group {name}: if the gate GenericWorkload is on in the "
    "cluster, its scheduler places enough members together or none (bayplan explain group {name})"
)
_PERMIT: Final = "Permit plugins are not run: {plugins} may delay or reject the pod after a node was found"


class MissingObjects:
    """Finds out what is missing for a pod.

    Args:
        objects: everything that was loaded.
        listed: kinds that are complete (`LoadedCluster.listed`).
    """

    def __init__(self, objects: Iterable[Object], listed: frozenset[str] = frozenset()) -> None:
        self._found: dict[str, dict[str, Any]] = {}
        self._listed = listed
        for item in objects:
            # Nobody refers to a pod by name, and there are more of them than of anything else.
            if type(item) is not Pod:
                self._found.setdefault(type(item).__name__, {})[_key(item.name, item.namespace)] = item

    def find(self, kind: str, name: str, namespace: str = "") -> Any:
        """The object, or None."""
        return self._found.get(kind, {}).get(_key(name, namespace))

    def lacks_kind(self, kind: str) -> bool:
        """Whether no object of the kind was loaded although the cluster may have some."""
        return kind not in self._found and kind not in self._listed

    def of_pod(
        self, pod: Pod, profile: Profile, *, preempts: bool = False, runs_permit: bool = False
    ) -> list[Warning]:
        """What may be wrong with the result for one pod.

        Args:
            profile: the pod's.
            preempts: whether preemption has candidates for it.
            runs_permit: whether the result includes Permit.
        """
        found = (
            *self._volumes(pod),
            *self._resource_claims(pod),
            *self._namespaces(pod),
            *self._runtime_class(pod),
            *_group(pod, profile),
            *self._owner(pod, profile),
            *(self._kind("PodDisruptionBudget", _BUDGETS) if preempts else ()),
            *(() if runs_permit else _permit(profile)),
        )
        return [Warning(one.message, pod.key, one.reason, one.object) for one in dict.fromkeys(found)]

    def of_kind(self, kind: str, effect: str) -> list[Warning]:
        """What may be wrong with the result because no object of a kind was loaded."""
        return list(self._kind(kind, effect))

    def _volumes(self, pod: Pod) -> Iterator[Warning]:
        has_claims = False
        for volume in pod.spec.volumes:
            name = pod.claim_name(volume)
            if not name:
                continue
            yield from self._object("PersistentVolumeClaim", name, pod.namespace)
            claim: PersistentVolumeClaim | None = self.find("PersistentVolumeClaim", name, pod.namespace)
            if claim is None:
                continue
            has_claims = True
            bound_to, class_name = claim.spec.volume_name, claim.class_name
            if bound_to:
                yield from self._object("PersistentVolume", bound_to)
            elif class_name:
                yield from self._object("StorageClass", class_name)
            elif claim.spec.storage_class_name is None:
                yield from self._kind("StorageClass", _DEFAULT_CLASS)
        if has_claims:
            yield from self._kind("CSINode", _CSI_NODES)

    def _resource_claims(self, pod: Pod) -> Iterator[Warning]:
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for reference in pod.spec.resource_claims:
            name = reference.resource_claim_name or made.get(reference.name)
            if not name:
                template = reference.resource_claim_template_name
                if template and reference.name not in made:
                    yield from self._object("ResourceClaimTemplate", template, pod.namespace, _NO_TEMPLATE)
                continue
            yield from self._object("ResourceClaim", name, pod.namespace)
            claim: ResourceClaim | None = self.find("ResourceClaim", name, pod.namespace)
            if claim is None or claim.status.allocation is not None:
                continue
            for class_name in _device_classes(claim):
                yield from self._object("DeviceClass", class_name)
        if pod.spec.resource_claims:
            yield from self._kind("ResourceSlice", _SLICES)

    def _namespaces(self, pod: Pod) -> Iterator[Warning]:
        if selects_namespaces(pod):
            yield from self._kind("Namespace", _NAMESPACES)

    def _runtime_class(self, pod: Pod) -> Iterator[Warning]:
        """A pod that was in a server has what its class states."""
        name = pod.spec.runtime_class_name
        if name and not pod.metadata.resource_version:
            yield from self._object("RuntimeClass", name, message=NO_RUNTIME_CLASS)

    def _owner(self, pod: Pod, profile: Profile) -> Iterator[Warning]:
        if pod.spec.topology_spread_constraints or "PodTopologySpread" not in _names(profile, Point.SCORE):
            return
        owner = pod.metadata.controller()
        if owner is not None and owner.kind in OWNERS:
            yield from self._object(owner.kind, owner.name, pod.namespace, _NO_OWNER)

    def _object(
        self, kind: str, name: str, namespace: str = "", message: str = _NO_OBJECT
    ) -> Iterator[Warning]:
        if kind not in self._listed and self.find(kind, name, namespace) is None:
            key = _key(name, namespace)
            text = message.format(kind=kind, name=key)
            yield Warning(text, reason=Reason.MISSING_OBJECT, object=f"{kind} {key}")

    def _kind(self, kind: str, effect: str) -> Iterator[Warning]:
        if self.lacks_kind(kind):
            plural = KINDS[kind].plural
            text = _NO_KIND.format(plural=plural, effect=effect)
            yield Warning(text, reason=Reason.MISSING_KIND, object=plural)


def _group(pod: Pod, profile: Profile) -> Iterator[Warning]:
    """Pods of a group that nothing here keeps together."""
    group, own = pod.labels.get(POD_GROUP_LABEL), pod.spec.scheduling_group
    if not group and own is None:
        return
    plugins = {plugin.name for plugin in profile.all_plugins()}
    if own is not None and own.pod_group_name and GANG_SCHEDULING not in plugins:
        text = _ALONE.format(name=_key(own.pod_group_name, pod.namespace))
        yield Warning(text, reason=Reason.ABSENT_PLUGIN, object=GANG_SCHEDULING)
    if group and COSCHEDULING not in plugins and (own is None or own.pod_group_name != group):
        text = _NO_GROUPS.format(label=f"{POD_GROUP_LABEL}: {group}", plugin=COSCHEDULING)
        yield Warning(text, reason=Reason.ABSENT_PLUGIN, object=COSCHEDULING)


def _permit(profile: Profile) -> Iterator[Warning]:
    plugins = _names(profile, Point.PERMIT)
    if plugins:
        yield Warning(
            _PERMIT.format(plugins=", ".join(plugins)), reason=Reason.NOT_RUN, object=", ".join(plugins)
        )


def _names(profile: Profile, point: Point) -> list[str]:
    return [plugin.name for plugin in profile.plugins[point]]


def _device_classes(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests:
        for exact in (request.exactly, *request.first_available):
            if exact is not None and exact.device_class_name:
                yield exact.device_class_name


def _terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity
    for side in () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            yield from side.required
            yield from (weighted.pod_affinity_term for weighted in side.preferred)


def selects_namespaces(pod: Pod) -> bool:
    """Whether an affinity term of the pod selects namespaces by their labels."""
    return pod.spec.affinity is not None and any(_selects_namespaces(term) for term in _terms(pod))


def _selects_namespaces(term: PodAffinityTerm) -> bool:
    """Whether it selects by labels: an empty selector matches all namespaces."""
    selector = term.namespace_selector
    return selector is not None and bool(selector.match_labels or selector.match_expressions)


def _key(name: str, namespace: str) -> str:
    return f"{namespace}/{name}" if namespace else name
