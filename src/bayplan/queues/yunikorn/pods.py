"""From a pod to its application: the labels and annotations of YuniKorn's shim.

User and groups in the annotation are not verified, because YuniKorn's admission controller sets it and
rejects pods that already have it; docs/queues.md says how to set that up.

https://yunikorn.apache.org/docs/user_guide/labels_and_annotations_in_yunikorn
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from bayplan.api.node import Namespace
from bayplan.api.pod import Pod
from bayplan.api.quantity import resource_amount
from bayplan.api.workloads import PriorityClass
from bayplan.errors import QuantityError
from bayplan.queues.yunikorn.config import VCORE
from bayplan.queues.yunikorn.placement import CREATE_FORCED, Submission

DOMAIN: Final = "yunikorn.apache.org/"
APP_ID: Final = f"{DOMAIN}app-id"
QUEUE: Final = f"{DOMAIN}queue"
USER_INFO: Final = f"{DOMAIN}user.info"
TASK_GROUP: Final = f"{DOMAIN}task-group-name"
PLACEHOLDER: Final = "internal.yunikorn.apache.org/placeholder"
ALLOW_PREEMPTION: Final = f"{DOMAIN}allow-preemption"
NOBODY: Final = "nobody"

_UNIQUE: Final = "-uniqueautogen"
_MAX_ID: Final = 63


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """The properties of a pod that its application needs."""

    role: str = ""
    required_node: str = ""
    is_placeholder: bool = False
    may_preempt: bool = True


def application_id(pod: Pod) -> str:
    """The application of a pod; pods of a namespace that name none share one."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    found = (
        labels.get(APP_ID)
        or annotations.get(APP_ID)
        or labels.get("applicationId")
        or labels.get("spark-app-selector")
    )
    if not found:
        return f"yunikorn-{pod.namespace}-autogen"[:_MAX_ID]
    if found.endswith(_UNIQUE):
        found = f"{found.removesuffix(_UNIQUE)}-{pod.uid}"
    return found


def queue_name(pod: Pod) -> str:
    labels = pod.metadata.labels
    return labels.get(QUEUE) or pod.metadata.annotations.get(QUEUE) or labels.get("queue") or ""


class _UserInfo(msgspec.Struct):
    user: str | None = None
    groups: list[str] | None = None


def user_of(pod: Pod) -> tuple[str, tuple[str, ...]]:
    """The user and user groups of a pod. A user without groups is in one of the same name."""
    text = pod.metadata.annotations.get(USER_INFO)
    info = _UserInfo()
    if text:
        try:
            info = msgspec.json.decode(text, type=_UserInfo)
        except msgspec.DecodeError:
            info = _UserInfo()
    user = info.user or NOBODY
    # usergroup.go: ConvertUGI, with the resolver that is used unless one is configured
    return user, tuple(info.groups or (user,))


def submission(pod: Pod, namespace: Namespace | None) -> Submission:
    """What placement needs to know about the application of a pod."""
    user, groups = user_of(pod)
    tags = {"namespace": pod.namespace}
    if pod.spec.node_name:
        tags[CREATE_FORCED] = "true"
    annotations: Mapping[str, str] = {} if namespace is None else namespace.metadata.annotations
    quota = annotations.get(f"{DOMAIN}namespace.quota") or _older_quota(annotations)
    guaranteed = annotations.get(f"{DOMAIN}namespace.guaranteed", "")
    for tag, text in (("resourcequota", quota), ("resourceguaranteed", guaranteed)):
        if amounts := _namespace_amounts(text):
            resources = {kind: {"value": amount} for kind, amount in amounts.items()}
            tags[f"namespace.{tag}"] = json.dumps({"resources": resources})
    if count := annotations.get(f"{DOMAIN}namespace.maxApps"):
        tags["namespace.resourcemaxapps"] = count
    if parent := annotations.get(f"{DOMAIN}parentqueue"):
        tags["namespace.parentqueue"] = parent
    return Submission(application_id(pod), queue_name(pod), user, groups, tags)


def _older_quota(annotations: Mapping[str, str]) -> str:
    """The quota of a namespace from the two annotations that `namespace.quota` has replaced."""
    found = {kind: annotations.get(f"{DOMAIN}namespace.max.{kind}") for kind in ("cpu", "memory")}
    given = {kind: quantity for kind, quantity in found.items() if quantity}
    return json.dumps(given) if given else ""


def _namespace_amounts(text: str) -> dict[str, int]:
    """Quantities of Kubernetes in a JSON object, in base units; nothing if one is invalid."""
    # resource.go: GetResource
    if not text:
        return {}
    try:
        amounts = {}
        for kind, quantity in json.loads(text).items():
            is_cpu = kind in ("cpu", VCORE)
            amounts[VCORE if is_cpu else kind] = resource_amount("cpu" if is_cpu else kind, quantity)
        return amounts
    except (ValueError, TypeError, AttributeError, QuantityError):
        return {}


_PLAIN: Final = TaskFacts()
_TASK_ANNOTATIONS: Final = frozenset({TASK_GROUP, PLACEHOLDER})


def facts(pod: Pod) -> TaskFacts:
    annotations, spec = pod.metadata.annotations, pod.spec
    if (
        spec.affinity is None
        and spec.preemption_policy != "Never"
        and _TASK_ANNOTATIONS.isdisjoint(annotations)
    ):
        return _PLAIN
    return TaskFacts(
        role=annotations.get(TASK_GROUP, ""),
        required_node=_required_node(pod),
        is_placeholder=annotations.get(PLACEHOLDER, "").lower() == "true",
        may_preempt=pod.spec.preemption_policy != "Never",
    )


def opts_out(pod: Pod, priority_class: PriorityClass | None) -> bool:
    """Whether a pod prefers not to be a victim: by its annotation, else by that of its PriorityClass."""
    said = pod.metadata.annotations.get(ALLOW_PREEMPTION)
    if said not in ("true", "false") and priority_class is not None:
        said = priority_class.metadata.annotations.get(ALLOW_PREEMPTION)
    return said == "false"


def _required_node(pod: Pod) -> str:
    """The node of a DaemonSet pod."""
    owner = pod.metadata.controller()
    if owner is None or owner.kind != "DaemonSet":
        return ""
    affinity = pod.spec.affinity
    required = affinity and affinity.node_affinity and affinity.node_affinity.required
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.values:
                return field.values[0]
    return ""


def amounts_of(requests: Mapping[str, int]) -> dict[str, int]:
    """The requests of a pod under the names of queues.yaml, and the pod itself."""
    amounts = {VCORE if kind == "cpu" else kind: amount for kind, amount in requests.items() if amount}
    amounts["pods"] = 1
    return amounts
