"""Generated situations: a small cluster and a pod that often does not fit; and remedies, applied to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar

from msgspec.structs import replace

from bayplan.answers.explain.devices import ProvideDevices
from bayplan.answers.explain.remedies import (
    AddLabel,
    AddMatchingPod,
    AddResource,
    AllowPods,
    FreeClaim,
    FreeDisk,
    FreePort,
    MatchLabels,
    Remedy,
    RemoveFromDomain,
    SeparatePods,
    TolerateTaints,
)
from bayplan.answers.explain.volumes import (
    AddStorageCapacity,
    BindClaim,
    CreateVolume,
    MoveClaim,
    ProvideVolume,
    RaiseVolumeLimit,
)
from bayplan.api.devices import DeviceConstraint
from bayplan.api.meta import Object
from bayplan.api.node import Namespace, Node
from bayplan.api.node_selectors import NAME_FIELD
from bayplan.api.pod import GCEPersistentDiskVolumeSource, Pod, PodResourceClaim, Volume
from bayplan.api.quantity import resource_amount
from bayplan.api.selectors import Requirement
from bayplan.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from bayplan.testing.builders import (
    make_allocated_device,
    make_csi_capacity,
    make_csi_driver,
    make_csi_node,
    make_device,
    make_device_class,
    make_device_request,
    make_expression,
    make_namespace,
    make_node,
    make_node_affinity,
    make_node_term,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_pv,
    make_pvc,
    make_resource_claim,
    make_resource_slice,
    make_selector,
    make_spread,
    make_storage_class,
    make_toleration,
)

ZONE, RACK, HOST = "topology.kubernetes.io/zone", "rack", "kubernetes.io/hostname"
KEYS = (ZONE, RACK, HOST)
GPU = "example.com/gpu"
DRIVER = "csi.example.com"
BIG = 'device.attributes["gpu.example.com"].model == "big"'
BOARD = "gpu.example.com/board"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAINTS = ("a=1:NoSchedule", "b:NoExecute", "c=2:NoSchedule", "d:PreferNoSchedule")

T = TypeVar("T", bound=Object)


@dataclass(slots=True)
class Situation:
    """Objects, and the pod in question, which is not among them."""

    pod: Pod
    objects: list[Object]

    def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        return next(
            one
            for one in self.objects
            if isinstance(one, kind) and one.name == name and (not namespace or one.namespace == namespace)
        )

    def change(self, old: Object, new: Object | None) -> None:
        self.objects = [one for one in self.objects if one is not old] + ([] if new is None else [new])

    def remove_pod(self, key: str) -> None:
        self.objects = [one for one in self.objects if not (isinstance(one, Pod) and one.key == key)]

    def label_node(self, name: str, key: str, label: str | None) -> None:
        node = self.get(Node, name)
        labels = {one: value for one, value in node.labels.items() if one != key}
        if label is not None:
            labels[key] = label
        # The order of the nodes stays.
        place = self.objects.index(node)
        self.objects[place] = replace(node, metadata=replace(node.metadata, labels=labels))


# Generating


def situation(rng: Random) -> Situation:
    names = [f"n{i}" for i in range(rng.randint(1, 3))]
    objects: list[Object] = [make_namespace("default", labels={"team": rng.choice("ab")})]
    objects += [make_namespace("other", labels={"team": rng.choice("abc")})]
    objects += [_node(rng, name) for name in names]
    objects += [_pod_there(rng, f"r{i}", rng.choice(names)) for i in range(rng.randint(0, 5))]
    if rng.random() < 0.3:
        objects += [_nominated(rng, f"m{i}", rng.choice(names)) for i in range(rng.randint(1, 2))]
    options: dict[str, Any] = {"labels": {"app": rng.choice(("web", "db"))}}
    aspects = rng.sample(ASPECTS, rng.choice((1, 1, 2, 3)))
    if _tolerates_all(rng, aspects):
        options["tolerations"] = [make_toleration()]
    for aspect in aspects:
        aspect(rng, options, objects, names)
    return Situation(make_pod("p", priority=5, **options), objects)


def _tolerates_all(rng: Random, aspects: Sequence[Callable[..., None]]) -> bool:
    return _taints not in aspects or rng.random() < 0.3


def _maybe(rng: Random, part: float = 0.5) -> bool:
    return rng.random() < part


def _node(rng: Random, name: str) -> Node:
    labels = {HOST: name}
    for key, values in ((ZONE, "abc"), (RACK, "12"), ("disk", ("ssd", "hdd")), ("cores", ("4", "8", "x"))):
        if _maybe(rng, 0.7):
            labels[key] = rng.choice(values)
    taints = [taint for taint in TAINTS if _maybe(rng, 0.25)]
    gpus = rng.choice((None, None, 0, 1, 2))
    node = make_node(
        name,
        cpu=str(rng.randint(1, 4)),
        memory=f"{rng.randint(1, 8)}Gi",
        pods=rng.choice((0, 1, 2, *(110,) * 20)),
        resources={} if gpus is None else {GPU: gpus},
        labels=labels,
        taints=taints,
    )
    if gpus == 0:
        node = replace(node, status=replace(node.status, capacity={GPU: 2}))
    return node


def _terms(rng: Random, key: str = "") -> Any:
    selector = make_selector({"team": rng.choice("abcd")}) if _maybe(rng, 0.3) else None
    namespaces = rng.choice(((), (), ("other",), ("default", "other")))
    return make_pod_term(
        key or rng.choice(KEYS),
        {"app": rng.choice(("web", "db"))},
        namespaces=namespaces,
        namespace_selector=selector,
    )


def _pod_there(rng: Random, name: str, node: str) -> Pod:
    anti = make_pod_affinity(anti_required=[_terms(rng)]) if _maybe(rng, 0.2) else None
    return make_pod(
        name,
        namespace=rng.choice(("default", "default", "other")),
        node=node,
        cpu=rng.choice((None, "500m", "1")),
        memory=rng.choice((None, "1Gi")),
        labels={"app": rng.choice(("web", "db"))},
        host_ports=[80] if _maybe(rng, 0.2) else [],
        priority=rng.choice((0, 9)),
        phase=rng.choice(("Running", "Pending")),
        deleted=NOW if _maybe(rng, 0.15) else None,
        volumes=[DISK] if _maybe(rng, 0.1) else [],
        claims=["shared"] if _maybe(rng, 0.1) else [],
        affinity=anti,
    )


DISK = Volume(name="d", gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name="pd"))


def _nominated(rng: Random, name: str, node: str) -> Pod:
    anti = make_pod_affinity(anti_required=[_terms(rng)]) if _maybe(rng, 0.2) else None
    return make_pod(
        name,
        nominated_node=node,
        cpu=rng.choice(("1", "2", "3")),
        labels={"app": rng.choice(("web", "db"))},
        host_ports=[80] if _maybe(rng, 0.3) else [],
        priority=rng.choice((0, 5, 9)),
        affinity=anti,
    )


def _resources(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    options["cpu"] = rng.choice(("1", "2500m", "4", "9"))
    options["memory"] = rng.choice(("1Gi", "5Gi", "20Gi"))
    if _maybe(rng, 0.4):
        options["requests"] = {GPU: rng.randint(1, 3)}


def _taints(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    if _maybe(rng):
        options.setdefault("tolerations", [make_toleration("a", "1", "NoSchedule")])


EXPRESSIONS = (
    lambda rng: make_expression("disk", "In", *rng.sample(("ssd", "nvme", "hdd"), rng.randint(1, 2))),
    lambda rng: make_expression("disk", "NotIn", rng.choice(("ssd", "hdd"))),
    lambda rng: make_expression(ZONE, "In", rng.choice("abc")),
    lambda rng: make_expression("cores", "Gt", rng.choice("357")),
    lambda rng: make_expression("cores", "Lt", rng.choice("359")),
    lambda rng: make_expression(rng.choice((RACK, "fast")), rng.choice(("Exists", "DoesNotExist"))),
)


def _node_affinity(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    if _maybe(rng):
        options["node_selector"] = {"disk": rng.choice(("ssd", "nvme"))}
    terms = []
    for _ in range(rng.randint(0, 3)):
        fields = [make_expression(NAME_FIELD, "NotIn", rng.choice(names))] if _maybe(rng, 0.2) else []
        chosen = [rng.choice(EXPRESSIONS)(rng) for _ in range(rng.randint(1, 3))]
        terms.append(make_node_term(*chosen, fields=fields))
    if terms:
        _add_affinity(options, make_node_affinity(*terms))


def _add_affinity(options: dict[str, Any], more: Any) -> None:
    old = options.get("affinity")
    if old is not None:
        parts = {
            name: getattr(more, name) or getattr(old, name)
            for name in ("node_affinity", "pod_affinity", "pod_anti_affinity")
        }
        more = replace(old, **parts)
    options["affinity"] = more


def _affinity(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    terms = [_terms(rng)]
    if _maybe(rng, 0.3):
        terms.append(make_pod_term(rng.choice(KEYS), {"app": rng.choice(("web", "db"))}))
    _add_affinity(options, make_pod_affinity(required=terms))


def _anti_affinity(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    terms = [_terms(rng) for _ in range(rng.choice((1, 1, 2)))]
    _add_affinity(options, make_pod_affinity(anti_required=terms))


def _spreading(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    options["spread"] = [
        make_spread(
            rng.choice(KEYS),
            {"app": rng.choice(("web", "db"))},
            max_skew=rng.choice((1, 1, 2)),
            min_domains=rng.choice((None, None, 3)),
            node_taints_policy=rng.choice((None, "Honor")),
        )
        for _ in range(rng.choice((1, 1, 2)))
    ]


def _ports(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    options["host_ports"] = rng.choice(([80], [80, 81]))


def _disk(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    options.setdefault("volumes", []).append(DISK)


def _shared_claim(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    claim = make_pvc("shared", volume="pv-shared", access_modes=["ReadWriteOncePod"])
    objects += [claim, make_pv("pv-shared", claim=claim)]
    options.setdefault("claims", []).append("shared")


def _bound_claim(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    claim = make_pvc("bound", volume="pv-bound")
    objects.append(claim)
    if _maybe(rng, 0.8):
        reach = {ZONE: rng.sample("abc", rng.randint(1, 2))} if _maybe(rng, 0.6) else None
        labels = {ZONE: rng.choice("abc")} if _maybe(rng, 0.4) else None
        objects.append(make_pv("pv-bound", claim=claim, on_nodes_with=reach, labels=labels, driver=DRIVER))
    objects += [make_csi_node(name, {DRIVER: rng.choice((0, 1, None))}) for name in names if _maybe(rng)]
    options.setdefault("claims", []).append("bound")


def _delayed_claim(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    kind = rng.choice(("local", "topology", "capacity", "immediate"))
    selected = rng.choice([*names, None, None, None, None])
    objects.append(make_pvc("late", storage_class="sc", storage="5Gi", selected_node=selected))
    options.setdefault("claims", []).append("late")
    if kind == "local":
        objects.append(make_storage_class("sc", provisioner="kubernetes.io/no-provisioner"))
        objects += [
            make_pv(
                f"pv{i}",
                capacity=rng.choice(("1Gi", "5Gi")),
                storage_class="sc",
                access_modes=rng.choice((["ReadWriteOnce"], ["ReadOnlyMany"])),
                claim=rng.choice((None, None, make_pvc("someone"), make_pvc("late"))),
                on_nodes_with=rng.choice((None, {ZONE: [rng.choice("abc")]})),
                phase=rng.choice(("Available", "Available", "Released")),
            )
            for i in range(rng.randint(0, 3))
        ]
    elif kind == "topology":
        allowed = [{ZONE: [rng.choice("abc")]}, {RACK: ["1"], ZONE: ["a", "b"]}]
        objects.append(make_storage_class("sc", allowed=allowed[: rng.randint(1, 2)]))
    elif kind == "capacity":
        objects += [
            make_storage_class("sc", provisioner=DRIVER),
            make_csi_driver(DRIVER, storage_capacity=True),
        ]
        for i in range(rng.randint(0, 2)):
            where = {ZONE: rng.choice("abc")}
            size = rng.choice(("1Gi", "6Gi"))
            objects.append(make_csi_capacity(f"cap{i}", "sc", capacity=size, on_nodes_with=where))
    elif _maybe(rng):
        objects.append(make_storage_class("sc", wait_for_consumer=False))


def _devices(rng: Random, options: dict[str, Any], objects: list[Object], names: list[str]) -> None:
    objects.append(make_device_class("gpu"))
    for name in names:
        devices = [
            make_device(f"gpu-{i}", {"model": rng.choice(("big", "small")), "board": rng.choice("xy")})
            for i in range(rng.randint(0, 3))
        ]
        if devices:
            objects.append(make_resource_slice(f"slice-{name}", *devices, node=name))
        taken = [make_allocated_device(device.name, name) for device in devices if _maybe(rng, 0.2)]
        if taken:
            objects.append(make_resource_claim(f"held-{name}", allocated=taken))
    selectors = [BIG] if _maybe(rng) else []
    requests = [
        make_device_request(f"q{i}", "gpu", *selectors, count=rng.randint(1, 3))
        for i in range(rng.choice((1, 1, 2)))
    ]
    constraints = [DeviceConstraint(match_attribute=BOARD)] if _maybe(rng, 0.4) else []
    objects.append(make_resource_claim("devices", *requests, constraints=constraints))
    options["resource_claims"] = (PodResourceClaim(name="gpu", resource_claim_name="devices"),)


ASPECTS = (
    _resources,
    _taints,
    _node_affinity,
    _affinity,
    _anti_affinity,
    _spreading,
    _ports,
    _disk,
    _shared_claim,
    _bound_claim,
    _delayed_claim,
    _devices,
)


# Applying remedies


def apply(remedies: Iterable[Remedy], node: str, situation: Situation, rng: Random) -> Situation:
    """The situation after all of these remedies; of alternatives, any one."""
    changed = Situation(situation.pod, list(situation.objects))
    # Labels first: other remedies are about the node's domain.
    for remedy in sorted(remedies, key=lambda one: not isinstance(one, (MatchLabels, AddLabel))):
        _apply(remedy, node, changed, rng)
    return changed


def _apply(remedy: Remedy, node: str, found: Situation, rng: Random) -> None:
    match remedy:
        case MatchLabels():
            place = rng.randrange(len(remedy.alternatives))
            for key, label in remedy.changes[place]:
                found.label_node(node, key, label)
            for requirement in remedy.alternatives[place]:
                if requirement.key == NAME_FIELD:
                    _drop_field(found, requirement)
        case AddLabel():
            found.label_node(node, remedy.key, "new")
        case AddResource():
            _add_resource(found, node, remedy.resource, remedy.missing)
        case AllowPods():
            _add_resource(found, node, "pods", remedy.pods + 1 - remedy.allowed)
        case TolerateTaints():
            more = tuple(make_toleration(one.key, one.value, one.effect) for one in remedy.taints)
            spec = found.pod.spec
            found.pod = replace(found.pod, spec=replace(spec, tolerations=(*spec.tolerations, *more)))
        case FreePort() | FreeDisk() | FreeClaim():
            found.remove_pod(remedy.pod.pod)
        case SeparatePods():
            for pod, _ in remedy.pods:
                found.remove_pod(pod.pod)
        case RemoveFromDomain():
            domain = found.get(Node, node).labels[remedy.topology_key]
            pods = [pod.pod for pod, where in remedy.pods if where == domain]
            for key in rng.sample(pods, remedy.excess(domain)):
                found.remove_pod(key)
        case AddMatchingPod():
            _add_pod(found, remedy, node)
        case ProvideDevices():
            attributes = {"model": "big", "board": "new"}
            devices = [make_device(f"new-{i}", attributes) for i in range(remedy.missing)]
            pool = f"new-{remedy.request}"
            found.objects.append(make_resource_slice(pool, *devices, pool=pool, node=node))
        case _:
            _apply_volume(remedy, node, found)


def _drop_field(found: Situation, requirement: Requirement) -> None:
    """The pod may run on the node of this name."""
    spec = found.pod.spec
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    required = spec.affinity.node_affinity.required
    assert required is not None
    terms = tuple(
        replace(
            term,
            match_fields=tuple(
                one for one in term.match_fields if frozenset(one.values) != requirement.values
            ),
        )
        for term in required.node_selector_terms
    )
    node_affinity = replace(
        spec.affinity.node_affinity, required=replace(required, node_selector_terms=terms)
    )
    affinity = replace(spec.affinity, node_affinity=node_affinity)
    found.pod = replace(found.pod, spec=replace(spec, affinity=affinity))


def _add_resource(found: Situation, name: str, resource: str, missing: int) -> None:
    assert missing > 0
    node = found.get(Node, name)
    amount = resource_amount(resource, node.status.allocatable.get(resource)) + missing
    text = f"{amount}m" if resource == "cpu" else str(amount)
    allocatable = {**node.status.allocatable, resource: text}
    found.change(node, replace(node, status=replace(node.status, allocatable=allocatable)))


def _add_pod(found: Situation, remedy: AddMatchingPod, node: str) -> None:
    labels: dict[str, str] = {}
    namespaces: set[str] | None = None
    for names, selector in remedy.parts:
        for requirement in selector.requirements:
            labels[requirement.key] = min(requirement.values)
        if names is not None:
            namespaces = set(names) if namespaces is None else namespaces & set(names)
    if namespaces is None:
        namespaces = {"default"}
    if not namespaces:
        # The terms select no namespace in common: one is labelled as their selectors require.
        namespaces = {"default"}
        namespace = found.get(Namespace, "default")
        team = {}
        for text in remedy.namespace_selectors:
            key, _, value = text.partition("=")
            team[key] = value
        labelled = {**namespace.labels, **team}
        found.change(namespace, replace(namespace, metadata=replace(namespace.metadata, labels=labelled)))
    found.objects.append(make_pod("friend", namespace=min(namespaces), node=node, labels=labels))


def _apply_volume(remedy: Remedy, node: str, found: Situation) -> None:
    match remedy:
        case BindClaim():
            claim = _claim(found, remedy.claim)
            found.change(claim, _bound(claim, "bound-by-controller"))
            found.objects.append(make_pv("bound-by-controller", claim=claim))
        case CreateVolume():
            found.objects.append(make_pv(remedy.volume, claim=_claim(found, remedy.claim)))
        case MoveClaim():
            claim = _claim(found, remedy.claim)
            found.change(claim, replace(claim, metadata=replace(claim.metadata, annotations={})))
        case AddStorageCapacity():
            where = {HOST: node}
            size = str(remedy.bytes)
            found.objects.append(
                make_csi_capacity("more", remedy.class_name, capacity=size, on_nodes_with=where)
            )
        case RaiseVolumeLimit():
            csi_node = found.get(CSINode, node)
            needed = remedy.attached + remedy.further
            found.change(csi_node, make_csi_node(node, {remedy.driver: needed}))
        case ProvideVolume() if remedy.volumes:
            # The nearest one is repaired, in nothing but what is said about it.
            nearest = remedy.volumes[0]
            volume = found.get(PersistentVolume, nearest.volume)
            found.change(volume, _repaired(volume, {field for field, _ in nearest.problems}, remedy))
        case ProvideVolume():
            found.objects.append(
                make_pv(
                    "provided",
                    capacity=str(remedy.bytes),
                    storage_class=remedy.class_name,
                    access_modes=remedy.access_modes,
                    phase="Available",
                )
            )
        case _:
            raise AssertionError(f"unknown remedy {remedy!r}")


def _claim(found: Situation, key: str) -> PersistentVolumeClaim:
    namespace, name = key.split("/")
    return found.get(PersistentVolumeClaim, name, namespace)


def _bound(claim: PersistentVolumeClaim, volume: str) -> PersistentVolumeClaim:
    return make_pvc(claim.name, volume=volume, namespace=claim.namespace)


def _repaired(volume: PersistentVolume, problems: set[str], remedy: ProvideVolume) -> PersistentVolume:
    spec, status = volume.spec, volume.status
    changes: dict[str, Any] = {}
    for problem in problems:
        match problem:
            case "claimRef":
                changes["claim_ref"] = None
            case "capacity":
                changes["capacity"] = {"storage": str(remedy.bytes)}
            case "accessModes":
                changes["access_modes"] = remedy.access_modes
            case "nodeAffinity":
                changes["node_affinity"] = None
            case "storageClassName":
                changes["storage_class_name"] = remedy.class_name
            case "phase":
                status = replace(status, phase="Available")
            case _:
                raise AssertionError(f"unknown problem {problem}")
    return replace(volume, spec=replace(spec, **changes), status=status)
