"""The built-in resources of the embedded server, as a table. `catalog.py` has those that are served now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bayplan.api.kinds import KINDS

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""The verbs of an ordinary resource, as discovery lists them."""
STATUS_VERBS: Final = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A part of an object, or an action on it, with its own path."""

    name: str
    kind: str = ""
    """The kind of requests and responses; empty for that of the object."""
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] = STATUS_VERBS
    unavailable: str = ""
    """Why it is not available here, for those that a real cluster has; empty for what is served."""


STATUS: Final = Subresource("status")
SCALE: Final = Subresource("scale", kind="Scale", group="autoscaling", version="v1")
BINDING: Final = Subresource("binding", kind="Binding", verbs=("create",))
EVICTION: Final = Subresource("eviction", kind="Eviction", group="policy", version="v1", verbs=("create",))
FINALIZE: Final = Subresource("finalize", verbs=("update",))
APPROVAL: Final = Subresource("approval")
RESIZE: Final = Subresource("resize")

_SIMULATED: Final = "bayplan's containers are simulated:"
_PROXY_VERBS: Final = ("create", "delete", "get", "patch", "update")
_OF_CONTAINERS: Final = tuple(
    Subresource(name, kind=kind, verbs=verbs, unavailable=f"{_SIMULATED} {why}")
    for name, kind, verbs, why in (
        ("attach", "PodAttachOptions", ("create", "get"), "there is no process to attach to"),
        ("ephemeralcontainers", "Pod", STATUS_VERBS, "none can be added to a pod"),
        ("exec", "PodExecOptions", ("create", "get"), "no command can be run in them"),
        ("log", "Pod", ("get",), "they write no logs"),
        ("portforward", "PodPortForwardOptions", ("create", "get"), "they listen on no port"),
        ("proxy", "PodProxyOptions", _PROXY_VERBS, "they listen on no port"),
    )
)
_NODE_PROXY: Final = Subresource(
    "proxy",
    "NodeProxyOptions",
    verbs=_PROXY_VERBS,
    unavailable="bayplan's nodes are simulated: there is no kubelet",
)
_SERVICE_PROXY: Final = Subresource(
    "proxy",
    "ServiceProxyOptions",
    verbs=_PROXY_VERBS,
    unavailable=f"{_SIMULATED} nothing answers for a service",
)
_ACCOUNT_TOKEN: Final = Subresource(
    "token", "TokenRequest", group="authentication.k8s.io", version="v1", verbs=("create",),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object as the API serves it. Equal if group, version and plural are."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = field(default=True, compare=False)
    short_names: tuple[str, ...] = field(default=(), compare=False)
    categories: tuple[str, ...] = field(default=(), compare=False)
    subresources: tuple[Subresource, ...] = field(default=(), compare=False)
    verbs: tuple[str, ...] = field(default=ALL_VERBS, compare=False)
    selectable: tuple[str, ...] = field(default=(), compare=False)
    """Fields that a field selector may name, besides metadata.name and metadata.namespace."""
    counts_generations: bool = field(default=False, compare=False)
    """Whether metadata.generation counts the changes of the spec."""
    stored_as: Resource | None = field(default=None, compare=False)
    """The resource whose objects these are in another form; None for those that are stored."""
    singular_name: str = field(default="", compare=False)
    list_kind_name: str = field(default="", compare=False)
    schema: Mapping[str, Any] | None = field(default=None, compare=False)
    """A custom resource's own schema (OpenAPI v3); None for built-in kinds."""
    defaults_since: int = field(default=0, compare=False)
    """The version of the store since which its schema has these defaults: older objects may lack them."""
    columns: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)
    """A custom resource's additionalPrinterColumns."""
    release: str = field(default="", compare=False)
    """The release of Kubernetes whose fields its objects have, as `1.36`; empty for the newest."""
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What this release fills in beyond the first one (`ServerRules.defaults`)."""
    gate: str = field(default="", compare=False)
    """The feature gate that must be on for it to be served; empty: it is always served."""
    caution: str = field(default="", compare=False)
    """A warning when one is created: what users may expect but does not happen here."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path under which the group and version are served."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def full_name(self) -> str:
        """`pods`, `deployments.apps`: how messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def full_kind(self) -> str:
        """`Pod`, `Deployment.apps`: how messages about invalid objects name it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def singular(self) -> str:
        return self.singular_name or self.kind.lower()

    @property
    def list_kind(self) -> str:
        return self.list_kind_name or f"{self.kind}List"

    @property
    def storage(self) -> Resource:
        return self.stored_as or self

    @property
    def stored_fields(self) -> tuple[str, ...]:
        """All fields by which objects can be selected, in their stored form."""
        own = self.selectable if self.schema is not None else self.storage.selectable
        return (*own, "metadata.name", "metadata.namespace")

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)

    def key(self, name: str, namespace: str = "") -> str:
        """The key of an object in the store."""
        return f"{namespace}/{name}" if self.namespaced else name


def _scope(name: str) -> tuple[str, str, str, str, bool]:
    """Plural, kind, group, version and scope of a kind of the scheduler, from its table of kinds."""
    kind = KINDS[name]
    return kind.plural, kind.name, kind.group, kind.version, kind.namespaced


def _with_status(*more: Subresource) -> tuple[Subresource, ...]:
    return (*more, STATUS)


_EVENT_FIELDS: Final = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_POD_FIELDS: Final = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)
_NAMESPACE_VERBS: Final = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_ALL: Final = ("all",)
_STORAGE: Final = "storage.k8s.io"
_DEVICES: Final = "resource.k8s.io"

PODS: Final = Resource(
    *_scope("Pod"), short_names=("po",), categories=_ALL, selectable=_POD_FIELDS, counts_generations=True,
    subresources=_with_status(BINDING, EVICTION, RESIZE, *_OF_CONTAINERS),
)  # fmt: skip
NODES: Final = Resource(
    *_scope("Node"), short_names=("no",), selectable=("spec.unschedulable",),
    subresources=_with_status(_NODE_PROXY),
)  # fmt: skip
NAMESPACES: Final = Resource(
    *_scope("Namespace"), short_names=("ns",), selectable=("status.phase",),
    subresources=_with_status(FINALIZE), verbs=_NAMESPACE_VERBS,
)  # fmt: skip
EVENTS: Final = Resource("events", "Event", short_names=("ev",), selectable=_EVENT_FIELDS)
NEW_EVENTS: Final = Resource(
    "events", "Event", group="events.k8s.io", short_names=("ev",), stored_as=EVENTS,
    selectable=tuple(name.replace("involvedObject", "regarding") for name in _EVENT_FIELDS),
)  # fmt: skip
CONFIG_MAPS: Final = Resource("configmaps", "ConfigMap", short_names=("cm",))
SECRETS: Final = Resource("secrets", "Secret", selectable=("type",))
SERVICE_ACCOUNTS: Final = Resource(
    "serviceaccounts", "ServiceAccount", short_names=("sa",), subresources=(_ACCOUNT_TOKEN,)
)
SERVICES: Final = Resource(
    *_scope("Service"), short_names=("svc",), categories=_ALL, subresources=_with_status(_SERVICE_PROXY),
    selectable=("spec.clusterIP", "spec.type"),
)  # fmt: skip
REPLICATION_CONTROLLERS: Final = Resource(
    *_scope("ReplicationController"), short_names=("rc",), categories=_ALL,
    subresources=_with_status(SCALE), selectable=("status.replicas",), counts_generations=True,
)  # fmt: skip
PERSISTENT_VOLUMES: Final = Resource(
    *_scope("PersistentVolume"), short_names=("pv",),
    subresources=_with_status(),
)  # fmt: skip
PERSISTENT_VOLUME_CLAIMS: Final = Resource(
    *_scope("PersistentVolumeClaim"), short_names=("pvc",), subresources=_with_status()
)
REPLICA_SETS: Final = Resource(
    *_scope("ReplicaSet"), short_names=("rs",), categories=_ALL,
    subresources=_with_status(SCALE), counts_generations=True,
)  # fmt: skip
DEPLOYMENTS: Final = Resource(
    "deployments", "Deployment", group="apps", short_names=("deploy",), categories=_ALL,
    subresources=_with_status(SCALE), counts_generations=True,
)  # fmt: skip
STATEFUL_SETS: Final = Resource(
    *_scope("StatefulSet"), short_names=("sts",), categories=_ALL,
    subresources=_with_status(SCALE), counts_generations=True,
)  # fmt: skip
DAEMON_SETS: Final = Resource(
    "daemonsets", "DaemonSet", group="apps", short_names=("ds",), categories=_ALL,
    subresources=_with_status(), counts_generations=True,
)  # fmt: skip
CONTROLLER_REVISIONS: Final = Resource("controllerrevisions", "ControllerRevision", group="apps")
JOBS: Final = Resource(
    "jobs", "Job", group="batch", categories=_ALL, subresources=_with_status(),
    selectable=("status.successful",), counts_generations=True,
)  # fmt: skip
CRON_JOBS: Final = Resource(
    "cronjobs", "CronJob", group="batch", short_names=("cj",), categories=_ALL, counts_generations=True,
    subresources=_with_status(),
)  # fmt: skip
POD_DISRUPTION_BUDGETS: Final = Resource(
    *_scope("PodDisruptionBudget"), short_names=("pdb",),
    subresources=_with_status(), counts_generations=True,
)  # fmt: skip
PRIORITY_CLASSES: Final = Resource(
    *_scope("PriorityClass"), short_names=("pc",),
    counts_generations=True,
)  # fmt: skip
LEASES: Final = Resource(*_scope("Lease"))
STORAGE_CLASSES: Final = Resource(*_scope("StorageClass"), short_names=("sc",))
CSI_NODES: Final = Resource(*_scope("CSINode"))
CSI_DRIVERS: Final = Resource(*_scope("CSIDriver"))
CSI_STORAGE_CAPACITIES: Final = Resource(*_scope("CSIStorageCapacity"))
VOLUME_ATTACHMENTS: Final = Resource(*_scope("VolumeAttachment"), subresources=_with_status())
RESOURCE_CLAIMS: Final = Resource(
    "resourceclaims", "ResourceClaim", group=_DEVICES, subresources=_with_status()
)
RESOURCE_CLAIM_TEMPLATES: Final = Resource("resourceclaimtemplates", "ResourceClaimTemplate", group=_DEVICES)
RESOURCE_SLICES: Final = Resource(
    "resourceslices", "ResourceSlice", group=_DEVICES, namespaced=False,
    selectable=("spec.nodeName", "spec.driver"), counts_generations=True,
)  # fmt: skip
DEVICE_CLASSES: Final = Resource(
    "deviceclasses", "DeviceClass", group=_DEVICES, namespaced=False, counts_generations=True
)
DEVICE_TAINT_RULES: Final = Resource(
    "devicetaintrules", "DeviceTaintRule", group=_DEVICES, namespaced=False, counts_generations=True,
    subresources=_with_status(),
)  # fmt: skip
_SCHEDULING: Final = "scheduling.k8s.io"
_GROUPS_GATE: Final = "GenericWorkload"
POD_GROUPS: Final = Resource(
    "podgroups", "PodGroup", _SCHEDULING, "v1beta1", subresources=_with_status(), gate=_GROUPS_GATE
)
WORKLOADS: Final = Resource("workloads", "Workload", _SCHEDULING, "v1beta1", gate=_GROUPS_GATE)
COMPOSITE_POD_GROUPS: Final = Resource(
    "compositepodgroups", "CompositePodGroup", _SCHEDULING, "v1alpha3", subresources=_with_status(),
    gate="CompositePodGroup",
)  # fmt: skip
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "customresourcedefinitions", "CustomResourceDefinition", group="apiextensions.k8s.io", namespaced=False,
    short_names=("crd", "crds"), categories=("api-extensions",), subresources=_with_status(),
    counts_generations=True,
)  # fmt: skip

LIMIT_RANGES: Final = Resource("limitranges", "LimitRange", short_names=("limits",))
RESOURCE_QUOTAS: Final = Resource(
    "resourcequotas", "ResourceQuota", short_names=("quota",), subresources=_with_status()
)
RUNTIME_CLASSES: Final = Resource("runtimeclasses", "RuntimeClass", group="node.k8s.io", namespaced=False)
AUTOSCALERS: Final = Resource(
    "horizontalpodautoscalers", "HorizontalPodAutoscaler", group="autoscaling", version="v2",
    short_names=("hpa",), categories=_ALL, subresources=_with_status(),
    caution="no autoscaler runs here: this object is stored, and nothing is scaled",
)  # fmt: skip
OLD_AUTOSCALERS: Final = Resource(
    "horizontalpodautoscalers", "HorizontalPodAutoscaler", group="autoscaling", short_names=("hpa",),
    categories=_ALL, subresources=_with_status(), stored_as=AUTOSCALERS, caution=AUTOSCALERS.caution,
)  # fmt: skip
ENDPOINTS: Final = Resource("endpoints", "Endpoints", short_names=("ep",), singular_name="endpoints")
ENDPOINT_SLICES: Final = Resource(
    "endpointslices", "EndpointSlice", group="discovery.k8s.io", counts_generations=True
)

ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
_NETWORKING: Final = "networking.k8s.io"
RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_FLOWS: Final = "flowcontrol.apiserver.k8s.io"
_WEBHOOKS_CAUTION: Final = "webhooks are stored here, and never called"
_POLICIES_CAUTION: Final = "admission policies are stored here, and not evaluated"
_FLOWS_CAUTION: Final = "requests are not prioritised here: this object is stored only"

INGRESSES: Final = Resource(
    "ingresses", "Ingress", group=_NETWORKING, short_names=("ing",), counts_generations=True,
    subresources=_with_status(),
)  # fmt: skip

_ROLES_CAUTION: Final = (
    "every user may do everything here: start the cluster with --authorization-mode RBAC to evaluate roles"
)
"""Omitted with RBAC (`http/writing.py`)."""
ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS = (
    Resource(f"{kind.lower()}s", kind, RBAC_GROUP, namespaced=namespaced, caution=_ROLES_CAUTION)
    for kind, namespaced in (
        ("Role", True), ("RoleBinding", True), ("ClusterRole", False), ("ClusterRoleBinding", False)
    )
)  # fmt: skip

NETWORK_POLICIES: Final = Resource(
    "networkpolicies", "NetworkPolicy", group=_NETWORKING, short_names=("netpol",), counts_generations=True
)

STORED_ONLY: Final = (
    ENDPOINTS,
    Resource("podtemplates", "PodTemplate", counts_generations=True),
    AUTOSCALERS,
    OLD_AUTOSCALERS,
    INGRESSES,
    Resource(
        "ingressclasses", "IngressClass", group=_NETWORKING, namespaced=False, counts_generations=True
    ),
    NETWORK_POLICIES,
    Resource(
        "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", group=ADMISSION_GROUP,
        namespaced=False, categories=("api-extensions",), counts_generations=True, caution=_WEBHOOKS_CAUTION,
    ),
    Resource(
        "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", group=ADMISSION_GROUP,
        namespaced=False, categories=("api-extensions",), counts_generations=True, caution=_WEBHOOKS_CAUTION,
    ),
    Resource(
        "validatingadmissionpolicies", "ValidatingAdmissionPolicy", group=ADMISSION_GROUP, namespaced=False,
        categories=("api-extensions",), counts_generations=True, subresources=_with_status(),
        caution=_POLICIES_CAUTION,
    ),
    Resource(
        "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", group=ADMISSION_GROUP,
        namespaced=False, categories=("api-extensions",), counts_generations=True, caution=_POLICIES_CAUTION,
    ),
    Resource(
        "mutatingadmissionpolicies", "MutatingAdmissionPolicy", group=ADMISSION_GROUP, namespaced=False,
        categories=("api-extensions",), counts_generations=True, caution=_POLICIES_CAUTION,
    ),
    Resource(
        "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", group=ADMISSION_GROUP,
        namespaced=False, categories=("api-extensions",), counts_generations=True, caution=_POLICIES_CAUTION,
    ),
    Resource(
        "volumeattributesclasses", "VolumeAttributesClass", group=_STORAGE, namespaced=False,
        short_names=("vac",),
    ),
    Resource(
        "certificatesigningrequests", "CertificateSigningRequest", group="certificates.k8s.io",
        namespaced=False, short_names=("csr",), selectable=("spec.signerName",),
        subresources=_with_status(APPROVAL), caution="certificates are not signed here",
    ),
    Resource(
        "apiservices", "APIService", group="apiregistration.k8s.io", namespaced=False,
        categories=("api-extensions",), subresources=_with_status(),
        caution="requests are not passed on to other API servers: this APIService is stored only",
    ),
    Resource(
        "flowschemas", "FlowSchema", group=_FLOWS, namespaced=False, subresources=_with_status(),
        counts_generations=True, caution=_FLOWS_CAUTION,
    ),
    Resource(
        "prioritylevelconfigurations", "PriorityLevelConfiguration", group=_FLOWS, namespaced=False,
        subresources=_with_status(), counts_generations=True, caution=_FLOWS_CAUTION,
    ),
)  # fmt: skip
"""Kinds that nothing here acts on, so that manifests and Helm charts apply as a whole."""

BUILT_IN: Final = (
    CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS,
    REPLICATION_CONTROLLERS, SECRETS, SERVICE_ACCOUNTS, SERVICES,
    CONTROLLER_REVISIONS, DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS,
    ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS,
    NEW_EVENTS, CRON_JOBS, JOBS, POD_DISRUPTION_BUDGETS, ENDPOINT_SLICES,
    CSI_DRIVERS, CSI_NODES, CSI_STORAGE_CAPACITIES, STORAGE_CLASSES, VOLUME_ATTACHMENTS,
    PRIORITY_CLASSES, LEASES, DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES,
    CUSTOM_RESOURCE_DEFINITIONS, LIMIT_RANGES, RESOURCE_QUOTAS, RUNTIME_CLASSES, *STORED_ONLY,
)  # fmt: skip
"""Of the first release, in the order in which discovery lists them."""
LATER: Final = (DEVICE_TAINT_RULES,)
"""Of later releases: each serves those that it names (`Release.new_kinds`)."""
GATED: Final = (
    POD_GROUPS,
    WORKLOADS,
    COMPOSITE_POD_GROUPS,
    *(replace(resource, version="v1alpha3", stored_as=resource) for resource in (POD_GROUPS, WORKLOADS)),
)
"""Of v1.37, behind feature gates."""
