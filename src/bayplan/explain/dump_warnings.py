"""Warnings about results that may be wrong: objects missing from the dump, and steps that are not run.

A dump is rarely complete (`kubectl get nodes,pods`), and `decide` runs the scheduling cycle only up to the
choice of a node. Each warning says what is missing and how the result may differ because of it. A dump does
not show whether a kind is absent because the cluster has no such objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.api.node import Namespace
from bayplan.api.pod import Pod, PodAffinityTerm
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from bayplan.api.workloads import PodDisruptionBudget
from bayplan.explain.explanation import Explanation
from bayplan.framework.points import Point
from bayplan.runtime.profile import Profile

OWNERS: Final = ("ReplicaSet", "ReplicationController", "StatefulSet")
"""Kinds whose selectors determine default topology spreading, besides Services."""

_NO_OBJECT: Final = "{kind} {name} is not in the dump: evaluated as if it did not exist"
_NO_NAMESPACES: Final = (
    "the dump has no namespaces: the namespaceSelector of an affinity term matches pods of no other namespace"
)
_NO_BUDGETS: Final = (
    "the dump has no poddisruptionbudgets: preemption victims are chosen as if none were protected"
)
_NO_OWNER: Final = "{kind} {name} is not in the dump: default topology spreading does not count for the score"
_PERMIT: Final = "Permit plugins are not run: {plugins} may delay or reject the pod after a node was found"
_NO_EXTENDERS: Final = "extenders are not called: their filters and scores are missing from the result"


@dataclass(frozen=True, slots=True)
class Warning:
    """A way in which the result may differ from what a scheduler would do on the cluster itself."""

    message: str
    pod: str = ""
    """namespace/name; empty if it concerns all pods."""

    def as_json(self) -> dict[str, str]:
        return {"pod": self.pod, "message": self.message} if self.pod else {"message": self.message}


class Dump:
    """The objects of a dump by kind and key."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._found: dict[str, dict[str, Any]] = {}
        for item in objects:
            self._found.setdefault(type(item).__name__, {})[_key(item.name, item.namespace)] = item

    def __contains__(self, kind: type[Object]) -> bool:
        """Whether there is an object of the kind."""
        return kind.__name__ in self._found

    def find(self, kind: str, name: str, namespace: str = "") -> Any:
        return self._found.get(kind, {}).get(_key(name, namespace))

    def warnings_of(self, pod: Pod, profile: Profile, explanation: Explanation) -> list[Warning]:
        """What may be wrong with the result for one pod."""
        messages = (
            *self._missing_volumes(pod),
            *self._missing_resource_claims(pod),
            *self._missing_namespaces(pod),
            *self._missing_owner(pod, profile),
            *self._missing_budgets(explanation),
            *_permit(profile),
        )
        return [Warning(message, pod.key) for message in dict.fromkeys(messages)]

    def _missing_volumes(self, pod: Pod) -> Iterator[str]:
        for volume in pod.spec.volumes:
            name = pod.claim_name(volume)
            if not name:
                continue
            claim: PersistentVolumeClaim | None = self.find("PersistentVolumeClaim", name, pod.namespace)
            if claim is None:
                yield _absent(PersistentVolumeClaim, _key(name, pod.namespace))
                continue
            bound_to, class_name = claim.spec.volume_name, claim.class_name
            if bound_to and self.find("PersistentVolume", bound_to) is None:
                yield _absent(PersistentVolume, bound_to)
            if class_name and not bound_to and self.find("StorageClass", class_name) is None:
                yield _absent(StorageClass, class_name)

    def _missing_resource_claims(self, pod: Pod) -> Iterator[str]:
        kind = KINDS.get("ResourceClaim")
        if kind is None:
            return  # a pod with resource claims is rejected with a message that says so
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for claim in pod.spec.resource_claims:
            name = claim.resource_claim_name or made.get(claim.name)
            if name and self.find("ResourceClaim", name, pod.namespace) is None:
                yield _absent(kind.record, _key(name, pod.namespace))

    def _missing_namespaces(self, pod: Pod) -> Iterator[str]:
        if Namespace not in self and any(_selects_namespaces(term) for term in _terms(pod)):
            yield _NO_NAMESPACES

    def _missing_owner(self, pod: Pod, profile: Profile) -> Iterator[str]:
        if pod.spec.topology_spread_constraints or "PodTopologySpread" not in _names(profile, Point.SCORE):
            return
        owner = pod.metadata.controller()
        if owner is None or owner.kind not in OWNERS:
            return
        if self.find(owner.kind, owner.name, pod.namespace) is None:
            yield _NO_OWNER.format(kind=owner.kind, name=_key(owner.name, pod.namespace))

    def _missing_budgets(self, explanation: Explanation) -> Iterator[str]:
        preemption = explanation.preemption
        if preemption is not None and preemption.candidates and PodDisruptionBudget not in self:
            yield _NO_BUDGETS


def extenders_not_called() -> Warning:
    return Warning(_NO_EXTENDERS)


def _permit(profile: Profile) -> Iterator[str]:
    plugins = _names(profile, Point.PERMIT)
    if plugins:
        yield _PERMIT.format(plugins=", ".join(plugins))


def _names(profile: Profile, point: Point) -> list[str]:
    return [plugin.name for plugin in profile.plugins[point]]


def _absent(kind: type[Object], name: str) -> str:
    return _NO_OBJECT.format(kind=kind.__name__, name=name)


def _terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity
    for side in () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            yield from side.required
            yield from (weighted.pod_affinity_term for weighted in side.preferred)


def _selects_namespaces(term: PodAffinityTerm) -> bool:
    """Whether it selects by labels: an empty selector matches all namespaces."""
    selector = term.namespace_selector
    return selector is not None and bool(selector.match_labels or selector.match_expressions)


def _key(name: str, namespace: str) -> str:
    return f"{namespace}/{name}" if namespace else name
