"""Dynamic provisioning: new volumes for claims, as from an external provisioner and its storage system.

Every class has a simulated provisioner, except those with `kubernetes.io/no-provisioner`. Volumes of a class
with WaitForFirstConsumer are reachable from the zone of the node that the scheduler chose; the parameter
`bayplan/topology` of the class names another label, such as `kubernetes.io/hostname` for local disks. If the
class has allowedTopologies, their keys are used instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bayplan.api.storage import NO_PROVISIONER, WAIT_FOR_FIRST_CONSUMER
from bayplan.embedded.server.documents import Content

TOPOLOGY_PARAMETER: Final = "bayplan/topology"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_ZONE: Final = "topology.kubernetes.io/zone"


def can_provision(storage_class: Content | None) -> bool:
    return storage_class is not None and storage_class.get("provisioner") != NO_PROVISIONER


def new_volume(claim: Content, storage_class: Content, node_labels: Mapping[str, str] | None) -> Content:
    """A new volume for a claim, with the labels of the node that was chosen for its first consumer."""
    meta, spec = claim["metadata"], claim["spec"]
    provisioner = storage_class["provisioner"]
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
