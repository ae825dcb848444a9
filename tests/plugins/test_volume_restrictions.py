"""VolumeRestrictions: what only one pod can have is not given to two."""

from __future__ import annotations

import pytest

from bayplan.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    EphemeralVolumeSource,
    GCEPersistentDiskVolumeSource,
    ISCSIVolumeSource,
    RBDVolumeSource,
)
from bayplan.plugin import (
    SKIP,
    SKIP_FOR_SIGNATURE,
    Action,
    Code,
    CycleState,
    NodeColumns,
    Object,
    Pod,
    Resource,
    unresolvable,
)
from bayplan.plugin.storage import Volume
from bayplan.plugins.volume_restrictions import REASON_CLAIM, REASON_DISK, VolumeRestrictions
from bayplan.testing.builders import make_node, make_pod, make_pvc
from bayplan.testing.calling import make_plugin

from .evaluating import points, registrations, requeues
from .volume_evaluating import evaluate, filtered, storage_cluster, supposing

DISK_TAKEN = (Code.UNSCHEDULABLE, frozenset({REASON_DISK}))
CLAIM_TAKEN = (Code.UNSCHEDULABLE, frozenset({REASON_CLAIM}))

EXCLUSIVE = make_pvc("c", access_modes=["ReadWriteOncePod"])


def gce(name: str, read_only: bool = False) -> Volume:
    return Volume(
        name="disk", gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name=name, read_only=read_only)
    )


def ebs(name: str, read_only: bool = False) -> Volume:
    source = AWSElasticBlockStoreVolumeSource(volume_id=name, read_only=read_only)
    return Volume(name="disk", aws_elastic_block_store=source)


def iscsi(iqn: str, read_only: bool = False, lun: int = 0) -> Volume:
    return Volume(name="disk", iscsi=ISCSIVolumeSource(iqn=iqn, lun=lun, read_only=read_only))


def rbd(*monitors: str, pool: str = "p", image: str = "i", read_only: bool = False) -> Volume:
    source = RBDVolumeSource(monitors=monitors, pool=pool, image=image, read_only=read_only)
    return Volume(name="disk", rbd=source)


def test_its_points_are_upstreams() -> None:
    assert points(VolumeRestrictions) == {"PreFilter", "Filter"}
    assert hasattr(VolumeRestrictions, "add_pod")
    assert hasattr(VolumeRestrictions, "remove_pod")


@pytest.mark.parametrize(
    ("wanted", "mounted", "fits"),
    [
        pytest.param(gce("d"), gce("d"), False, id="GCE: the same disk"),
        pytest.param(gce("d"), gce("e"), True, id="GCE: another disk"),
        pytest.param(gce("d", read_only=True), gce("d", read_only=True), True, id="GCE: both only read"),
        pytest.param(gce("d", read_only=True), gce("d"), False, id="GCE: the other one writes"),
        pytest.param(gce("d"), gce("d", read_only=True), False, id="GCE: the newcomer writes"),
        pytest.param(
            ebs("d", read_only=True), ebs("d", read_only=True), False, id="EBS: even if both only read"
        ),
        pytest.param(ebs("d"), ebs("e"), True, id="EBS: another disk"),
        pytest.param(ebs("d"), gce("d"), True, id="disks of different kinds"),
        pytest.param(iscsi("q"), iscsi("q", lun=7), False, id="iSCSI: the name decides, not the unit"),
        pytest.param(iscsi("q", True), iscsi("q", True), True, id="iSCSI: both only read"),
        pytest.param(rbd("a", "b"), rbd("b", "c"), False, id="RBD: one monitor in common"),
        pytest.param(rbd("a"), rbd("b"), True, id="RBD: other monitors"),
        pytest.param(rbd("a"), rbd("a", image="j"), True, id="RBD: another image"),
        pytest.param(rbd("a"), rbd("a", pool="q"), True, id="RBD: another pool"),
        pytest.param(rbd("a", read_only=True), rbd("a", read_only=True), True, id="RBD: both only read"),
    ],
)
def test_a_disk_is_not_mounted_twice_on_one_node(wanted: Volume, mounted: Volume, fits: bool) -> None:
    cluster = storage_cluster(
        [make_node("n"), make_node("m")], assigned={"n": [make_pod("other", volumes=[mounted])]}
    )
    assert evaluate(make_plugin(VolumeRestrictions), make_pod(volumes=[wanted]), cluster) == (
        {} if fits else {"n": DISK_TAKEN}
    )


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod(), id="no volumes"),
        pytest.param(make_pod(volumes=[Volume(name="config")]), id="a volume of no interest"),
        pytest.param(make_pod(claims=["shared"]), id="a claim that may be shared"),
        pytest.param(make_pod(claims=["c"]), id="an exclusive unused claim"),
        pytest.param(
            make_pod("p", volumes=[Volume(name="gone", ephemeral=EphemeralVolumeSource())]),
            id="an ephemeral volume, whether or not its claim is there",
        ),
    ],
)
def test_pods_that_cannot_be_in_the_way_are_skipped(pod: Pod) -> None:
    user = make_pod("other", claims=["shared"])
    cluster = storage_cluster([make_node("n")], EXCLUSIVE, make_pvc("shared"), assigned={"n": [user]})
    assert evaluate(make_plugin(VolumeRestrictions), pod, cluster) in (SKIP, SKIP_FOR_SIGNATURE)


def test_a_missing_claim_is_reported_before_any_node_is_evaluated() -> None:
    answer = evaluate(
        make_plugin(VolumeRestrictions), make_pod(claims=["c"]), storage_cluster([make_node("n")])
    )
    assert answer == unresolvable('persistentvolumeclaim "c" not found')


def test_an_exclusive_claim_in_use_keeps_its_pod_off_every_node() -> None:
    cluster = storage_cluster(
        [make_node("n"), make_node("m")], EXCLUSIVE, assigned={"n": [make_pod("other", claims=["c"])]}
    )
    rejections = evaluate(make_plugin(VolumeRestrictions), make_pod(claims=["c"]), cluster)
    assert rejections == {"n": CLAIM_TAKEN, "m": CLAIM_TAKEN}


def test_only_the_disk_is_named_where_both_are_taken() -> None:
    user = make_pod("other", claims=["c"], volumes=[gce("d")])
    cluster = storage_cluster([make_node("n"), make_node("m")], EXCLUSIVE, assigned={"n": [user]})
    rejections = evaluate(
        make_plugin(VolumeRestrictions), make_pod(claims=["c"], volumes=[gce("d")]), cluster
    )
    assert rejections == {"n": DISK_TAKEN, "m": CLAIM_TAKEN}


def test_a_claim_of_that_name_elsewhere_is_another_claim() -> None:
    user = make_pod("other", namespace="elsewhere", claims=["c"])
    cluster = storage_cluster([make_node("n")], EXCLUSIVE, assigned={"n": [user]})
    assert evaluate(make_plugin(VolumeRestrictions), make_pod(claims=["c"]), cluster) in (
        SKIP,
        SKIP_FOR_SIGNATURE,
    )


def test_pods_of_nodes_that_are_gone_do_not_count() -> None:
    cluster = storage_cluster(
        [make_node("n"), make_node("m")], EXCLUSIVE, assigned={"n": [make_pod("other", claims=["c"])]}
    )
    cluster.remove_node("n")
    assert evaluate(make_plugin(VolumeRestrictions), make_pod(claims=["c"]), cluster) in (
        SKIP,
        SKIP_FOR_SIGNATURE,
    )


def test_evicting_the_user_of_a_claim_frees_it() -> None:
    """RemovePod and AddPod count the claims of the pods in question; the state they are given is a copy."""
    user, pod, plugin = (
        make_pod("other", claims=["c"]),
        make_pod(claims=["c"]),
        make_plugin(VolumeRestrictions),
    )
    cluster = storage_cluster([make_node("n")], EXCLUSIVE, assigned={"n": [user]})
    nodes, state = NodeColumns(cluster), CycleState()
    plugin.pre_filter(state, pod, nodes)
    without, again = state.clone(), state.clone()
    plugin.remove_pod(without, pod, user, nodes.node_info(0))
    plugin.remove_pod(again, pod, user, nodes.node_info(0))
    plugin.add_pod(again, pod, user, nodes.node_info(0))
    rejections = [filtered(plugin, each, pod, nodes) for each in (without, again, state)]
    assert rejections == [{}, {"n": CLAIM_TAKEN}, {"n": CLAIM_TAKEN}]


def test_namespaces_are_not_compared_when_pods_are_supposed() -> None:
    """As upstream, a pod of another namespace with a claim of that name counts there."""
    user, plugin, pod = (
        make_pod("other", claims=["c"]),
        make_plugin(VolumeRestrictions),
        make_pod(claims=["c"]),
    )
    cluster = storage_cluster([make_node("n")], EXCLUSIVE, assigned={"n": [user]})
    nodes, state = NodeColumns(cluster), CycleState()
    plugin.pre_filter(state, pod, nodes)
    plugin.remove_pod(state, pod, make_pod("third", namespace="x", claims=["c"]), nodes.node_info(0))
    assert filtered(plugin, state, pod, nodes) == {}


def test_evicting_the_user_of_a_disk_frees_it_and_a_nominated_one_takes_it() -> None:
    user, pod, plugin, state = (
        make_pod("a", volumes=[gce("d")]),
        make_pod(volumes=[gce("d")]),
        None,
        CycleState(),
    )
    plugin = make_plugin(VolumeRestrictions)
    cluster = storage_cluster([make_node("n"), make_node("m"), make_node("o")], assigned={"n": [user]})
    plugin.pre_filter(state, pod, NodeColumns(cluster))
    view = supposing(cluster, gone=[user], added={"m": [make_pod("b", volumes=[gce("d")])]})
    assert filtered(plugin, state, pod, view) == {"m": DISK_TAKEN}


def test_it_registers_for_the_events_upstream_does() -> None:
    assert registrations(make_plugin(VolumeRestrictions)) == [
        (Resource.POD, Action.DELETE),
        (Resource.NODE, Action.ADD),
        (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
    ]


POD_DELETED = (Resource.ASSIGNED_POD, Action.DELETE)
CLAIM_ADDED = (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)


@pytest.mark.parametrize(
    ("event", "old", "new", "helps"),
    [
        pytest.param(
            POD_DELETED, make_pod("x", volumes=[gce("d")]), None, True, id="a pod with the disk was deleted"
        ),
        pytest.param(
            POD_DELETED, make_pod("x", volumes=[gce("e")]), None, False, id="a pod without it was deleted"
        ),
        pytest.param(
            POD_DELETED, make_pod("x", claims=["c"]), None, True, id="a pod with the claim was deleted"
        ),
        pytest.param(
            POD_DELETED, make_pod("x", claims=["d"]), None, False, id="a pod with another claim was deleted"
        ),
        pytest.param(
            POD_DELETED,
            make_pod("x", namespace="other", claims=["c"], volumes=[gce("d")]),
            None,
            False,
            id="a pod of another namespace was deleted",
        ),
        pytest.param((Resource.NODE, Action.ADD), None, make_node("n"), True, id="a node was added"),
        pytest.param(CLAIM_ADDED, None, EXCLUSIVE, True, id="the claim was added"),
        pytest.param(CLAIM_ADDED, None, make_pvc("d"), False, id="another claim was added"),
        pytest.param(
            CLAIM_ADDED, None, make_pvc("c", namespace="other"), False, id="a claim was added elsewhere"
        ),
    ],
)
def test_what_requeues_a_pod(
    event: tuple[Resource, Action], old: Object | None, new: Object | None, helps: bool
) -> None:
    pod = make_pod(claims=["c"], volumes=[gce("d")])
    assert requeues(make_plugin(VolumeRestrictions), event, pod, old, new) is helps
