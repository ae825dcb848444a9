"""The claims of pods: ResourceClaims from templates, claims of ephemeral volumes, and new volumes.

A pod uses the ResourceClaims that it names, those that were created for it from templates, and the one that
the scheduler created for its extended resources. A PodGroup may have claims, too: an entry of a pod that is
equal to one of its group's stands for the claim of the group.

Provisioning is that of an external provisioner and its storage system. Every class has a provisioner, except
those with `kubernetes.io/no-provisioner`. Volumes of a class with WaitForFirstConsumer are reachable from the
zone of the node that the scheduler chose; the parameter `bayplan/topology` of the class names another label,
such as `kubernetes.io/hostname` for local disks. If the class has allowedTopologies, their keys are used
instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bayplan.api.devices import (
    POD_CLAIM_NAME_ANNOTATION,
    ResourceClaim,
)
from bayplan.api.groups import PodGroup
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.api.storage import (
    NO_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
)
from bayplan.controllers.pods import owner_reference

TOPOLOGY_PARAMETER: Final = "bayplan/topology"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_ZONE: Final = "topology.kubernetes.io/zone"
_MAX_PREFIX: Final = 57
"""Of a generated name, so that a hyphen and five characters more make a label."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One claim of a pod or group."""

    name: str
    """In spec.resourceClaims; empty for the claim of extended resources."""
    claim_name: str
    """Of the ResourceClaim; empty if it has not been created yet."""
    template: str = ""
    """From which it is created for this pod or group alone; empty for a claim that a user creates."""


def claims_of(owner: Pod | PodGroup) -> Iterator[PodClaim]:
    """The claims in the spec of a pod or group, without those that it turned out not to need."""
    statuses = {status.name: status.resource_claim_name for status in owner.status.resource_claim_statuses}
    for claim in owner.spec.resource_claims:
        if claim.resource_claim_name is not None:
            yield PodClaim(claim.name, claim.resource_claim_name)
        # A status without a name says that no claim was needed.
        elif claim.resource_claim_template_name is not None and statuses.get(claim.name, "") is not None:
            name = statuses.get(claim.name) or ""
            yield PodClaim(claim.name, name, claim.resource_claim_template_name)


def all_claims_of(pod: Pod) -> Iterator[PodClaim]:
    """The same, and the claim that the scheduler made for its extended resources."""
    yield from claims_of(pod)
    if (extended := pod.status.extended_resource_claim_status) is not None:
        yield PodClaim("", extended.resource_claim_name)


def uses_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def no_longer_needs_claims(pod: Pod) -> bool:
    """Whether a pod has ended, or is being deleted before it got a node."""
    return pod.is_finished or (pod.is_terminating and not pod.spec.node_name)


def shared_claims(pod: Pod, group: PodGroup) -> set[str]:
    """The entries of a pod, by name, that stand for claims of its group."""
    entries = {
        (one.name, one.resource_claim_name, one.resource_claim_template_name)
        for one in group.spec.resource_claims
    }
    return {
        one.name
        for one in pod.spec.resource_claims
        if (one.name, one.resource_claim_name, one.resource_claim_template_name) in entries
    }


def is_owned(claim: ResourceClaim, owner: Pod | PodGroup) -> bool:
    """Whether a claim was created for this pod or group from a template."""
    controller = claim.metadata.controller()
    return controller is not None and controller.uid == owner.uid


def owner_problem(pod: Pod, claim: ResourceClaim) -> str:
    """Why a claim from a template is neither this pod's nor its group's; empty if it is."""
    if is_owned(claim, pod) or claim.is_owned_by_group_of(pod):
        return ""
    named = pod.spec.scheduling_group
    group = "" if named is None else named.pod_group_name
    owners = f"neither Pod nor PodGroup {group} is the owner" if group else "Pod is not owner"
    return f"ResourceClaim {claim.key} was not created for Pod {pod.key} ({owners})"


def claim_from_template(template: Content, owner: Pod | PodGroup, name: str) -> Content:
    """The ResourceClaim for the entry `name` in the spec.resourceClaims of a pod or group."""
    # resourceclaim/controller.go: handleClaim, handlePodGroupClaim
    spec = template.get("spec") or {}
    meta = spec.get("metadata") or {}
    annotations = {**(meta.get("annotations") or {}), POD_CLAIM_NAME_ANNOTATION: name}
    kind = type(owner)
    reference = {
        "apiVersion": KINDS.of(kind).api_version,
        "kind": kind.__name__,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    return {
        "metadata": {
            "generateName": generated_prefix(owner.name, name),
            "annotations": annotations,
            "ownerReferences": [reference],
            **({"labels": dict(meta["labels"])} if meta.get("labels") else {}),
        },
        "spec": spec.get("spec") or {},
    }


def generated_prefix(owner: str, claim: str) -> str:
    """The prefix of a generated claim name: both names, shortened in proportion if they are too long."""
    prefix = f"{owner}-{claim}-"
    if len(prefix) <= _MAX_PREFIX:
        return prefix
    first, second = (name[: len(name) * _MAX_PREFIX // len(prefix)] for name in (owner, claim))
    return f"{first}-{second}"


def ephemeral_claim(pod: Content, volume: Content) -> Content | None:
    """The claim of a generic ephemeral volume, which ends with its pod; None for other volumes."""
    # ephemeral/controller.go: handleVolume
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is None:
        return None
    own = {"name": f"{pod['metadata']['name']}-{volume['name']}", "ownerReferences": [owner_reference(pod)]}
    return {"metadata": {**(template.get("metadata") or {}), **own}, "spec": template.get("spec") or {}}


def can_provision(storage_class: Content | None) -> bool:
    return storage_class is not None and storage_class.get("provisioner", "") not in ("", NO_PROVISIONER)


def new_volume(claim: Content, storage_class: Content, node_labels: Mapping[str, str] | None) -> Content:
    """A new volume for a claim, with the labels of the node that was chosen for its first consumer."""
    meta, spec = claim["metadata"], claim.get("spec") or {}
    provisioner = storage_class.get("provisioner", "")
    name = f"pvc-{meta['uid']}"
    volume: Content = {
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: provisioner}},
        "spec": {
            "accessModes": list(spec.get("accessModes") or ()),
            "capacity": {"storage": (spec.get("resources") or {}).get("requests", {}).get("storage", "0")},
            "csi": {"driver": provisioner, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": spec.get("volumeMode", "Filesystem"),
        },
    }
    if storage_class.get("mountOptions"):
        volume["spec"]["mountOptions"] = list(storage_class["mountOptions"])
    terms = _terms(storage_class, node_labels)
    if terms:
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return volume


def _terms(storage_class: Content, node_labels: Mapping[str, str] | None) -> list[Content]:
    """The node selector terms of the volume; empty if it is reachable from every node."""
    allowed = [
        term.get("matchLabelExpressions") or () for term in storage_class.get("allowedTopologies") or ()
    ]
    if node_labels is None:
        return [
            {"matchExpressions": [_requirement(each["key"], each["values"]) for each in term]}
            for term in allowed
            if term
        ]
    keys = list(dict.fromkeys(each["key"] for term in allowed for each in term))
    if not keys and storage_class.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER:
        keys = [(storage_class.get("parameters") or {}).get(TOPOLOGY_PARAMETER, _ZONE)]
    found = [_requirement(key, [node_labels[key]]) for key in keys if key in node_labels]
    return [{"matchExpressions": found}] if found else []


def _requirement(key: str, values: list[str]) -> Content:
    return {"key": key, "operator": "In", "values": list(values)}
