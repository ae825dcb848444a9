"""Eviction by device taints: pods leave devices whose NoExecute taints their claims do not tolerate, or not
for long.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#device-taints-and-tolerations
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import ClassVar, Final

from bayplan.api.devices import Device, DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceSlice
from bayplan.api.pod import Pod
from bayplan.api.resource_claims import ResourceClaim
from bayplan.embedded.controllers.claims_of_pods import claims_of, owner_problem
from bayplan.embedded.controllers.cluster import Cluster, Seen
from bayplan.embedded.controllers.controller import Concerns, Controller, soonest
from bayplan.embedded.controllers.taint_eviction import mark_disrupted
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
_WORD: Final = b'"NoExecute"'
_EVENT: Final = "DeviceTaintManagerEviction"
_WHY: Final = "Device Taint manager: deleting due to NoExecute taint"

_Pool = tuple[str, str]
"""Driver and name."""


class DeviceTaintEviction(Controller):
    """Reconciles pods with devices."""

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
        """Pods that have to go later."""

    def watches(self) -> dict[Resource, Concerns]:
        return {
            RESOURCE_SLICES: self._slice,
            DEVICE_TAINT_RULES: self._rule,
            RESOURCE_CLAIMS: self._claim,
            PODS: self._pod,
        }

    def _rule(self, seen: Seen) -> Iterable[str]:
        """Rules are few and change rarely: every pod whose claim may be concerned is looked at."""
        before = self._rules.pop(seen.key, None)
        after = None if seen.after is None else seen.after.record(DeviceTaintRule)
        if after is not None and after.spec.taint.effect == _NO_EXECUTE:
            self._rules[seen.key] = after
        evicting = [rule for rule in (before, self._rules.get(seen.key)) if rule is not None]
        claims = {
            key
            for (driver, pool), keys in self._claims.items()
            if any(_selects(rule, driver, pool) for rule in evicting)
            for key in keys
        }
        return sorted({pod for key in claims for pod in self._consumers(key)})

    def _slice(self, seen: Seen) -> Iterable[str]:
        documents = [document for document in (seen.before, seen.after) if document is not None]
        pools = {_pool_of(document.record(ResourceSlice)) for document in documents}
        for pool in pools:
            slices = self._slices.setdefault(pool, {})
            slices.pop(seen.key, None)
            if seen.after is not None and _pool_of(seen.after.record(ResourceSlice)) == pool:
                slices[seen.key] = seen.after
            if not slices:
                del self._slices[pool]
        if not any(_WORD in document.body for pool in pools for document in self._all_of(pool, documents)):
            return ()
        claims = {key for pool in pools for key in self._claims.get(pool, ())}
        return sorted({pod for key in claims for pod in self._consumers(key)})

    def _all_of(self, pool: _Pool, changed: list[Document]) -> Iterator[Document]:
        """The slices of a pool: a change of one can make another one outdated, or current again."""
        yield from changed
        yield from self._slices.get(pool, {}).values()

    def _claim(self, seen: Seen) -> Iterable[str]:
        allocation = None if seen.after is None else seen.after.record(ResourceClaim).status.allocation
        results = () if allocation is None else allocation.devices.results
        pools = frozenset((result.driver, result.pool) for result in results)
        known = self._pools.pop(seen.key, frozenset())
        for pool in known - pools:
            self._claims[pool].discard(seen.key)
            if not self._claims[pool]:
                del self._claims[pool]
        for pool in pools - known:
            self._claims.setdefault(pool, set()).add(seen.key)
        if pools:
            self._pools[seen.key] = pools
        return self._consumers(seen.key) if pools else ()

    def _consumers(self, key: str) -> list[str]:
        document = self.api.store.find(RESOURCE_CLAIMS, key)
        if document is None:
            return []
        namespace = key.rpartition("/")[0]
        consumers = document.record(ResourceClaim).status.reserved_for
        return [f"{namespace}/{each.name}" for each in consumers if each.resource == "pods"]

    def _pod(self, seen: Seen) -> Iterable[str]:
        if seen.after is None:
            self._marked.discard(seen.key)
            return ()
        pod = seen.after.record(Pod)
        return (seen.key,) if pod.spec.node_name and pod.spec.resource_claims else ()

    # Reconciling

    def reconcile(self, key: str) -> float | None:
        pod = self.cluster.pods.get(key)
        if pod is None or pod.is_terminating or not pod.spec.node_name:
            return None
        due = soonest(*(self._due(claim) for claim in self._used_by(pod)))
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

    def _used_by(self, pod: Pod) -> Iterator[ResourceClaim]:
        """The claims in the pod's spec that are reserved for it."""
        for pod_claim in claims_of(pod):
            document = self.api.store.find(RESOURCE_CLAIMS, f"{pod.namespace}/{pod_claim.claim_name}")
            if document is None:
                continue
            claim = document.record(ResourceClaim)
            is_its = not pod_claim.template or not owner_problem(pod, claim)
            if is_its and claim.is_reserved_for(pod.uid):
                yield claim

    def _due(self, claim: ResourceClaim) -> float | None:
        """When the pods of a claim have to go; None for never."""
        allocation = claim.status.allocation
        times = [
            due
            for result in (() if allocation is None else allocation.devices.results)
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
        """A device as the newest generation of its pool describes it."""
        slices = [document.record(ResourceSlice) for document in self._slices.get(pool, {}).values()]
        newest = max((each.spec.pool.generation for each in slices), default=0)
        devices = (
            device
            for each in slices
            if each.spec.pool.generation == newest
            for device in each.spec.devices
            if device.name == name
        )
        return next(devices, None)

    def _evict(self, pod: Pod) -> None:
        content = self.api.get(PODS, pod.name, pod.namespace)
        self.events.normal(content, _EVENT, "Marking for deletion")
        mark_disrupted(content, "DeletionByDeviceTaintManager", _WHY, self.api.now())
        self.api.update(PODS, content, subresource="status")
        self._marked.discard(pod.key)
        with suppress(NotFoundError):
            self.api.delete(PODS, pod.name, pod.namespace, DeleteOptions(uid=pod.uid))


def _pool_of(item: ResourceSlice) -> _Pool:
    return item.spec.driver, item.spec.pool.name


def _selects(rule: DeviceTaintRule, driver: str, pool: str, device: str | None = None) -> bool:
    """Whether a rule selects a device of this name; without a name: some device of the pool."""
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
