"""Eviction by device taints: pods leave devices whose NoExecute taints their claims do not tolerate, or not
for long. DeviceTaintRules get a condition that says how far it is.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#device-taints-and-tolerations
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from bayplan.api.devices import (
    Device,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.controllers.claims import claims_of, is_owned
from bayplan.controllers.pods import find_condition
from bayplan.embedded.controllers.cluster import Cluster, ObjectChange
from bayplan.embedded.controllers.controller import Controller, KeyMapper, earliest, write_status
from bayplan.embedded.controllers.node_lifecycle import mark_disrupted
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import (
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from bayplan.errors import NotFoundError

_NO_EXECUTE: Final = "NoExecute"
_NO_EXECUTE_JSON: Final = b'"NoExecute"'
_EVENT: Final = "DeviceTaintManagerEviction"
_MESSAGE: Final = "Device Taint manager: deleting due to NoExecute taint"

_Pool = tuple[str, str]
"""Driver and name."""


class DeviceTaintEviction(Controller):
    """Reconciles pods with devices, and the status of rules. The key of a rule has no namespace."""

    name: ClassVar = "device-taint-eviction-controller"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._slices: dict[_Pool, dict[str, Document]] = {}
        self._claims: dict[_Pool, set[str]] = {}
        """The claims with devices of a pool."""
        self._pools: dict[str, frozenset[_Pool]] = {}
        """The pools of a claim."""
        self._rules: dict[str, DeviceTaintRule] = {}
        """The DeviceTaintRules that evict."""
        self._marked: set[str] = set()
        """Pods that are to be evicted later."""
        self._evicted: dict[str, int] = {}
        """How many pods a rule has evicted, by its uid."""
        self._reported: dict[str, tuple[int, float]] = {}
        """The generation and the time of a rule's last status."""

    def watches(self) -> dict[Resource, KeyMapper]:
        return {
            RESOURCE_SLICES: self._slice,
            DEVICE_TAINT_RULES: self._rule,
            RESOURCE_CLAIMS: self._claim,
            PODS: self._pod,
        }

    def _rule(self, change: ObjectChange) -> Iterable[str]:
        """Rules are few and change rarely: every pod whose claim may be concerned is reconciled.

        The rule is, too, before them: its status says what is going to happen.
        """
        before = self._rules.pop(change.key, None)
        after = None if change.after is None else change.after.record(DeviceTaintRule)
        if after is not None and after.spec.taint.effect == _NO_EXECUTE:
            self._rules[change.key] = after
        if after is None:
            self._reported.pop(change.key, None)
            self._evicted.pop("" if before is None else before.uid, None)
        elif change.before is not None and change.before.record(DeviceTaintRule).spec == after.spec:
            return ()
        evicting = [rule for rule in (before, self._rules.get(change.key)) if rule is not None]
        claims = {
            key
            for (driver, pool), keys in self._claims.items()
            if any(_selects(rule, driver, pool) for rule in evicting)
            for key in keys
        }
        return [change.key, *sorted({pod for key in claims for pod in self._consumers(key)})]

    def _slice(self, change: ObjectChange) -> Iterable[str]:
        documents = [document for document in (change.before, change.after) if document is not None]
        pools = {_pool_of(document.record(ResourceSlice)) for document in documents}
        for pool in pools:
            slices = self._slices.setdefault(pool, {})
            slices.pop(change.key, None)
            if change.after is not None and _pool_of(change.after.record(ResourceSlice)) == pool:
                slices[change.key] = change.after
            if not slices:
                del self._slices[pool]
        if not any(
            _NO_EXECUTE_JSON in document.body for pool in pools for document in self._all_of(pool, documents)
        ):
            return ()
        claims = {key for pool in pools for key in self._claims.get(pool, ())}
        return sorted({pod for key in claims for pod in self._consumers(key)})

    def _all_of(self, pool: _Pool, changed: list[Document]) -> Iterator[Document]:
        """The slices of a pool: a change of one can make another one outdated, or current again."""
        yield from changed
        yield from self._slices.get(pool, {}).values()

    def _claim(self, change: ObjectChange) -> Iterable[str]:
        allocation = None if change.after is None else change.after.record(ResourceClaim).status.allocation
        results = () if allocation is None else allocation.devices.results
        pools = frozenset((result.driver, result.pool) for result in results)
        known = self._pools.pop(change.key, frozenset())
        for pool in known - pools:
            self._claims[pool].discard(change.key)
            if not self._claims[pool]:
                del self._claims[pool]
        for pool in pools - known:
            self._claims.setdefault(pool, set()).add(change.key)
        if pools:
            self._pools[change.key] = pools
        return self._consumers(change.key) if pools else ()

    def _consumers(self, key: str) -> list[str]:
        document = self.api.store.find(RESOURCE_CLAIMS, key)
        if document is None:
            return []
        namespace = key.rpartition("/")[0]
        consumers = document.record(ResourceClaim).status.reserved_for
        return [f"{namespace}/{each.name}" for each in consumers if each.resource == "pods"]

    def _pod(self, change: ObjectChange) -> Iterable[str]:
        document = change.after or change.before
        assert document is not None
        pod = document.record(Pod)
        if change.after is None:
            self._marked.discard(change.key)
        if not pod.spec.node_name or not pod.spec.resource_claims:
            return ()
        return self._rules if change.after is None else (change.key, *self._rules)

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        if "/" not in key:
            return self._reconcile_rule(key)
        pod = self.cluster.pods.get(key)
        if pod is None or pod.is_terminating or not pod.spec.node_name:
            return None
        due = earliest(*(self._due(claim) for claim in self._used_by(pod)))
        if due is None:
            if key in self._marked:
                self._marked.discard(key)
                content = self.api.get(PODS, pod.name, pod.namespace)
                self.events.normal(content, _EVENT, "Cancelling deletion")
            return None
        self._marked.add(key)
        if (left := due - self.api.time()) > 0:
            return left
        self._evict(pod)
        return None

    def _reconcile_rule(self, key: str) -> float | None:
        """Updates the status of a rule, at most every ten seconds unless its spec has changed."""
        document = self.api.store.find(DEVICE_TAINT_RULES, key)
        if document is None:
            return None
        rule, now = document.record(DeviceTaintRule), self.api.time()
        generation, since = self._reported.get(key, (0, 0.0))
        if generation == rule.metadata.generation and now - since < PERIOD_SECONDS:
            return PERIOD_SECONDS - (now - since)
        effect = rule.spec.taint.effect
        counts = self._counts(rule) if effect in (_NO_EXECUTE, "None") else RuleCounts()
        content = self.api.get(DEVICE_TAINT_RULES, rule.name)
        new = eviction_condition(effect, counts, rule.metadata.generation, self.api.now())
        known = find_condition(content, new["type"])
        if known is None or {**known, "lastTransitionTime": new["lastTransitionTime"]} != new:
            others = [each for each in content.get("status", {}).get("conditions", ()) if each is not known]
            write_status(self.api, DEVICE_TAINT_RULES, content, {"conditions": [*others, new]})
            self._reported[key] = rule.metadata.generation, now
        return None

    def _counts(self, rule: DeviceTaintRule) -> RuleCounts:
        selected = [pool for pool in {*self._slices, *self._claims} if _selects(rule, *pool)]
        claims = {key for pool in selected for key in self._claims.get(pool, ())}
        pods = {pod for key in claims for pod in self._consumers(key) if self._concerns(rule, pod)}
        return RuleCounts(
            pods=len(pods),
            namespaces=len({pod.partition("/")[0] for pod in pods}),
            evicted=self._evicted.get(rule.uid, 0),
            published=sum(
                _selects(rule, *pool, device.name) for pool in selected for device in self._devices(pool)
            ),
            allocated=sum(
                _selects(rule, result.driver, result.pool, result.device)
                for key in claims
                for result in self._results(key)
            ),
        )

    def _concerns(self, rule: DeviceTaintRule, key: str) -> bool:
        """Whether a rule evicts a pod, now or later."""
        pod = self.cluster.pods.get(key)
        return (
            pod is not None
            and not pod.is_terminating
            and bool(pod.spec.node_name)
            and any(
                _selects(rule, result.driver, result.pool, result.device)
                and eviction_time(rule.spec.taint, result.tolerations) is not None
                for claim in self._used_by(pod)
                for result in _results_of(claim)
            )
        )

    def _results(self, key: str) -> tuple[DeviceRequestAllocationResult, ...]:
        document = self.api.store.find(RESOURCE_CLAIMS, key)
        return () if document is None else _results_of(document.record(ResourceClaim))

    def _used_by(self, pod: Pod) -> Iterator[ResourceClaim]:
        """The claims in the pod's spec that are reserved for it."""
        for pod_claim in claims_of(pod):
            document = self.api.store.find(RESOURCE_CLAIMS, f"{pod.namespace}/{pod_claim.claim_name}")
            if document is None:
                continue
            claim = document.record(ResourceClaim)
            is_its = not pod_claim.template or is_owned(claim, pod)
            if is_its and claim.is_reserved_for(pod.uid):
                yield claim

    def _due(self, claim: ResourceClaim) -> float | None:
        """When the pods of a claim are to be evicted; None for never."""
        times = [
            due
            for result in _results_of(claim)
            for taint in self._taints(result.driver, result.pool, result.device)
            if (due := eviction_time(taint, result.tolerations)) is not None
        ]
        return min(times, default=None)

    def _taints(self, driver: str, pool: str, name: str) -> list[DeviceTaint]:
        device = self._device((driver, pool), name)
        own = () if device is None else device.taints
        # A rule also concerns a device that is no longer published.
        of_rules = (rule.spec.taint for rule in self._rules.values() if _selects(rule, driver, pool, name))
        return [*(taint for taint in own if taint.effect == _NO_EXECUTE), *of_rules]

    def _device(self, pool: _Pool, name: str) -> Device | None:
        return next((device for device in self._devices(pool) if device.name == name), None)

    def _devices(self, pool: _Pool) -> Iterator[Device]:
        """The devices of the newest generation of a pool."""
        slices = [document.record(ResourceSlice) for document in self._slices.get(pool, {}).values()]
        newest = max((each.spec.pool.generation for each in slices), default=0)
        return (
            device for each in slices if each.spec.pool.generation == newest for device in each.spec.devices
        )

    def _evict(self, pod: Pod) -> None:
        content = self.api.get(PODS, pod.name, pod.namespace)
        self.events.normal(content, _EVENT, "Marking for deletion")
        mark_disrupted(content, "DeletionByDeviceTaintManager", _MESSAGE, self.api.now())
        self.api.update(PODS, content, subresource="status")
        self._marked.discard(pod.key)
        for rule in self._rules.values():
            if self._concerns(rule, pod.key):
                self._evicted[rule.uid] = self._evicted.get(rule.uid, 0) + 1
        with suppress(NotFoundError):
            self.api.delete(PODS, pod.name, pod.namespace, DeleteOptions(uid=pod.uid))


def _results_of(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    """The devices that are allocated to a claim."""
    allocation = claim.status.allocation
    return () if allocation is None else tuple(allocation.devices.results)


def _pool_of(item: ResourceSlice) -> _Pool:
    return item.spec.driver, item.spec.pool.name


def _selects(rule: DeviceTaintRule, driver: str, pool: str, device: str | None = None) -> bool:
    """Whether a rule selects the device; without a name: any device of the pool."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    is_named = device is None or selector.device in (None, device)
    return is_named and selector.driver in (None, driver) and selector.pool in (None, pool)


def eviction_time(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> float | None:
    """When a NoExecute taint evicts; None if it is tolerated forever.

    Only tolerations that name the effect count here, unlike in scheduling, where an empty effect is any.
    """
    added = 0.0 if taint.time_added is None else taint.time_added.timestamp()
    seconds: list[int] = []
    for toleration in tolerations:
        if toleration.effect == _NO_EXECUTE and _matches(toleration, taint):
            if toleration.toleration_seconds is None:
                return None
            seconds.append(max(toleration.toleration_seconds, 0))
    return added + min(seconds, default=0)


def _matches(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


IN_PROGRESS: Final = "EvictionInProgress"
PERIOD_SECONDS: Final = 10.0
"""The shortest time between two updates of a rule's status, unless its spec has changed."""


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """What a rule concerns."""

    pods: int = 0
    """Pods that it evicts, or would evict if its effect was NoExecute."""
    namespaces: int = 0
    """The namespaces of these pods."""
    evicted: int = 0
    """Pods that were evicted since the controller started."""
    published: int = 0
    allocated: int = 0


def eviction_condition(effect: str, counts: RuleCounts, generation: int, now: str) -> Content:
    """The condition of a rule with this effect, as kube-controller-manager v1.37 words it."""
    status, reason, message = "False", "OtherEffect", "Eviction only happens for the NoExecute effect."
    if effect == "None":
        reason, message = "NoEffect", _preview(counts)
    elif effect == "NoExecute" and counts.pods:
        status, reason = "True", "PodsPendingEviction"
        needs = "1 pod needs" if counts.pods == 1 else f"{counts.pods} pods need"
        message = f"{needs} to be evicted in {_namespaces(counts)}."
    elif effect == "NoExecute":
        reason, message = ("Completed" if counts.evicted else "NotStarted"), ""
    if counts.evicted:
        done = f"{_number(counts.evicted, 'pod')} evicted since starting the controller."
        message = f"{message} {done}".lstrip()
    return {
        "type": IN_PROGRESS,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def _preview(counts: RuleCounts) -> str:
    return (
        f"{_number(counts.published, 'published device')} selected. "
        f"{_number(counts.allocated, 'allocated device')} selected. "
        f"{_number(counts.pods, 'pod')} would be evicted in {_namespaces(counts)} "
        "if the effect was NoExecute. "
        "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    )


def _namespaces(counts: RuleCounts) -> str:
    return "1 namespace" if counts.namespaces == 1 else f"{counts.namespaces} different namespaces"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
