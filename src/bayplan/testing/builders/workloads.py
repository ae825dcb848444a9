"""What owns, selects or protects pods."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.api.meta import DEFAULT_NAMESPACE, LabelSelector
from bayplan.api.workloads import (
    EqualitySelectorSpec,
    LabelSelectorSpec,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PriorityClass,
    ReplicaSet,
    Service,
)
from bayplan.testing.builders.metadata import object_meta
from bayplan.testing.builders.selectors import to_selector


def make_pdb(
    name: str,
    labels: Mapping[str, str] | LabelSelector | None = None,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    allowed: int = 0,
) -> PodDisruptionBudget:
    """A budget that lets `allowed` of the selected pods be disrupted now."""
    return PodDisruptionBudget(
        metadata=object_meta("PodDisruptionBudget", name, namespace),
        spec=PodDisruptionBudgetSpec(selector=to_selector(labels)),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def make_priority_class(
    name: str, value: int, *, global_default: bool = False, preemption_policy: str | None = None
) -> PriorityClass:
    return PriorityClass(
        metadata=object_meta("PriorityClass", name),
        value=value,
        global_default=global_default,
        preemption_policy=preemption_policy,
    )


def make_service(
    name: str, selector: Mapping[str, str] | None = None, *, namespace: str = DEFAULT_NAMESPACE
) -> Service:
    """A service that selects pods by these labels; None is a service without selector."""
    spec = EqualitySelectorSpec(selector=None if selector is None else dict(selector))
    return Service(metadata=object_meta("Service", name, namespace), spec=spec)


def make_replica_set(
    name: str,
    labels: Mapping[str, str] | LabelSelector | None = None,
    *,
    namespace: str = DEFAULT_NAMESPACE,
) -> ReplicaSet:
    """A ReplicaSet; `make_owner("ReplicaSet", name)` makes a pod belong to it."""
    spec = LabelSelectorSpec(selector=to_selector(labels))
    return ReplicaSet(metadata=object_meta("ReplicaSet", name, namespace), spec=spec)
