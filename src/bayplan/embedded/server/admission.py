"""Admission: completes or rejects a new object, depending on other objects. Fields in, fields out.

| plugin | what it does here |
|---|---|
| NamespaceLifecycle | objects are created only in namespaces that exist and are not being deleted |
| LimitRanger | sets the default requests and limits of the namespace, and rejects pods outside its bounds |
| Priority | priority and preemption policy from the pod's class, or from the default class |
| DefaultTolerationSeconds | pods stay 300 s on a node that is not ready or unreachable |
| DefaultStorageClass | claims without a class get the default one |
| RuntimeClass | a pod gets the overhead, node selector and tolerations of its class |
| ResourceQuota | what exceeds a quota of the namespace is rejected; `quotas.py` counts |
| (admin access) | claims for devices in use need a label on their namespace |
| (service addresses) | a service gets an address that no other one has |
| PodTopologyLabels | a pod that is bound gets its node's zone and region as labels |

`bayplan.api.defaults` does the same for typed records that come from files.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from bayplan.api.defaults import PREEMPT_LOWER_PRIORITY, SYSTEM_PRIORITIES, TOLERATED_SECONDS
from bayplan.api.meta import Content
from bayplan.embedded.server import kinds, statuses
from bayplan.embedded.server.documents import Document, DocumentStore
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.pod_defaults import affinity_terms
from bayplan.embedded.server.quotas import amounts, give_defaults, limit_problem
from bayplan.embedded.server.statuses import FieldProblem, UnavailableError

_UNHEALTHY_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_BETA_DEFAULT_CLASS: Final = "storageclass.beta.kubernetes.io/is-default-class"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"


def _allocated(claim: Content) -> list[Content]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


class Admission:
    """Admits objects into a store."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self._addresses = ServiceAddresses(store)

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
            for limit_range in self._limit_ranges(content):
                give_defaults(limit_range, content)
            self._prioritize(content)
            _add_default_tolerations(content["spec"])
            self._apply_runtime_class(content)
            _merge_label_keys(content)
        elif resource == kinds.PERSISTENT_VOLUME_CLAIMS:
            self._set_storage_class(content)

    def allocate(self, resource: Resource, content: Content) -> None:
        """Allocates the address of a new service. It is taken once the service is stored, so this comes
        last."""
        if resource == kinds.SERVICES:
            self._allocate_address(content["spec"])

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
            _add_default_tolerations(content["spec"])

    def _prioritize(self, content: Content) -> None:
        """Sets the priority from the class; a priority in the spec must be the same."""
        spec, name = content["spec"], content["metadata"].get("name", "")
        class_name = spec.get("priorityClassName", "")
        policy = None
        if class_name in SYSTEM_PRIORITIES:
            priority = SYSTEM_PRIORITIES[class_name]
        elif class_name:
            document = self._store.find(kinds.PRIORITY_CLASSES, class_name)
            if document is None:
                why = f"no PriorityClass with name {class_name} was found"
                raise statuses.forbidden(kinds.PODS, name, why)
            found = document.parse()
            priority, policy = found.get("value", 0), found.get("preemptionPolicy")
        else:
            default = self._default_priority_class()
            priority = 0
            if default is not None:
                spec["priorityClassName"] = default["metadata"]["name"]
                priority, policy = default.get("value", 0), default.get("preemptionPolicy")
        stated = spec.get("priority")
        if stated is not None and stated != priority:
            why = f"the integer value of priority ({stated}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"  # noqa: E501
            raise statuses.forbidden(kinds.PODS, name, why)
        spec["priority"] = priority
        policy = policy or PREEMPT_LOWER_PRIORITY
        stated_policy = spec.get("preemptionPolicy")
        if stated_policy is not None and stated_policy != policy:
            why = f"the string value of PreemptionPolicy ({stated_policy}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"  # noqa: E501
            raise statuses.forbidden(kinds.PODS, name, why)
        spec["preemptionPolicy"] = policy

    def _apply_runtime_class(self, content: Content) -> None:
        """Applies overhead and scheduling of the pod's RuntimeClass."""
        spec, name = content["spec"], content["metadata"].get("name", "")
        found: Content = {}
        if class_name := spec.get("runtimeClassName"):
            document = self._store.find(kinds.RUNTIME_CLASSES, class_name)
            if document is None:
                why = f'pod rejected: RuntimeClass "{class_name}" not found'
                raise statuses.forbidden(kinds.PODS, name, why)
            found = document.parse()
        overhead = (found.get("overhead") or {}).get("podFixed") or {}
        if spec.get("overhead") and not overhead:
            why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise statuses.forbidden(kinds.PODS, name, why)
        if overhead:
            if spec.get("overhead") and amounts(spec["overhead"]) != amounts(overhead):
                why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
                raise statuses.forbidden(kinds.PODS, name, why)
            spec["overhead"] = overhead
        scheduling = found.get("scheduling") or {}
        for key, wanted in sorted((scheduling.get("nodeSelector") or {}).items()):
            given = spec.setdefault("nodeSelector", {}).setdefault(key, wanted)
            if given != wanted:
                why = (
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; "
                    f"pod.spec.nodeSelector[{key}] = {given}"
                )
                raise statuses.forbidden(kinds.PODS, name, why)
        tolerations = spec.get("tolerations") or []
        added = [each for each in scheduling.get("tolerations") or () if each not in tolerations]
        if added:
            spec["tolerations"] = [*tolerations, *added]

    def _default_priority_class(self) -> Content | None:
        marked = [
            content
            for document in self._store.table(kinds.PRIORITY_CLASSES)
            if b'"globalDefault":true' in document.body and (content := document.parse()).get("globalDefault")
        ]
        return min(marked, key=lambda content: content.get("value", 0), default=None)

    def _set_storage_class(self, content: Content) -> None:
        spec = content.setdefault("spec", {})
        annotations = content["metadata"].get("annotations") or {}
        if "storageClassName" in spec or _BETA_CLASS in annotations:
            return
        marked = []
        for document in self._store.table(kinds.STORAGE_CLASSES):
            meta = document.parse()["metadata"]
            notes = meta.get("annotations") or {}
            if "true" in (notes.get(_DEFAULT_CLASS), notes.get(_BETA_DEFAULT_CLASS)):
                marked.append(meta)
        if marked:
            # The newest; of several as old as each other the first by name, which is the order of the store.
            spec["storageClassName"] = max(marked, key=lambda meta: meta["creationTimestamp"])["name"]

    def _allocate_address(self, spec: dict[str, Any]) -> None:
        if spec.get("type") == "ExternalName":
            return
        if not spec.get("clusterIP"):
            spec["clusterIP"] = self._addresses.first_free()
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def topology_labels(self, node_name: str) -> dict[str, str]:
        """The labels that a pod gets from the node it is bound to."""
        document = self._store.find(kinds.NODES, node_name)
        if document is None:
            return {}
        labels = document.facts(kinds.NODES).labels
        return {name: labels[name] for name in TOPOLOGY_LABELS if name in labels}


def _add_default_tolerations(spec: dict[str, Any]) -> None:
    tolerations = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED_SECONDS}
        for key in _UNHEALTHY_TAINTS
        if not any(
            toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")
            for toleration in tolerations
        )
    ]
    if added:
        spec["tolerations"] = [*tolerations, *added]


def _merge_label_keys(content: Content) -> None:
    """(mis)matchLabelKeys become part of the selectors beside them."""
    spec = content["spec"]
    labels = content["metadata"].get("labels") or {}
    for term in (*(spec.get("topologySpreadConstraints") or ()), *affinity_terms(spec)):
        selector = term.get("labelSelector")
        if selector is None:
            continue
        for operator, field in (("In", "matchLabelKeys"), ("NotIn", "mismatchLabelKeys")):
            for key in term.get(field) or ():
                if key in labels:
                    requirement = {"key": key, "operator": operator, "values": [labels[key]]}
                    selector.setdefault("matchExpressions", []).append(requirement)


_NETWORK: Final = IPv4Network("10.96.0.0/12")
_FIRST: Final = int(_NETWORK.network_address) + 1
_LAST: Final = int(_NETWORK.broadcast_address) - 1


class ServiceAddresses:
    """Watches the services of a store, so that the next free address is found without reading all of them."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self._cursor = -1
        """Position in the history of services up to which it has been read."""
        self._of_service: dict[str, int] = {}
        self._taken: Counter[int] = Counter()
        self._lowest = _FIRST
        """All addresses below are taken."""

    def first_free(self) -> str:
        """The first free address. It stays free until a service with it is stored.

        Raises:
            UnavailableError: all are taken.
        """
        self._read_history()
        while self._taken[self._lowest]:
            self._lowest += 1
        if self._lowest > _LAST:
            message = "failed to allocate a serviceIP: range is full"
            raise UnavailableError(message, 500, reason="InternalError")
        return str(IPv4Address(self._lowest))

    def _read_history(self) -> None:
        table = self._store.table(kinds.SERVICES)
        entries = table.history.read(self._cursor) if self._cursor >= 0 else None
        if entries is None:
            self._of_service.clear()
            self._taken.clear()
            self._lowest = _FIRST
            for document in table:
                self._take(document)
            self._cursor = table.history.position_after(self._store.version)
            return
        for entry in entries:
            self._release(entry.document.key)
            if table.documents.get(entry.document.key) is not None:
                self._take(table.documents[entry.document.key])
        self._cursor += len(entries)

    def _take(self, document: Document) -> None:
        address = _number(document.parse().get("spec", {}).get("clusterIP"))
        if address is not None:
            self._of_service[document.key] = address
            self._taken[address] += 1

    def _release(self, key: str) -> None:
        address = self._of_service.pop(key, None)
        if address is not None:
            self._taken[address] -= 1
            if not self._taken[address]:
                del self._taken[address]
                self._lowest = min(self._lowest, address)


def _number(text: str | None) -> int | None:
    """An address of the network as a number; None for any other, and for none ("None")."""
    try:
        address = IPv4Address(text or "")
    except ValueError:
        return None
    return int(address) if address in _NETWORK else None
