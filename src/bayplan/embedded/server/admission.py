"""Admission: completes or rejects a new object, depending on other objects. Fields in, fields out.

| plugin | what it does here |
|---|---|
| NamespaceLifecycle | objects are created only in namespaces that exist and are not being deleted |
| LimitRanger | sets the default requests and limits of the namespace, and rejects pods outside its bounds |
| Priority | priority and preemption policy from the class of a pod or group, or from the default class |
| PodGroupProtection | a new PodGroup gets a finalizer (`preparation.py`) |
| DefaultTolerationSeconds | pods stay 300 s on a node that is not ready or unreachable |
| DefaultStorageClass | claims without a class get the default one |
| RuntimeClass | a pod gets the overhead, node selector and tolerations of its class |
| ResourceQuota | what exceeds a quota of the namespace is rejected; `quotas.py` counts |
| (admin access) | claims for devices in use need a label on their namespace |
| (service addresses) | a service gets an address and node ports that no other one has |
| PodTopologyLabels | a pod that is bound gets its node's zone and region as labels |

What depends on classes only is in `bayplan.api.admission`; this module finds them in the store.
"""

from __future__ import annotations

from typing import Final

from bayplan.api.admission import (
    AdmissionError,
    add_default_tolerations,
    apply_runtime_class,
    default_priority_class,
    default_storage_class,
    give_defaults,
    merge_label_keys,
    prioritize,
    prioritize_group,
    set_storage_class,
)
from bayplan.api.meta import Content
from bayplan.api.pod_defaults import amounts, pod_amounts
from bayplan.api.quantity import NANO
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.documents import DocumentStore
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.quotas import limit_problem
from bayplan.embedded.server.services import ServiceNumbers
from bayplan.embedded.server.statuses import FieldProblem

TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_GROUPS: Final = {kinds.POD_GROUPS: "pod group", kinds.COMPOSITE_POD_GROUPS: "composite pod group"}
"""Kinds that have a priority, and how messages call them."""
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"


def _allocated(claim: Content) -> list[Content]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


class Admission:
    """Admits objects into a store."""

    def __init__(self, store: DocumentStore, gates: frozenset[str]) -> None:
        self._store, self._gates = store, gates
        self._services = ServiceNumbers(store)

    def check_resize(self, pod: Content) -> None:
        """Rejects more than the node of the pod has."""
        # podresize/admission.go: validatePodResize
        name = pod["spec"].get("nodeName")
        node = self._store.find(kinds.NODES, name) if name else None
        if not name:
            return
        if node is None:
            raise statuses.forbidden(kinds.PODS, pod["metadata"]["name"], f'node "{name}" not found')
        allocatable = amounts((node.parse().get("status") or {}).get("allocatable"))
        wanted = pod_amounts(pod["spec"], "requests", with_overhead=True)
        problems = [
            f"{one}, requested: {wanted[one] // unit}, allocatable: {allocatable.get(one, 0) // unit}"
            for one, unit in (("cpu", NANO // 1000), ("memory", NANO))
            if wanted.get(one, 0) > allocatable.get(one, 0)
        ]
        if problems:
            why = f"node didn't have enough allocatable resources: {'; '.join(problems)}"
            raise statuses.forbidden(kinds.PODS, pod["metadata"]["name"], why)

    def admit_namespace(self, resource: Resource, name: str, namespace: str) -> None:
        """Rejects objects for namespaces that do not exist, or are being deleted."""
        document = self._store.find(kinds.NAMESPACES, namespace)
        if document is None:
            raise statuses.not_found(kinds.NAMESPACES, namespace)
        if b'"deletionTimestamp"' in document.body and "deletionTimestamp" in document.parse()["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise statuses.forbidden(resource, name, why, [cause])

    def admit(self, resource: Resource, content: Content) -> None:
        """Completes a new object."""
        if resource == kinds.PODS:
            self._admit_pod(content)
        elif resource in _GROUPS:
            self._admit_group(resource, content)
        elif resource == kinds.PERSISTENT_VOLUME_CLAIMS:
            classes = (document.parse() for document in self._store.table(kinds.STORAGE_CLASSES))
            set_storage_class(content, default_storage_class(classes))

    def allocate(self, resource: Resource, content: Content, old: Content | None = None) -> None:
        """Allocates the address and node ports of a service. They are taken once it is stored, so this comes
        last."""
        if resource == kinds.SERVICES:
            self._services.allocate(content, old)

    def device_problems(self, resource: Resource, content: Content) -> list[FieldProblem]:
        """Admin access to devices is allowed only in namespaces with a label for it."""
        if resource not in (kinds.RESOURCE_CLAIMS, kinds.RESOURCE_CLAIM_TEMPLATES):
            return []
        spec = content.get("spec") or {}
        if resource == kinds.RESOURCE_CLAIM_TEMPLATES:
            spec = spec.get("spec") or {}
        requests = (spec.get("devices") or {}).get("requests") or ()
        wanted = [bool((request.get("exactly") or {}).get("adminAccess")) for request in requests]
        return self._admin_problems(content, wanted, "spec.devices.requests")

    def device_status_problems(self, content: Content, old: Content) -> list[FieldProblem]:
        """The same for an allocation that gains admin access."""
        wanted, known = (
            [bool(result.get("adminAccess")) for result in _allocated(claim)] for claim in (content, old)
        )
        if any(known):
            return []
        return self._admin_problems(content, wanted, "status.allocation.devices.results")

    def _admin_problems(self, content: Content, wanted: list[bool], path: str) -> list[FieldProblem]:
        if not any(wanted):
            return []
        namespace = self._store.find(kinds.NAMESPACES, content["metadata"]["namespace"])
        labels = {} if namespace is None else namespace.parse()["metadata"].get("labels") or {}
        if labels.get(ADMIN_ACCESS_LABEL) == "true":
            return []
        label = f"`{ADMIN_ACCESS_LABEL}: true` label"
        why = f"admin access to devices requires the {label} on the containing namespace"
        return [statuses.forbidden_field(f"{path}[{wanted.index(True)}].adminAccess", why)]

    def check_limits(self, resource: Resource, content: Content) -> None:
        """Rejects pods and claims that request less or more than their namespace allows."""
        if resource in (kinds.PODS, kinds.PERSISTENT_VOLUME_CLAIMS):
            for limit_range in self._limit_ranges(content):
                if why := limit_problem(limit_range, resource, content):
                    raise statuses.forbidden(resource, content["metadata"].get("name", ""), why)

    def _limit_ranges(self, content: Content) -> list[Content]:
        found = self._store.table(kinds.LIMIT_RANGES).of_namespace(content["metadata"]["namespace"])
        return [document.parse() for document in found]

    def admit_update(self, resource: Resource, content: Content) -> None:
        """Completes a new version of an object."""
        if resource == kinds.PODS:
            add_default_tolerations(content["spec"])

    def _admit_group(self, resource: Resource, content: Content) -> None:
        """Sets the priority of a new group from its class."""
        with_policy = "PodGroupPreemptionPolicy" in self._gates
        try:
            prioritize_group(
                content["spec"],
                self._priority_class,
                self._default_priority_class(),
                what=_GROUPS[resource],
                with_policy=with_policy,
            )
        except AdmissionError as error:
            raise statuses.forbidden(resource, content["metadata"].get("name", ""), str(error)) from None

    def _default_priority_class(self) -> Content | None:
        return default_priority_class(
            document.parse()
            for document in self._store.table(kinds.PRIORITY_CLASSES)
            if b'"globalDefault":true' in document.body
        )

    def _admit_pod(self, content: Content) -> None:
        spec = content["spec"]
        for limit_range in self._limit_ranges(content):
            give_defaults(limit_range, content)
        try:
            prioritize(spec, self._priority_class, self._default_priority_class(), strict=True)
            add_default_tolerations(spec)
            name = spec.get("runtimeClassName")
            apply_runtime_class(spec, self._find(kinds.RUNTIME_CLASSES, name) if name else None)
        except AdmissionError as error:
            raise statuses.forbidden(kinds.PODS, content["metadata"].get("name", ""), str(error)) from None
        merge_label_keys(spec, content["metadata"].get("labels") or {})

    def _priority_class(self, name: str) -> Content | None:
        return self._find(kinds.PRIORITY_CLASSES, name)

    def _find(self, resource: Resource, key: str) -> Content | None:
        document = self._store.find(resource, key)
        return None if document is None else document.parse()

    def topology_labels(self, node_name: str) -> dict[str, str]:
        """The labels that a pod gets from the node it is bound to."""
        document = self._store.find(kinds.NODES, node_name)
        if document is None:
            return {}
        labels = document.facts(kinds.NODES).labels
        return {name: labels[name] for name in TOPOLOGY_LABELS if name in labels}
