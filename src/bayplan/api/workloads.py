"""Objects that own, select or protect pods: services, controllers, budgets, priority classes."""

from __future__ import annotations

from bayplan.api.meta import (
    Int32,
    LabelSelector,
    Object,
    Record,
    Time,
)


class PodDisruptionBudgetSpec(Record, frozen=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Record, frozen=True):
    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, Time | None] = {}


class PodDisruptionBudget(Object, frozen=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PriorityClass(Object, frozen=True):
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None


class EqualitySelectorSpec(Record, frozen=True):
    """Spec of a Service or ReplicationController: a plain map of labels, or none."""

    selector: dict[str, str] | None = None


class Service(Object, frozen=True):
    spec: EqualitySelectorSpec = EqualitySelectorSpec()


class ReplicationController(Object, frozen=True):
    spec: EqualitySelectorSpec = EqualitySelectorSpec()


class LabelSelectorSpec(Record, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(Object, frozen=True):
    spec: LabelSelectorSpec = LabelSelectorSpec()


class StatefulSet(Object, frozen=True):
    spec: LabelSelectorSpec = LabelSelectorSpec()
