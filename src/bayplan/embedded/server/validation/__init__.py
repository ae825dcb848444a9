"""Validation of objects by kind, with the messages of Kubernetes.

Types and unknown fields have been checked before (`schema/`). This package validates names, labels,
quantities, selectors, references between fields, and which fields may change. It covers what scheduling reads
and common mistakes; some objects are accepted that a real server would reject, never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bayplan.api.meta import Content
from bayplan.embedded.server import kinds
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.statuses import FieldProblem
from bayplan.embedded.server.validation import device_claims, device_slices, groups
from bayplan.embedded.server.validation import others as rules
from bayplan.embedded.server.validation.custom import custom_problems
from bayplan.embedded.server.validation.pods import (
    pod_claim_status_problems,
    pod_problems,
    pod_resize_problems,
    pod_update_problems,
)
from bayplan.embedded.server.validation.values import metadata_problems, metadata_update_problems

_RULES: Final[dict[Resource, Callable[[Content], list[FieldProblem]]]] = {
    kinds.COMPOSITE_POD_GROUPS: groups.composite_group_problems,
    kinds.CONFIG_MAPS: rules.config_map_problems,
    kinds.CRON_JOBS: rules.cron_job_problems,
    kinds.CUSTOM_RESOURCE_DEFINITIONS: rules.definition_problems,
    kinds.DAEMON_SETS: rules.workload_problems,
    kinds.DEPLOYMENTS: rules.workload_problems,
    kinds.DEVICE_CLASSES: device_claims.device_class_problems,
    kinds.DEVICE_TAINT_RULES: rules.taint_rule_problems,
    kinds.JOBS: rules.job_problems,
    kinds.LEASES: rules.lease_problems,
    kinds.NODES: rules.node_problems,
    kinds.PERSISTENT_VOLUMES: rules.volume_problems,
    kinds.PERSISTENT_VOLUME_CLAIMS: rules.claim_problems,
    kinds.PODS: pod_problems,
    kinds.POD_DISRUPTION_BUDGETS: rules.budget_problems,
    kinds.POD_GROUPS: groups.pod_group_problems,
    kinds.PRIORITY_CLASSES: rules.priority_class_problems,
    kinds.REPLICATION_CONTROLLERS: rules.replication_controller_problems,
    kinds.REPLICA_SETS: rules.workload_problems,
    kinds.RESOURCE_CLAIMS: device_claims.device_claim_problems,
    kinds.RESOURCE_CLAIM_TEMPLATES: device_claims.claim_template_problems,
    kinds.RESOURCE_SLICES: device_slices.device_slice_problems,
    kinds.SECRETS: rules.secret_problems,
    kinds.SERVICES: rules.service_problems,
    kinds.STATEFUL_SETS: rules.workload_problems,
    kinds.STORAGE_CLASSES: rules.storage_class_problems,
    kinds.WORKLOADS: groups.workload_problems,
}
_UPDATE_RULES: Final[dict[Resource, Callable[[Content, Content], list[FieldProblem]]]] = {
    kinds.DAEMON_SETS: rules.workload_update_problems,
    kinds.DEPLOYMENTS: rules.workload_update_problems,
    kinds.PODS: pod_update_problems,
    kinds.PRIORITY_CLASSES: rules.priority_class_update_problems,
    kinds.REPLICA_SETS: rules.workload_update_problems,
    kinds.STORAGE_CLASSES: rules.storage_class_update_problems,
}
_WHOLE_UPDATE_RULES: Final[dict[Resource, Callable[[Content, Content], list[FieldProblem]]]] = {
    kinds.COMPOSITE_POD_GROUPS: groups.composite_group_problems,
    kinds.POD_GROUPS: groups.pod_group_problems,
    kinds.RESOURCE_CLAIMS: device_claims.device_claim_update_problems,
    kinds.RESOURCE_CLAIM_TEMPLATES: device_claims.claim_template_update_problems,
    kinds.RESOURCE_SLICES: device_slices.device_slice_update_problems,
    kinds.WORKLOADS: groups.workload_update_problems,
}
"""Kinds for which these rules replace those for new objects in updates."""
_STATUS_RULES: Final[dict[Resource, Callable[[Content, Content], list[FieldProblem]]]] = {
    kinds.COMPOSITE_POD_GROUPS: groups.group_status_problems,
    kinds.DEVICE_TAINT_RULES: rules.taint_rule_status_problems,
    kinds.POD_GROUPS: groups.group_status_problems,
    kinds.PODS: pod_claim_status_problems,
    kinds.RESOURCE_CLAIMS: device_claims.device_claim_status_problems,
}


def new_problems(resource: Resource, content: Content) -> list[FieldProblem]:
    """The problems of an object that is to be created."""
    return metadata_problems(resource, content) + _rule_problems(resource, content)


def update_problems(
    resource: Resource, content: Content, old: Content, subresource: str
) -> list[FieldProblem]:
    """The errors of a new version of an object. What has not changed is not checked again."""
    problems = metadata_update_problems(content, old)
    if content["metadata"].get("labels") != old["metadata"].get("labels"):
        problems += metadata_problems(resource, content)
    if subresource == "status" and resource in _STATUS_RULES:
        return problems + _STATUS_RULES[resource](content, old)
    if subresource == "resize":
        return problems + pod_resize_problems(content, old)
    if subresource or not differ_in_spec(content, old):
        return problems
    if (whole_rule := _WHOLE_UPDATE_RULES.get(resource)) is not None:
        return problems + whole_rule(content, old)
    problems += _rule_problems(resource, content, old)
    if (update_rule := _UPDATE_RULES.get(resource)) is not None:
        problems += update_rule(content, old)
    return problems


def _rule_problems(resource: Resource, content: Content, old: Content | None = None) -> list[FieldProblem]:
    if resource.schema is not None:
        return custom_problems(content, resource.schema, old)
    rule = _RULES.get(resource)
    return rule(content) if rule is not None else []


def differ_in_spec(content: Content, old: Content) -> bool:
    """Whether anything but metadata and status differs."""
    fields = {*content, *old} - {"metadata", "status"}
    return any(content.get(field) != old.get(field) for field in fields)
