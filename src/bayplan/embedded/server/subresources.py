"""Subresources: binding and eviction of pods, what the scheduler writes about them, and scale.

A Scale is the number of replicas that a workload should have, in the same form for all kinds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bayplan.api.meta import Content
from bayplan.controllers.pods import has_condition, selector_of
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import PODS, Resource
from bayplan.embedded.server.statuses import UnavailableError

if TYPE_CHECKING:
    from bayplan.embedded.server.objects import ObjectAPI

POD_SCHEDULED: Final = "PodScheduled"
_RETRY_SECONDS: Final = 10
_EVICTED: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
_TOO_MANY: Final = "Cannot evict pod as it would violate the pod's disruption budget."


def bind(
    api: ObjectAPI,
    name: str,
    namespace: str,
    node_name: str,
    *,
    uid: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    dry_run: bool = False,
) -> Content:
    """Assigns a pod to a node, which need not exist."""
    document = api.document(PODS, name, namespace)
    pod = document.parse()
    meta, spec = pod["metadata"], pod["spec"]
    if uid and uid != meta["uid"]:
        raise statuses.another_uid(PODS, document.key, name, uid, meta["uid"])
    if "deletionTimestamp" in meta:
        raise _not_bound(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _not_bound(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _not_bound(name, f"pod {name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = node_name
    given = {**api.admission.topology_labels(node_name), **(labels or {})}
    for field, added in (("labels", given), ("annotations", annotations)):
        if added:
            meta[field] = {**(meta.get(field) or {}), **added}
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    _set_condition(
        status,
        {"type": POD_SCHEDULED, "status": "True", "lastProbeTime": None, "lastTransitionTime": api.now()},
    )
    return api.write(PODS, document, pod, dry_run=dry_run)


def _not_bound(name: str, why: str) -> statuses.ClashError:
    return statuses.conflict(PODS, name, why, "binding")


def _set_condition(status: Content, condition: Content) -> None:
    others = [known for known in status.get("conditions") or () if known.get("type") != condition["type"]]
    status["conditions"] = [*others, condition]


def set_scheduling(
    api: ObjectAPI,
    name: str,
    namespace: str,
    condition: Content | None,
    nominated: str | None,
    *,
    extended_claim: Content | None = None,
    uid: str = "",
) -> None:
    """Writes the scheduler's part of a pod's status: a condition, the nominated node ("" to clear it), and
    the claim for its extended resources.

    lastTransitionTime of a condition changes only with its status. Without a change nothing is written.
    """
    document = api.document(PODS, name, namespace)
    pod = document.parse()
    if uid and uid != pod["metadata"]["uid"]:
        raise statuses.immutable_uid(PODS, name, uid)
    status = pod.setdefault("status", {})
    changed = False
    if condition is not None:
        changed = _merge_condition(status, condition, api.now())
    if nominated is not None and nominated != status.get("nominatedNodeName", ""):
        changed = True
        if nominated:
            status["nominatedNodeName"] = nominated
        else:
            status.pop("nominatedNodeName", None)
    if extended_claim is not None and extended_claim != status.get("extendedResourceClaimStatus"):
        changed = True
        status["extendedResourceClaimStatus"] = extended_claim
    if changed:
        api.write(PODS, document, pod)


def _merge_condition(status: Content, condition: Content, now: str) -> bool:
    conditions = status.setdefault("conditions", [])
    new = {"lastProbeTime": None, **condition}
    new.setdefault("lastTransitionTime", now)
    for i, known in enumerate(conditions):
        if known.get("type") != condition["type"]:
            continue
        if known.get("status") == condition.get("status"):
            if all(known.get(field) == new.get(field) for field in ("reason", "message", "lastProbeTime")):
                return False
            new["lastTransitionTime"] = known.get("lastTransitionTime") or now
        conditions[i] = new
        return True
    conditions.append(new)
    return True


def evict(api: ObjectAPI, name: str, namespace: str, options: DeleteOptions) -> None:
    """Deletes a pod, unless that would violate a PodDisruptionBudget."""
    pod = api.get(PODS, name, namespace)
    if _needs_no_budget(pod):
        _delete_evicted(api, pod, options)
        return
    budgets = _budgets_of(api, pod)
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise UnavailableError(message, 500)
    if budgets and not options.dry_run:
        _take_from(api, budgets[0], pod)
    _delete_evicted(api, pod, options)


def _delete_evicted(api: ObjectAPI, pod: Content, options: DeleteOptions) -> None:
    # eviction.go: addConditionAndDeletePod
    if not options.dry_run:
        options.check(PODS, pod)
        if _merge_condition(pod.setdefault("status", {}), dict(_EVICTED), api.now()):
            pod = api.update(PODS, pod, subresource="status")
        if options.resource_version:
            options = replace(options, resource_version=pod["metadata"]["resourceVersion"])
    api.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], options)


def _needs_no_budget(pod: Content) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _budgets_of(api: ObjectAPI, pod: Content) -> list[Content]:
    labels = pod["metadata"].get("labels") or {}
    budgets = api.list(kinds.POD_DISRUPTION_BUDGETS, pod["metadata"]["namespace"])
    return [budget for budget in budgets if selector_of(budget).matches(labels)]


def _take_from(api: ObjectAPI, budget: Content, pod: Content) -> None:
    """Decrements disruptionsAllowed of a budget."""
    meta, status = budget["metadata"], budget.setdefault("status", {})
    name = meta["name"]
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(why, retryAfterSeconds=_RETRY_SECONDS)
    allowed = status.get("disruptionsAllowed", 0)
    if not has_condition(pod, "Ready") and _healthy_enough(budget):
        return
    if allowed <= 0:
        # Without a time to retry after: clients would repeat the request, and kubectl drain say nothing.
        raise _too_many(
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
            f"{status.get('currentHealthy', 0)} currently"
        )
    status["disruptionsAllowed"] = allowed - 1
    status.setdefault("disruptedPods", {})[pod["metadata"]["name"]] = api.now()
    api.update(kinds.POD_DISRUPTION_BUDGETS, budget, subresource="status")


def _healthy_enough(budget: Content) -> bool:
    """Whether an unhealthy pod may be evicted without being counted."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget["status"]
    return bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)


def _too_many(why: str, **details: Any) -> UnavailableError:
    details["causes"] = [{"reason": "DisruptionBudget", "message": why}]
    return UnavailableError(_TOO_MANY, 429, reason="TooManyRequests", details=details)


def get_scale(api: ObjectAPI, resource: Resource, name: str, namespace: str) -> Content:
    """The Scale of a workload."""
    return _scale_of(api.get(resource, name, namespace))


def update_scale(
    api: ObjectAPI,
    resource: Resource,
    scale: Content,
    namespace: str,
    *,
    dry_run: bool = False,
    manager: str = "bayplan",
) -> Content:
    """Sets the number of replicas, and returns the new Scale."""
    meta = scale.get("metadata") or {}
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        problem = statuses.invalid_field("spec.replicas", replicas, "must be greater than or equal to 0")
        raise statuses.invalid(_SCALES, meta.get("name", ""), [problem])
    workload = api.get(resource, meta.get("name", ""), namespace)
    known = workload["metadata"]
    if meta.get("uid"):
        known["uid"] = meta["uid"]
    if meta.get("resourceVersion"):
        known["resourceVersion"] = meta["resourceVersion"]
    workload.setdefault("spec", {})["replicas"] = replicas
    updated = api.update(resource, workload, namespace, dry_run=dry_run, manager=manager)
    return _scale_of(updated)


_SCALES = Resource("scales", "Scale", group="autoscaling")


def _scale_of(workload: Content) -> Content:
    meta, spec, status = workload["metadata"], workload.get("spec") or {}, workload.get("status") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    scale: Content = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {"replicas": status.get("replicas", 0)},
    }
    if isinstance(spec.get("selector"), dict):
        scale["status"]["selector"] = str(selector_of(workload))
    return scale
