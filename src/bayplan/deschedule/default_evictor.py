"""DefaultEvictor: which pods may be evicted at all.

Filter is a list of checks, each a column with the reason that users see; a pod passes if no check applies.
What evictions of the cycle change (terminating pods, replicas of an owner) is evaluated at each call.
PreEvictionFilter adds what is expensive: whether the pod fits elsewhere, and the labels of its namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bayplan.api.meta import LabelSelector
from bayplan.api.selector_text import parse_selector
from bayplan.api.selectors import EVERYTHING, Selector, compile_selector
from bayplan.deschedule.args import MANDATORY, MAX_PRIORITY, DefaultEvictorArgs
from bayplan.deschedule.node_fit import NodeFit
from bayplan.deschedule.table import Bools, ClusterTable, Flag
from bayplan.errors import SelectorError
from bayplan.framework.args import aggregate
from bayplan.framework.plugin_api import Plugin

Slots = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Check:
    """A reason not to evict pods."""

    applies: Bools
    text: str | Callable[[int], str]


class DefaultEvictor(Plugin):
    """Compiled arguments; `on` makes the checks for one cycle."""

    name: ClassVar = "DefaultEvictor"
    args_type: ClassVar = DefaultEvictorArgs

    def __init__(self, args: DefaultEvictorArgs) -> None:
        self.args = args
        self.selector = _selector(args.label_selector)
        try:
            self.namespaces = _selector(args.namespace_label_selector)
        except SelectorError as error:
            text = f"unable to convert namespaceLabelSelector to label selector: {error.problem}"
            raise SelectorError(text) from None

    def on(self, table: ClusterTable, node_fit: NodeFit, now: float) -> EvictorChecks:
        return EvictorChecks(self, table, node_fit, now)


def _selector(selector: LabelSelector | None) -> Selector:
    return EVERYTHING if selector is None else compile_selector(selector)


class EvictorChecks:
    """The checks on one table."""

    def __init__(self, evictor: DefaultEvictor, table: ClusterTable, node_fit: NodeFit, now: float) -> None:
        self._args = evictor.args
        self._selector = evictor.selector
        self._namespaces = evictor.namespaces
        self._table = table
        self._node_fit = node_fit
        self._now = now
        self._few: tuple[int, Bools] | None = None
        """Pods of owners with few replicas, and after how many changes."""

    @property
    def ignores_evictions(self) -> bool:
        """Whether evicting a pod cannot change the answer for another one."""
        return not self._args.node_fit and self._args.min_replicas <= 1

    def filter(self, slots: Slots) -> Bools:
        """Which of these pods may be evicted."""
        table = self._table
        flags = table.flags[slots]
        passes = self._static[slots] & (flags & Flag.TERMINATING == 0)
        if self._args.min_replicas > 1:
            passes &= ~self._few_replicas()[slots]
        if self._args.no_eviction_policy == MANDATORY:
            passes &= flags & Flag.PREFER_NO_EVICTION == 0
        result: Bools = passes | (flags & Flag.EVICT != 0)
        return result

    def checks(self, slot: int) -> str:
        """The text of all checks that the pod fails."""
        table = self._table
        flags = Flag(int(table.flags[slot]))
        if Flag.EVICT in flags:
            return ""
        if self._args.no_eviction_policy == MANDATORY and Flag.PREFER_NO_EVICTION in flags:
            return ""
        found = [
            one.text if isinstance(one.text, str) else one.text(slot)
            for one in (*self._checks[:2], self._terminating(), *self._checks[2:], *self._late())
            if one.applies[slot]
        ]
        return aggregate(found)

    def pre_eviction_filter(self, slots: Slots) -> Bools:
        """Which of these pods fit another node and are in a namespace that matches."""
        passes = np.ones(len(slots), np.bool_)
        if self._args.node_fit:
            rows = self._fit_rows
            for i, slot in enumerate(slots.tolist()):
                passes[i] = self._node_fit.fits_any_other(slot, rows)
        if not self._namespaces.is_empty:
            known = self._table.columns.namespaces.values
            allowed = np.array([self._in_namespace(name) for name in known], np.bool_)
            passes &= allowed[self._table.namespace[slots]]
        return passes

    def _in_namespace(self, name: str) -> bool:
        found = self._table.namespaces.get(name)
        return found is not None and self._namespaces.matches(found.labels)

    @cached_property
    def _fit_rows(self) -> Bools:
        """The nodes on which pods may fit: ready, and selected by the arguments."""
        try:
            selector = parse_selector(self._args.node_selector)
        except SelectorError:
            return np.zeros(len(self._table.nodes), np.bool_)
        selected = [selector.matches(node.labels) for node in self._table.nodes]
        return self._table.is_ready & np.array(selected, np.bool_)

    @cached_property
    def _static(self) -> Bools:
        """The pods to which no check applies that evictions could change."""
        failed = np.zeros(len(self._table.pods), np.bool_)
        for one in (*self._checks, *self._ages()):
            failed |= one.applies
        return ~failed

    @cached_property
    def _checks(self) -> list[Check]:
        table, args, protections = self._table, self._args, self._args.protections
        has = table.has
        found = [
            Check(has(Flag.MIRROR), "pod is a mirror pod"),
            Check(has(Flag.STATIC), "pod is a static pod"),
        ]
        if "SystemCriticalPods" in protections:
            has_priority = has(Flag.HAS_PRIORITY)
            threshold = MAX_PRIORITY
            if args.priority_threshold is not None and args.priority_threshold.value is not None:
                threshold = args.priority_threshold.value
            found += [
                Check(
                    has_priority & (table.priority >= MAX_PRIORITY),
                    "pod has system critical priority and is protected against eviction",
                ),
                Check(
                    has_priority & (table.priority >= threshold),
                    "pod has higher priority than specified priority class threshold",
                ),
            ]
        bare = ~has(Flag.OWNED)
        if "FailedBarePods" in protections:
            found.append(Check(bare, "pod does not have any ownerRefs"))
        else:
            text = "pod does not have any ownerRefs and is not in failed phase"
            found.append(Check(bare & ~has(Flag.FAILED), text))
        if "PodsWithLocalStorage" in protections:
            text = "pod has local storage and is protected against eviction"
            found.append(Check(has(Flag.LOCAL_STORAGE), text))
        if "DaemonSetPods" in protections:
            found.append(Check(has(Flag.DAEMON), "daemonset pods are protected against eviction"))
        if "PodsWithPVC" in protections:
            found.append(self._volumes())
        if "PodsWithoutPDB" in protections:
            text = "pod does not have a PodDisruptionBudget and is protected against eviction"
            found.append(Check(~self._has_budget(), text))
        if "PodsWithResourceClaims" in protections:
            text = "pod has ResourceClaims and descheduler is configured to protect ResourceClaims pods"
            found.append(Check(has(Flag.CLAIMS), text))
        if not self._selector.is_empty:
            text = "pod labels do not match the labelSelector filter in the policy parameter"
            found.append(Check(~table.matches(self._selector), text))
        return found

    def _volumes(self) -> Check:
        classes = self._args.protected_storage_classes
        with_claims = self._table.has(Flag.PVC)
        if not classes:
            return Check(with_claims, "pod with PVC is protected against eviction")
        texts = {int(slot): self._storage_text(int(slot)) for slot in np.flatnonzero(with_claims)}
        protected = np.zeros(len(self._table.pods), np.bool_)
        protected[[slot for slot, text in texts.items() if text]] = True
        return Check(protected, texts.__getitem__)

    def _storage_text(self, slot: int) -> str:
        """Why a pod is protected by the storage classes of its claims, or ""."""
        pod = self._table.pods[slot]
        used = []
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            name = volume.persistent_volume_claim.claim_name
            claim = self._table.claims.get(f"{pod.namespace}/{name}")
            if claim is None:
                where = f'"{pod.namespace}"/"{name}"'
                return (
                    f'failed to get persistent volume claim {where}: persistentvolumeclaim "{name}" not found'
                )
            if not claim.spec.storage_class_name:
                return f'failed to resolve storage class for pod "{pod.namespace}"/"{name}"'
            used.append(claim.spec.storage_class_name)
        for one in used:
            if one in self._args.protected_storage_classes:
                return f'pod using protected storage class "{one}"'
        return ""

    def _has_budget(self) -> Bools:
        table = self._table
        found = np.zeros(len(table.pods), np.bool_)
        for budget in table.budgets:
            try:
                selector = compile_selector(budget.spec.selector)
            except SelectorError:
                continue
            found |= table.in_namespaces((budget.namespace,)) & table.matches(selector)
        return found

    def _terminating(self) -> Check:
        return Check(self._table.has(Flag.TERMINATING), "pod is terminating")

    def _late(self) -> list[Check]:
        found = []
        if self._args.min_replicas > 1:
            found.append(Check(self._few_replicas(), self._replicas_text))
        return found + self._ages()

    def _ages(self) -> list[Check]:
        age = self._args.min_pod_age
        if age is None:
            return []
        text = f"pod age is not older than MinPodAge: &Duration{{Duration:{age},}} seconds"
        return [Check(~(self._now - self._table.started >= age.seconds), text)]

    def _replicas(self) -> Counter[str]:
        """How many pods there are with each owner."""
        counts: Counter[str] = Counter()
        owners = self._table.columns.owners.values
        present = np.bincount(self._table.owners[self._table.alive], minlength=len(owners))
        for references, count in zip(owners, present.tolist(), strict=True):
            if count:
                for reference in references:
                    counts[reference.uid] += count
        return counts

    def _few_replicas(self) -> Bools:
        changes = len(self._table.changed_rows)
        if self._few is None or self._few[0] < changes:
            counts, least = self._replicas(), self._args.min_replicas
            few = self._table.by_owners(lambda owners: len(owners) == 1 and counts[owners[0].uid] < least)
            self._few = (changes, few)
        return self._few[1]

    def _replicas_text(self, slot: int) -> str:
        count = self._replicas()[self._table.pods[slot].metadata.owner_references[0].uid]
        return f"owner has {count} replicas which is less than minReplicas of {self._args.min_replicas}"
