"""VolumeBinding: a pod goes where its claims have their volumes, or can get them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.meta import LabelSelectorRequirement, NodeSelector, ObjectReference
from bayplan.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    CSIVolumeSource,
    EphemeralVolumeSource,
    GCEPersistentDiskVolumeSource,
)
from bayplan.api.storage import TopologySelectorTerm, VolumeNodeAffinity
from bayplan.plugin import (
    SKIP,
    Action,
    Cluster,
    Code,
    CycleState,
    NodeColumns,
    Object,
    Pod,
    Resource,
    Status,
    failure,
    unresolvable,
)
from bayplan.plugin.args import VolumeBindingArgs
from bayplan.plugin.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    Volume,
    VolumePlan,
    expected_claim,
    expected_volume,
)
from bayplan.plugins.volume_binding import (
    NO_BINDER,
    REASON_AFFINITY,
    REASON_LOST_VOLUME,
    REASON_NO_ROOM,
    REASON_NO_VOLUME,
    UNBOUND_IMMEDIATE,
    VolumeBinding,
)
from bayplan.testing.builders import (
    make_csi_capacity,
    make_csi_driver,
    make_csi_node,
    make_expression,
    make_node,
    make_node_term,
    make_owner,
    make_pod,
    make_pv,
    make_pvc,
    make_selector,
    make_storage_class,
)

from .judging import points, registrations, wakes
from .volume_judging import Verdict, judged, storage_cluster

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
DRIVER = "csi.example.com"
SELECTED = "volume.kubernetes.io/selected-node"
NODES = (make_node("n", labels={ZONE: "a", HOST: "n"}), make_node("m", labels={ZONE: "b", HOST: "m"}))
STATIC = make_storage_class("static", provisioner="kubernetes.io/no-provisioner")
MADE = make_storage_class("made", provisioner=DRIVER)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def refused(*reasons: str) -> Verdict:
    return Code.UNRESOLVABLE, frozenset(reasons)


def verdicts(pod: Pod, *objects: Object) -> Any:
    return judged(VolumeBinding(), pod, storage_cluster(NODES, STATIC, MADE, *objects))


def pinned(name: str, *terms: Any, **fields: Any) -> PersistentVolume:
    """A volume with these terms as its node affinity."""
    volume = make_pv(name, **fields)
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))
    return replace(volume, spec=replace(volume.spec, node_affinity=affinity))


def test_its_points_are_upstreams() -> None:
    assert points(VolumeBinding) == {"PreFilter", "Filter", "PreScore", "Score", "Reserve", "PreBind"}


def test_it_does_not_score_as_long_as_the_gate_is_off() -> None:
    nodes = NodeColumns(storage_cluster(NODES))
    assert VolumeBinding().pre_score(CycleState(), make_pod(), nodes) is SKIP
    assert VolumeBinding().score(CycleState(), make_pod(), nodes).tolist() == [0, 0]


# Before any node is looked at


EPHEMERAL = make_pod("p", volumes=[Volume(name="e", ephemeral=EphemeralVolumeSource())])
OWN = make_owner("Pod", "p", uid="pod/default/p", api_version="v1")


@pytest.mark.parametrize(
    ("pod", "objects", "answer"),
    [
        pytest.param(make_pod(volumes=[Volume(name="config")]), [], SKIP, id="no claims"),
        pytest.param(
            make_pod(claims=["c"]),
            [],
            unresolvable('persistentvolumeclaim "c" not found'),
            id="no such claim",
        ),
        pytest.param(
            EPHEMERAL,
            [],
            unresolvable('waiting for ephemeral volume controller to create the persistentvolumeclaim "p-e"'),
            id="an ephemeral volume's claim is still to come",
        ),
        pytest.param(
            EPHEMERAL,
            [make_pvc("p-e")],
            unresolvable("PVC default/p-e was not created for pod default/p (pod is not owner)"),
            id="or belongs to somebody else",
        ),
        pytest.param(
            make_pod(claims=["c"]),
            [make_pvc("c", volume="v", phase="Lost")],
            unresolvable('persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'),
            id="a claim that has lost its volume",
        ),
        pytest.param(
            make_pod(claims=["c"]),
            [make_pvc("c", deleted=LONG_AGO)],
            unresolvable('persistentvolumeclaim "c" is being deleted'),
            id="a claim that is going",
        ),
        pytest.param(
            make_pod(claims=["c"]),
            [make_pvc("c")],
            unresolvable(UNBOUND_IMMEDIATE),
            id="unbound, of no class",
        ),
        pytest.param(
            make_pod(claims=["c"]),
            [make_pvc("c", storage_class="gone")],
            unresolvable(UNBOUND_IMMEDIATE),
            id="unbound, of a class that is not there",
        ),
        pytest.param(
            make_pod(claims=["c"]),
            [make_pvc("c", storage_class="now"), make_storage_class("now", wait_for_consumer=False)],
            unresolvable(UNBOUND_IMMEDIATE),
            id="unbound, of a class that binds at once",
        ),
        pytest.param(
            make_pod(claims=["c"]),
            [replace(make_pvc("c", volume="v", storage_class="made"), metadata=make_pvc("c").metadata)],
            unresolvable(UNBOUND_IMMEDIATE),
            id="given a volume by its user, but not yet bound",
        ),
        pytest.param(
            make_pod(claims=["c"]),
            [
                make_pvc("c", storage_class="odd"),
                replace(MADE, metadata=make_storage_class("odd").metadata, volume_binding_mode=None),
            ],
            failure('VolumeBindingMode not set for StorageClass "odd"'),
            id="a class that does not say when",
        ),
        pytest.param(
            make_pod(claims=["c", "x"]),
            [make_pvc("c")],
            unresolvable('persistentvolumeclaim "x" not found'),
            id="what is missing is said before what is unbound",
        ),
    ],
)
def test_claims_that_are_not_ready_refuse_the_pod(pod: Pod, objects: list[Object], answer: Status) -> None:
    assert verdicts(pod, *objects) == answer


def test_the_claim_of_an_ephemeral_volume_counts() -> None:
    claim = make_pvc("p-e", volume="v", owner=OWN)
    assert verdicts(EPHEMERAL, claim, make_pv("v", on_nodes_with={ZONE: ["a"]})) == {
        "m": refused(REASON_AFFINITY)
    }


# Bound claims


BOUND = make_pvc("c", volume="v")


@pytest.mark.parametrize(
    ("volume", "reached"),
    [
        pytest.param(make_pv("v"), "nm", id="a volume that can be had everywhere"),
        pytest.param(make_pv("v", on_nodes_with={ZONE: ["a", "c"]}), "n", id="in one zone"),
        pytest.param(make_pv("v", on_nodes_with={"rack": ["a"]}), "", id="behind a label that no node has"),
        pytest.param(
            pinned(
                "v",
                make_node_term(make_expression(ZONE, "In", "z")),
                make_node_term(make_expression(HOST, "Exists")),
            ),
            "nm",
            id="terms are alternatives",
        ),
        pytest.param(
            pinned("v", make_node_term(make_expression(ZONE, "In", "a"), make_expression(HOST, "In", "m"))),
            "",
            id="expressions all have to hold",
        ),
        pytest.param(
            pinned("v", make_node_term(make_expression(ZONE, "NotIn", "a"))), "m", id="not in a zone"
        ),
        pytest.param(
            pinned("v", make_node_term(fields=[make_expression("metadata.name", "In", "x")])),
            "nm",
            id="a node's name never excludes it",
        ),
        pytest.param(
            pinned("v", make_node_term(fields=[make_expression("metadata.name", "Exists")])),
            "",
            id="unless it is asked for in a way that makes no sense",
        ),
        pytest.param(pinned("v", make_node_term()), "", id="a term that says nothing matches nothing"),
        pytest.param(pinned("v"), "", id="no term at all matches nothing"),
        pytest.param(
            pinned("v", make_node_term(make_expression(ZONE, "Near", "a"))),
            "",
            id="what cannot be parsed neither",
        ),
    ],
)
def test_a_bound_volume_ties_the_pod_to_the_nodes_it_reaches(volume: PersistentVolume, reached: str) -> None:
    found = verdicts(make_pod(claims=["c"]), BOUND, volume)
    assert found == {name: refused(REASON_AFFINITY) for name in "nm" if name not in reached}


def test_a_bound_claim_whose_volume_is_gone_fits_nowhere() -> None:
    assert verdicts(make_pod(claims=["c"]), BOUND) == dict.fromkeys("nm", refused(REASON_LOST_VOLUME))


def test_the_first_bound_claim_that_fails_decides() -> None:
    claims = [make_pvc("c", volume="v"), make_pvc("d", volume="gone")]
    found = verdicts(make_pod(claims=["c", "d"]), *claims, make_pv("v", on_nodes_with={ZONE: ["a"]}))
    assert found == {"n": refused(REASON_LOST_VOLUME), "m": refused(REASON_AFFINITY)}


def test_bound_and_unbound_claims_add_up_their_reasons() -> None:
    found = verdicts(
        make_pod(claims=["c", "d"]),
        BOUND,
        make_pv("v", on_nodes_with={ZONE: ["a"]}),
        make_pvc("d", storage_class="static"),
    )
    assert found == {"n": refused(REASON_NO_VOLUME), "m": refused(REASON_AFFINITY, REASON_NO_VOLUME)}


# Volumes of in-tree plugins


def gce(volume: PersistentVolume) -> PersistentVolume:
    source = GCEPersistentDiskVolumeSource(pd_name="d")
    return replace(volume, spec=replace(volume.spec, gce_persistent_disk=source))


@pytest.mark.parametrize(
    ("moved", "reached"),
    [
        pytest.param("kubernetes.io/gce-pd", "n", id="its zone is looked up under the driver's label"),
        pytest.param(
            "kubernetes.io/aws-ebs,kubernetes.io/gce-pd", "n", id="one of several plugins has moved"
        ),
        pytest.param("kubernetes.io/aws-ebs", "m", id="another plugin has moved"),
        pytest.param("", "m", id="no plugin has moved"),
        pytest.param(" kubernetes.io/gce-pd", "m", id="blanks are part of the name"),
        pytest.param(None, "m", id="the node has no CSINode"),
    ],
)
def test_a_volume_follows_its_plugin_to_csi(moved: str | None, reached: str) -> None:
    """Nodes n and m say contradictory things under the old label and the driver's."""
    key = "storage.alpha.kubernetes.io/migrated-plugins"
    csi_nodes = [] if moved is None else [make_csi_node(name, annotations={key: moved}) for name in "nm"]
    cluster = storage_cluster(
        [
            make_node("n", labels={ZONE: "b", "topology.gke.io/zone": "a"}),
            make_node("m", labels={ZONE: "a", "topology.gke.io/zone": "b"}),
        ],
        BOUND,
        gce(make_pv("v", on_nodes_with={ZONE: ["a"]})),
        *csi_nodes,
    )
    found = judged(VolumeBinding(), make_pod(claims=["c"]), cluster)
    assert found == {name: refused(REASON_AFFINITY) for name in "nm" if name not in reached}


def test_a_volume_that_does_not_translate_is_an_error_where_its_plugin_has_moved() -> None:
    volume = make_pv("v", on_nodes_with={ZONE: ["a"]})
    source = AWSElasticBlockStoreVolumeSource(volume_id="aws://a/1")
    volume = replace(volume, spec=replace(volume.spec, aws_elastic_block_store=source))
    note = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
    text = (
        "could not translate pv: failed to translate Kubernetes ID to EBS Volume ID "
        "Invalid format for AWS volume (aws://a/1)"
    )
    found = verdicts(make_pod(claims=["c"]), BOUND, volume, make_csi_node("n", annotations=note))
    assert found == {"n": (Code.ERROR, frozenset({text})), "m": refused(REASON_AFFINITY)}


# Claims that get a volume with the node: free volumes


WANTS = make_pvc("c", storage_class="static", storage="2Gi")
EXACT: dict[str, Any] = {"capacity": "2Gi", "storage_class": "static"}


def offered(**changes: Any) -> PersistentVolume:
    return make_pv("v", **{**EXACT, **changes})


@pytest.mark.parametrize(
    ("claim", "volume", "fits"),
    [
        pytest.param(WANTS, offered(), True, id="just what is wanted"),
        pytest.param(WANTS, offered(capacity="2047Mi"), False, id="too small"),
        pytest.param(WANTS, offered(capacity="2G"), False, id="too small by the unit"),
        pytest.param(WANTS, offered(storage_class="other"), False, id="of another class"),
        pytest.param(WANTS, offered(phase="Released"), False, id="not available"),
        pytest.param(WANTS, offered(phase="Pending"), False, id="not yet available"),
        pytest.param(WANTS, offered(deleted=LONG_AGO), False, id="being deleted"),
        pytest.param(WANTS, offered(access_modes=["ReadOnlyMany"]), False, id="another access mode"),
        pytest.param(
            WANTS, offered(access_modes=["ReadOnlyMany", "ReadWriteOnce"]), True, id="more access modes"
        ),
        pytest.param(WANTS, offered(volume_mode="Block"), False, id="a block device"),
        pytest.param(WANTS, offered(volume_mode=None), True, id="a file system is what one means"),
        pytest.param(WANTS, offered(claim=make_pvc("other")), False, id="somebody else's"),
        pytest.param(
            replace(WANTS, spec=replace(WANTS.spec, selector=make_selector({"speed": "fast"}))),
            offered(labels={"speed": "fast"}),
            True,
            id="with the labels that are asked for",
        ),
        pytest.param(
            replace(WANTS, spec=replace(WANTS.spec, selector=make_selector({"speed": "fast"}))),
            offered(),
            False,
            id="without them",
        ),
        pytest.param(
            replace(WANTS, spec=replace(WANTS.spec, volume_attributes_class_name="gold")),
            offered(),
            False,
            id="without the attributes that are asked for",
        ),
    ],
)
def test_a_claim_takes_a_free_volume_that_will_do(
    claim: PersistentVolumeClaim, volume: PersistentVolume, fits: bool
) -> None:
    found = verdicts(make_pod(claims=["c"]), claim, volume)
    assert found == ({} if fits else dict.fromkeys("nm", refused(REASON_NO_VOLUME)))


def reserved(uid: str = "", **changes: Any) -> PersistentVolume:
    volume = offered(**changes)
    reference = ObjectReference(namespace="default", name="c", uid=uid)
    return replace(volume, spec=replace(volume.spec, claim_ref=reference))


FREE = make_pv("free", **EXACT)


@pytest.mark.parametrize(
    ("volumes", "fitting"),
    [
        pytest.param([reserved()], "nm", id="a volume that is kept for the claim"),
        pytest.param([reserved(phase="Bound")], "nm", id="whatever its phase"),
        pytest.param([reserved(access_modes=[])], "nm", id="and its access modes"),
        pytest.param([reserved(uid=WANTS.uid)], "nm", id="for this very claim"),
        pytest.param([reserved(uid="another")], "", id="for an earlier claim of that name"),
        pytest.param([reserved(capacity="1Gi")], "", id="but too small"),
        pytest.param([reserved(storage_class="x")], "", id="but of another class"),
        pytest.param([reserved(on_nodes_with={ZONE: ["a"]})], "n", id="in one zone"),
        pytest.param([reserved(on_nodes_with={ZONE: ["a"]}), FREE], "n", id="no other will do then"),
        pytest.param([reserved(capacity="1Gi"), FREE], "nm", id="unless it would never have done"),
        pytest.param([reserved(uid="another"), FREE], "nm", id="or is not the claim's"),
    ],
)
def test_a_volume_that_is_kept_for_the_claim_is_taken_or_none(
    volumes: list[PersistentVolume], fitting: str
) -> None:
    found = verdicts(make_pod(claims=["c"]), WANTS, *volumes)
    assert found == {name: refused(REASON_NO_VOLUME) for name in "nm" if name not in fitting}


def test_each_volume_is_given_once() -> None:
    claims = [replace(WANTS, metadata=make_pvc(name).metadata) for name in "cd"]
    on_n = [make_pv(f"v{i}", on_nodes_with={HOST: ["n"]}, **EXACT) for i in range(2)]
    pod, short = make_pod(claims=["c", "d"]), refused(REASON_NO_VOLUME)
    assert verdicts(pod, *claims, on_n[0]) == {"n": short, "m": short}
    assert verdicts(pod, *claims, *on_n) == {"m": short}
    assert verdicts(pod, *claims, on_n[0], FREE) == {"m": short}


def test_a_selector_that_makes_no_sense_is_an_error() -> None:
    claim = replace(
        WANTS, spec=replace(WANTS.spec, selector=make_selector(None, make_expression("k", "Near")))
    )
    text = (
        "error creating internal label selector for claim: default/c: "
        '"Near" is not a valid label selector operator'
    )
    found = verdicts(make_pod(claims=["c"]), claim)
    assert found == dict.fromkeys("nm", (Code.ERROR, frozenset({text})))


# Claims that get a volume with the node: new volumes


def allowing(*terms: TopologySelectorTerm) -> Object:
    return replace(MADE, allowed_topologies=terms)


def where(**labels: Sequence[str]) -> TopologySelectorTerm:
    keys = {"zone": ZONE, "host": HOST}
    return TopologySelectorTerm(
        match_label_expressions=tuple(
            LabelSelectorRequirement(key=keys[key], values=tuple(values)) for key, values in labels.items()
        )
    )


@pytest.mark.parametrize(
    ("storage_class", "fitting"),
    [
        pytest.param(MADE, "nm", id="anywhere"),
        pytest.param(replace(MADE, provisioner=""), "", id="by nobody"),
        pytest.param(
            replace(MADE, provisioner="kubernetes.io/no-provisioner"), "", id="by nobody, explicitly"
        ),
        pytest.param(allowing(where(zone=["a"])), "n", id="in one zone"),
        pytest.param(allowing(where(zone=["z"]), where(host=["m"])), "m", id="in one of several places"),
        pytest.param(allowing(where(zone=["a"], host=["m"])), "", id="where all labels agree"),
        pytest.param(allowing(TopologySelectorTerm()), "", id="a place that is not described is nowhere"),
        pytest.param(allowing(where(zone=[])), "", id="nor one without values"),
    ],
)
def test_volumes_are_made_where_the_class_allows_it(storage_class: Object, fitting: str) -> None:
    found = verdicts(make_pod(claims=["c"]), make_pvc("c", storage_class="made"), storage_class)
    assert found == {name: refused(REASON_NO_VOLUME) for name in "nm" if name not in fitting}


KEEPS_COUNT = make_csi_driver(DRIVER, storage_capacity=True)


def room(**fields: Any) -> Object:
    return make_csi_capacity("k", fields.pop("storage_class", "made"), **fields)


@pytest.mark.parametrize(
    ("objects", "fitting"),
    [
        pytest.param([KEEPS_COUNT, room(capacity="1Gi", on_nodes_with={})], "nm", id="everywhere"),
        pytest.param([KEEPS_COUNT, room(capacity="1Gi", on_nodes_with={ZONE: "a"})], "n", id="in one zone"),
        pytest.param(
            [KEEPS_COUNT, room(capacity="1Gi", on_nodes_with={ZONE: "a", HOST: "m"})],
            "",
            id="labels all count",
        ),
        pytest.param(
            [
                KEEPS_COUNT,
                room(capacity="1Gi", on_nodes_with=make_selector(None, make_expression(ZONE, "NotIn", "a"))),
            ],
            "m",
            id="anywhere but there",
        ),
        pytest.param([KEEPS_COUNT, room(capacity="1023Mi", on_nodes_with={})], "", id="too little"),
        pytest.param([KEEPS_COUNT, room(on_nodes_with={})], "", id="nobody knows how much"),
        pytest.param(
            [KEEPS_COUNT, room(capacity="5Gi", maximum_volume_size="1Mi", on_nodes_with={})],
            "",
            id="enough, but not in one piece",
        ),
        pytest.param(
            [KEEPS_COUNT, room(capacity="1Mi", maximum_volume_size="1Gi", on_nodes_with={})],
            "nm",
            id="the size of a piece goes first",
        ),
        pytest.param([KEEPS_COUNT, room(capacity="1Gi")], "", id="reachable from nowhere"),
        pytest.param(
            [KEEPS_COUNT, room(capacity="1Gi", on_nodes_with=make_selector({"no key": "x"}))],
            "",
            id="nobody can say from where",
        ),
        pytest.param(
            [KEEPS_COUNT, room(storage_class="other", capacity="1Gi", on_nodes_with={})],
            "",
            id="of another class",
        ),
        pytest.param([KEEPS_COUNT], "", id="nothing is reported"),
        pytest.param([make_csi_driver(DRIVER)], "nm", id="the driver does not keep count"),
        pytest.param([make_csi_driver(DRIVER, storage_capacity=False)], "nm", id="and says so"),
        pytest.param([], "nm", id="an unknown driver"),
    ],
)
def test_volumes_are_made_where_the_driver_has_room(objects: list[Object], fitting: str) -> None:
    found = verdicts(make_pod(claims=["c"]), make_pvc("c", storage_class="made"), *objects)
    assert found == {name: refused(REASON_NO_ROOM) for name in "nm" if name not in fitting}


def test_a_claim_of_no_size_needs_no_room() -> None:
    claim = make_pvc("c", storage_class="made")
    claim = replace(claim, spec=replace(claim.spec, resources=replace(claim.spec.resources, requests={})))
    assert verdicts(make_pod(claims=["c"]), claim, KEEPS_COUNT) == {}


def test_a_volume_is_made_where_no_free_one_reaches() -> None:
    free = make_pv("v", storage_class="made", on_nodes_with={ZONE: ["a"]})
    pod, claim = make_pod(claims=["c"]), make_pvc("c", storage_class="made")
    assert verdicts(pod, claim, free) == {}
    assert verdicts(pod, claim, free, KEEPS_COUNT) == {"m": refused(REASON_NO_ROOM)}


def test_the_first_claim_that_cannot_be_made_decides() -> None:
    """Small ones first, and each claim is asked about places before room."""
    claims = [make_pvc("c", storage_class="made", storage="2Gi"), make_pvc("d", storage_class="elsewhere")]
    elsewhere = make_storage_class("elsewhere", provisioner=DRIVER, allowed=[{ZONE: ["a"]}])
    capacity = make_csi_capacity("k", "elsewhere", capacity="5Gi", on_nodes_with={})
    found = verdicts(make_pod(claims=["c", "d"]), *claims, elsewhere, KEEPS_COUNT, capacity)
    assert found == {"n": refused(REASON_NO_ROOM), "m": refused(REASON_NO_VOLUME)}


def test_a_volume_that_is_being_made_ties_the_pod_to_its_node() -> None:
    """A free volume is not looked for any more, and the place is checked again."""
    claim = make_pvc("c", storage_class="made", selected_node="n")
    pod, free = make_pod(claims=["c"]), make_pv("v", storage_class="made")
    assert verdicts(pod, claim, free) == {"m": refused(REASON_NO_VOLUME)}
    assert verdicts(pod, claim, free, KEEPS_COUNT) == {
        "n": refused(REASON_NO_ROOM),
        "m": refused(REASON_NO_VOLUME),
    }


def test_on_other_nodes_than_the_selected_one_nothing_else_is_asked() -> None:
    claims = [
        make_pvc("c", storage_class="made", selected_node="n"),
        make_pvc("d", storage_class="static", selector=make_selector(None, make_expression("k", "Near"))),
    ]
    found = verdicts(make_pod(claims=["c", "d"]), *claims)
    assert (found["n"][0], found["m"]) == (Code.ERROR, refused(REASON_NO_VOLUME))


# Reserving and binding


class Scheduler:
    """As much of a scheduler as the plugin needs; with `volumes`, one that can write."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster


class Writer:
    def __init__(self, answer: Status | None = None) -> None:
        self.answer = answer
        self.calls: list[tuple[str, str, VolumePlan, float]] = []

    async def bind(self, pod: Pod, node_name: str, plan: VolumePlan, timeout_seconds: float) -> Status | None:
        self.calls.append((pod.name, node_name, plan, timeout_seconds))
        return self.answer


def plugin_for(cluster: Cluster, writer: Writer | None = None) -> VolumeBinding:
    handle: Any = Scheduler(cluster)
    if writer is not None:
        handle.volumes = writer
    return VolumeBinding(VolumeBindingArgs(bind_timeout_seconds=7), handle)


def versioned(item: Any, version: str) -> Any:
    return replace(item, metadata=replace(item.metadata, resource_version=version))


def two_claims() -> Cluster:
    """One claim that a free volume on n will serve, and one that gets a new volume."""
    return storage_cluster(
        NODES,
        STATIC,
        MADE,
        versioned(make_pvc("c", storage_class="static"), "1"),
        versioned(make_pvc("d", storage_class="made"), "2"),
        versioned(make_pv("v", storage_class="static", on_nodes_with={HOST: ["n"]}), "3"),
    )


BOTH = make_pod("p", claims=["c", "d"])


def test_reserving_decides_what_has_to_be_written() -> None:
    cluster, state = two_claims(), CycleState()
    assert plugin_for(cluster).reserve(state, BOTH, "n") is None
    plan: VolumePlan = state.read(("VolumeBinding", BOTH.uid))
    (volume,), (claim,) = plan.volumes, plan.claims
    assert volume.spec.claim_ref == ObjectReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace="default",
        name="c",
        uid="persistentvolumeclaim/default/c",
        resource_version="1",
    )
    assert volume.annotations == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert (claim.name, claim.annotations) == ("d", {SELECTED: "n"})


def test_small_claims_are_served_first_and_take_the_smallest() -> None:
    sizes = {"c": "2Gi", "d": "1Gi"}
    claims = [make_pvc(name, storage_class="static", storage=size) for name, size in sizes.items()]
    volumes = [make_pv(f"v{i}", storage_class="static", capacity=f"{i}Gi") for i in (4, 3, 2)]
    cluster, state = storage_cluster(NODES, STATIC, *claims, *volumes), CycleState()
    plugin_for(cluster).reserve(state, BOTH, "n")
    plan: VolumePlan = state.read(("VolumeBinding", BOTH.uid))
    given = {v.spec.claim_ref.name: v.name for v in plan.volumes if v.spec.claim_ref is not None}
    assert given == {"d": "v2", "c": "v3"}


def test_what_was_reserved_is_seen_by_the_next_pod_until_it_is_taken_back() -> None:
    cluster, state = two_claims(), CycleState()
    plugin, other = plugin_for(cluster), make_pod("other", claims=["c2"])
    cluster.objects.put(make_pvc("c2", storage_class="static"))
    changes = cluster.changes
    before = changes.freshness(changes.kinds(VolumeBinding.depends_on.kinds))
    before.mark_current()
    plugin.reserve(state, BOTH, "n")
    nowhere = dict.fromkeys("nm", refused(REASON_NO_VOLUME))
    assert judged(plugin, other, cluster) == nowhere
    assert judged(plugin, make_pod("twin", claims=["d"]), cluster) == {"m": refused(REASON_NO_VOLUME)}
    assert not before.is_current
    plugin.unreserve(state, BOTH, "n")
    assert judged(plugin, other, cluster) == {"m": refused(REASON_NO_VOLUME)}
    assert judged(plugin, make_pod("twin", claims=["d"]), cluster) == {}


def test_what_the_server_says_later_goes_before_what_was_reserved() -> None:
    cluster = two_claims()
    plugin_for(cluster).reserve(CycleState(), BOTH, "n")
    cluster.objects.put(versioned(make_pv("v", storage_class="static"), "4"))
    cluster.objects.put(versioned(make_pvc("d", storage_class="made"), "5"))
    volume, claim = expected_volume(cluster.objects, "v"), expected_claim(cluster.objects, "d", "default")
    assert volume is not None
    assert claim is not None
    assert (volume.spec.claim_ref, claim.annotations) == (None, {})


@pytest.mark.parametrize(
    ("reference", "annotations", "uid"),
    [
        pytest.param("", {}, "persistentvolumeclaim/default/c", id="a user kept it for the name: completed"),
        pytest.param(
            "persistentvolumeclaim/default/c", {}, "persistentvolumeclaim/default/c", id="for this very claim"
        ),
    ],
)
def test_a_volume_that_a_user_kept_for_the_claim_does_not_say_that_we_did(
    reference: str, annotations: dict[str, str], uid: str
) -> None:
    cluster, state = storage_cluster(NODES, STATIC, WANTS, reserved(uid=reference)), CycleState()
    plugin_for(cluster).reserve(state, make_pod("p", claims=["c"]), "n")
    (volume,) = state.read(("VolumeBinding", "pod/default/p")).volumes
    assert (volume.annotations, volume.spec.claim_ref.uid) == (annotations, uid)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod("p"), id="no claims"),
        pytest.param(make_pod("p", claims=["b"]), id="all claims are bound"),
    ],
)
def test_a_pod_with_nothing_to_bind_is_bound_at_once(pod: Pod) -> None:
    cluster, state = storage_cluster(NODES, make_pvc("b", volume="v"), make_pv("v")), CycleState()
    plugin = plugin_for(cluster)
    assert plugin.reserve(state, pod, "n") is None
    assert plugin.pre_bind_pre_flight(state, pod, "n") is SKIP
    assert asyncio.run(plugin.pre_bind(state, pod, "n")) is None


@pytest.mark.parametrize("answer", [None, failure("binding volumes: timed out")], ids=["bound", "not bound"])
def test_binding_hands_the_plan_to_whoever_can_write(answer: Status | None) -> None:
    cluster, state, writer = two_claims(), CycleState(), Writer(answer)
    plugin = plugin_for(cluster, writer)
    plugin.reserve(state, BOTH, "n")
    assert plugin.pre_bind_pre_flight(state, BOTH, "n") is None
    assert asyncio.run(plugin.pre_bind(state, BOTH, "n")) == answer
    assert writer.calls == [("p", "n", state.read(("VolumeBinding", BOTH.uid)), 7.0)]


def test_binding_fails_where_nobody_can_write() -> None:
    cluster, state = two_claims(), CycleState()
    plugin = plugin_for(cluster)
    plugin.reserve(state, BOTH, "n")
    assert asyncio.run(plugin.pre_bind(state, BOTH, "n")) == failure(NO_BINDER)


# Events


def test_it_registers_for_the_events_upstream_does() -> None:
    both = Action.ADD | Action.UPDATE
    assert registrations(VolumeBinding()) == [
        (Resource.STORAGE_CLASS, both),
        (Resource.PERSISTENT_VOLUME_CLAIM, both),
        (Resource.PERSISTENT_VOLUME, both),
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        (Resource.CSI_NODE, both),
        (Resource.CSI_DRIVER, Action.UPDATE),
        (Resource.CSI_STORAGE_CAPACITY, both),
    ]


CLASS_UPDATED = (Resource.STORAGE_CLASS, Action.UPDATE)
CLAIM_UPDATED = (Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE)
CSI_NODE_UPDATED = (Resource.CSI_NODE, Action.UPDATE)
DRIVER_UPDATED = (Resource.CSI_DRIVER, Action.UPDATE)
CAPACITY_UPDATED = (Resource.CSI_STORAGE_CAPACITY, Action.UPDATE)
MIGRATED = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"}


@pytest.mark.parametrize(
    ("event", "old", "new", "helps"),
    [
        pytest.param((Resource.STORAGE_CLASS, Action.ADD), None, MADE, True, id="a class came"),
        pytest.param(
            CLASS_UPDATED, MADE, allowing(where(zone=["a"])), True, id="a class allows other places"
        ),
        pytest.param(
            CLASS_UPDATED, MADE, replace(MADE, provisioner="x"), False, id="a class changed otherwise"
        ),
        pytest.param(
            (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
            None,
            make_pvc("c"),
            True,
            id="the pod's claim came",
        ),
        pytest.param(CLAIM_UPDATED, make_pvc("c"), BOUND, True, id="the pod's claim changed"),
        pytest.param(CLAIM_UPDATED, None, make_pvc("p-e"), True, id="its ephemeral volume's claim changed"),
        pytest.param(CLAIM_UPDATED, None, make_pvc("x"), False, id="another claim changed"),
        pytest.param(
            CLAIM_UPDATED, None, make_pvc("c", namespace="x"), False, id="a claim changed elsewhere"
        ),
        pytest.param((Resource.PERSISTENT_VOLUME, Action.ADD), None, FREE, True, id="a volume came"),
        pytest.param((Resource.PERSISTENT_VOLUME, Action.UPDATE), FREE, FREE, True, id="a volume changed"),
        pytest.param((Resource.NODE, Action.ADD), None, NODES[0], True, id="a node came"),
        pytest.param((Resource.NODE, Action.UPDATE_NODE_LABEL), *NODES, True, id="a label of a node changed"),
        pytest.param((Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE), *NODES, False, id="a node grew"),
        pytest.param((Resource.CSI_NODE, Action.ADD), None, make_csi_node("n"), True, id="a CSINode came"),
        pytest.param(
            CSI_NODE_UPDATED,
            make_csi_node("n"),
            make_csi_node("n", annotations=MIGRATED),
            True,
            id="a plugin moved",
        ),
        pytest.param(
            CSI_NODE_UPDATED,
            make_csi_node("n"),
            make_csi_node("n", {"x": 1}),
            False,
            id="a driver was installed",
        ),
        pytest.param(
            DRIVER_UPDATED,
            KEEPS_COUNT,
            make_csi_driver(DRIVER),
            True,
            id="the pod's driver no longer keeps count",
        ),
        pytest.param(DRIVER_UPDATED, make_csi_driver(DRIVER), KEEPS_COUNT, False, id="it does now"),
        pytest.param(
            DRIVER_UPDATED, make_csi_driver(DRIVER), make_csi_driver(DRIVER), False, id="it never did"
        ),
        pytest.param(
            DRIVER_UPDATED,
            make_csi_driver("x", storage_capacity=True),
            make_csi_driver("x"),
            False,
            id="another driver no longer does",
        ),
        pytest.param((Resource.CSI_STORAGE_CAPACITY, Action.ADD), None, room(), True, id="a capacity came"),
        pytest.param(CAPACITY_UPDATED, room(), room(capacity=0), True, id="a capacity is known"),
        pytest.param(
            CAPACITY_UPDATED, room(capacity="1Gi"), room(capacity="2Gi"), True, id="a capacity grew"
        ),
        pytest.param(CAPACITY_UPDATED, room(capacity="2Gi"), room(capacity="2048Mi"), False, id="it stayed"),
        pytest.param(CAPACITY_UPDATED, room(capacity="2Gi"), room(), False, id="it is no longer known"),
        pytest.param(
            CAPACITY_UPDATED,
            room(capacity="9Gi"),
            room(capacity="9Gi", maximum_volume_size="1Gi"),
            False,
            id="the size of a piece is known, and small",
        ),
    ],
)
def test_what_wakes_a_pod(
    event: tuple[Resource, Action], old: Object | None, new: Object | None, helps: bool
) -> None:
    inline = Volume(name="i", csi=CSIVolumeSource(driver=DRIVER))
    ephemeral = Volume(name="e", ephemeral=EphemeralVolumeSource())
    pod = make_pod("p", claims=["c"], volumes=[inline, ephemeral])
    assert wakes(VolumeBinding(), event, pod, old, new) is helps
