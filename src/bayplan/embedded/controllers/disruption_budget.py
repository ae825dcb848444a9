"""PodDisruptionBudgets: how many pods may be evicted now. Eviction and preemption use their status.

The pods of each budget are counted as they change, so a budget over thousands of pods costs no more than one
over three.

https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar, Final, NamedTuple

from bayplan.api.go_values import seconds_or_1970
from bayplan.api.meta import Content, OwnerReference
from bayplan.api.pod import Pod
from bayplan.api.selectors import Selector
from bayplan.controllers.pods import controller_reference, is_ready, rounded, selector_of
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange, names_of
from bayplan.embedded.controllers.controller import Controller, KeyMapper, with_condition, write_status
from bayplan.embedded.server import kinds
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import POD_DISRUPTION_BUDGETS, PODS, Resource

_DISRUPTED_SECONDS: Final = 120.0
"""How long an eviction counts that is not carried out."""
_SCALABLE: Final = (
    kinds.DEPLOYMENTS,
    kinds.REPLICA_SETS,
    kinds.STATEFUL_SETS,
    kinds.REPLICATION_CONTROLLERS,
)
_BY_KIND: Final = {resource.kind: resource for resource in _SCALABLE}


class _Member(NamedTuple):
    owner: OwnerReference | None
    is_healthy: bool


class _Budget:
    """The number of pods that a budget selects."""

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self.members: dict[str, _Member] = {}
        self.healthy = 0
        self.owners: Counter[OwnerReference] = Counter()

    def update(self, key: str, pod: Pod | None) -> bool:
        """Counts a pod in its current state. Returns whether that changes a count."""
        new = None
        if pod is not None and not pod.is_finished and self.selector.matches(pod.labels):
            new = _Member(pod.metadata.controller(), is_ready(pod) and not pod.is_terminating)
        old = self.members.pop(key, None)
        if new is not None:
            self.members[key] = new
        if new == old:
            return False
        for member, sign in ((old, -1), (new, 1)):
            if member is not None:
                self.healthy += sign * member.is_healthy
                if member.owner is not None:
                    self.owners[member.owner] += sign
        self.owners = +self.owners
        return True


class DisruptionBudgets(Controller):
    """Reconciles PodDisruptionBudgets."""

    name: ClassVar = "controllermanager"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._budgets: dict[str, dict[str, _Budget]] = {}

    def watches(self) -> dict[Resource, KeyMapper]:
        scaled = dict.fromkeys(_SCALABLE, self._scaled)
        return {POD_DISRUPTION_BUDGETS: self._budget, PODS: self._pod, **scaled}

    def _budget(self, change: ObjectChange) -> Iterable[str]:
        _, namespace = names_of(change.key)
        budgets = self._budgets.setdefault(namespace, {})
        if change.after is None:
            budgets.pop(change.key, None)
            return ()
        selector = selector_of(change.after.parse())
        known = budgets.get(change.key)
        if known is None or known.selector != selector:
            budget = budgets[change.key] = _Budget(selector)
            for document in self.api.documents(PODS, namespace):
                budget.update(document.key, document.record(Pod))
        return (change.key,)

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        _, namespace = names_of(change.key)
        budgets = self._budgets.get(namespace)
        if not budgets:
            return ()
        pod = None if change.after is None else change.after.record(Pod)
        return [key for key, budget in budgets.items() if budget.update(change.key, pod)]

    def _scaled(self, change: ObjectChange) -> Iterable[str]:
        """Percentages are of the desired replicas, so a change of `replicas` changes them."""
        _, namespace = names_of(change.key)
        if not self._budgets.get(namespace) or _replicas(change.before) == _replicas(change.after):
            return ()
        return list(self._budgets[namespace])

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        content = self.cluster.find(POD_DISRUPTION_BUDGETS, key)
        _, namespace = names_of(key)
        budget = self._budgets.get(namespace, {}).get(key)
        if content is None or budget is None:
            return None
        disrupted, again = self._disrupted(content, namespace)
        expected, desired = self._numbers(content.get("spec", {}), budget, namespace)
        healthy = budget.healthy - sum(
            budget.members[pod].is_healthy
            for name in disrupted
            if (pod := f"{namespace}/{name}") in budget.members
        )
        allowed = max(healthy - desired, 0) if expected > 0 else 0
        state, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        generation = content["metadata"]["generation"]
        status: Content = {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "observedGeneration": generation,
            "disruptedPods": disrupted or None,
            "conditions": with_condition(
                (content.get("status") or {}).get("conditions"), "DisruptionAllowed", state, reason, "",
                self.api.now(), observedGeneration=generation,
            ),
        }  # fmt: skip
        write_status(self.api, POD_DISRUPTION_BUDGETS, content, status)
        return again

    def _disrupted(self, content: Content, namespace: str) -> tuple[dict[str, str], float | None]:
        """Pods that are about to be deleted because an eviction was granted, and when that is forgotten."""
        left, again = {}, None
        for name, text in ((content.get("status") or {}).get("disruptedPods") or {}).items():
            pod = self.cluster.pods.get(f"{namespace}/{name}")
            remaining = seconds_or_1970(text) + _DISRUPTED_SECONDS - self.api.time()
            if pod is not None and not pod.is_terminating and remaining > 0:
                left[name] = text
                again = remaining if again is None else min(again, remaining)
        return left, again

    def _numbers(self, spec: Content, budget: _Budget, namespace: str) -> tuple[int, int]:
        """How many pods there should be, and how many of them have to be healthy."""
        at_least, at_most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if at_most is not None:
            expected = self._expected(budget, namespace)
            return expected, max(expected - rounded(at_most, expected, up=True), 0)
        if isinstance(at_least, str) and at_least.endswith("%"):
            expected = self._expected(budget, namespace)
            return expected, rounded(at_least, expected, up=True)
        return len(budget.members), rounded(at_least, 0, up=True)

    def _expected(self, budget: _Budget, namespace: str) -> int:
        """The sum of `replicas` of the pods' controllers; pods without a scalable controller count as one."""
        scales: dict[str, int] = {}
        others = len(budget.members)
        for owner, number in budget.owners.items():
            found = self._scale(owner, namespace)
            if found is not None:
                scales[found[0]] = found[1]
                others -= number
        return sum(scales.values()) + others

    def _scale(self, owner: OwnerReference, namespace: str) -> tuple[str, int] | None:
        resource = _BY_KIND.get(owner.kind)
        content = None if resource is None else self.cluster.find(resource, f"{namespace}/{owner.name}")
        if content is None:
            return None
        above = controller_reference(content)
        if above is not None and above["kind"] == "Deployment":
            deployment = self.cluster.find(kinds.DEPLOYMENTS, f"{namespace}/{above['name']}")
            content = deployment or content
        return content["metadata"]["uid"], content["spec"].get("replicas", 1)


def _replicas(document: Document | None) -> int | None:
    return None if document is None else document.parse()["spec"].get("replicas")
