"""NodeVolumeLimits: a CSI driver attaches only so many volumes to a node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from bayplan.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    AzureFileVolumeSource,
    EphemeralVolumeSource,
    GCEPersistentDiskVolumeSource,
)
from bayplan.api.storage import CSINodeDriver, CSINodeSpec
from bayplan.plugin import SKIP, Action, Cluster, Code, CycleState, NodeColumns, Object, Pod, Resource
from bayplan.plugin.storage import CSINode, Volume
from bayplan.plugins.node_volume_limits import REASON, NodeVolumeLimits
from bayplan.testing.builders import (
    make_csi_node,
    make_node,
    make_owner,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_class,
    make_volume_attachment,
)
from bayplan.testing.calling import make_plugin

from .evaluating import points, registrations, requeues
from .volume_evaluating import evaluate, filtered, storage_cluster, supposing

DRIVER, OTHER = "csi.example.com", "other.example.com"
EBS = "ebs.csi.aws.com"
FULL = (Code.UNSCHEDULABLE, frozenset({REASON}))


def bound(name: str, volume: str = "", driver: str = DRIVER) -> list[Object]:
    """A claim with its volume, which has the claim's name unless another is given."""
    claim = make_pvc(name, volume=volume or name)
    return [claim, make_pv(volume or name, claim=claim, driver=driver)]


def ebs(volume_id: str, name: str = "disk") -> Volume:
    return Volume(name=name, aws_elastic_block_store=AWSElasticBlockStoreVolumeSource(volume_id=volume_id))


def scratch(name: str = "scratch") -> Volume:
    return Volume(name=name, ephemeral=EphemeralVolumeSource())


def node_with(
    limits: dict[str, int | None], *objects: Object, used_by: Sequence[Pod] = (), csi: bool = True
) -> Cluster:
    csi_nodes = [make_csi_node("n", limits)] if csi else []
    return storage_cluster([make_node("n")], *csi_nodes, *objects, assigned={"n": used_by})


def test_its_points_are_upstreams() -> None:
    assert points(NodeVolumeLimits) == {"PreFilter", "Filter"}


@pytest.mark.parametrize(
    ("pod", "skipped"),
    [
        pytest.param(make_pod(), True, id="no volumes"),
        pytest.param(make_pod(volumes=[Volume(name="config")]), True, id="a volume that is not attached"),
        pytest.param(make_pod(claims=["c"]), False, id="a claim"),
        pytest.param(make_pod(volumes=[scratch()]), False, id="an ephemeral volume"),
        pytest.param(make_pod(volumes=[ebs("vol-1")]), False, id="a volume that has moved to CSI"),
        pytest.param(
            make_pod(volumes=[Volume(name="f", azure_file=AzureFileVolumeSource())]),
            False,
            id="one that has moved, although it never counts",
        ),
    ],
)
def test_pods_without_attachable_volumes_are_skipped(pod: Pod, skipped: bool) -> None:
    plugin, cluster = make_plugin(NodeVolumeLimits), node_with({})
    assert (plugin.pre_filter(CycleState(), pod, NodeColumns(cluster)) is SKIP) is skipped


A, B, C = bound("a"), bound("b"), bound("c")
UNBOUND = make_pvc("new", storage_class="k")


@pytest.mark.parametrize(
    ("limit", "objects", "used", "wanted", "fits"),
    [
        pytest.param(2, [*A, *B], ["a"], ["b"], True, id="there is room"),
        pytest.param(1, [*A, *B], ["a"], ["b"], False, id="there is none"),
        pytest.param(1, [*A, *B], [], ["a", "b"], False, id="both new volumes count"),
        pytest.param(0, A, [], ["a"], False, id="nothing is a limit too"),
        pytest.param(None, [*A, *B], ["a"], ["b"], True, id="no limit"),
        pytest.param(1, A, ["a"], ["a"], True, id="a volume that is there already"),
        pytest.param(0, A, ["a"], ["a"], True, id="even if there are too many"),
        pytest.param(1, [*A, *bound("b", volume="a")], ["a"], ["b"], True, id="two claims of one volume"),
        pytest.param(1, [*A, *bound("b", driver=OTHER)], ["a"], ["b"], True, id="a volume of another driver"),
        pytest.param(
            1, [*A, make_pvc("b", volume="lost")], ["a"], ["b"], True, id="a lost volume of no class"
        ),
        pytest.param(
            1,
            [*A, UNBOUND, make_storage_class("k", provisioner=DRIVER)],
            ["a"],
            ["new"],
            False,
            id="a volume that is to be made",
        ),
        pytest.param(
            1,
            [UNBOUND, make_storage_class("k", provisioner=DRIVER)],
            ["new"],
            ["new"],
            True,
            id="which counts once",
        ),
        pytest.param(1, [*A, UNBOUND], ["a"], ["new"], True, id="a claim whose class is not there"),
        pytest.param(
            1,
            [
                *A,
                make_pvc("b", volume="lost", storage_class="k"),
                make_storage_class("k", provisioner=DRIVER),
            ],
            ["a"],
            ["b"],
            False,
            id="a lost volume counts by its class",
        ),
        pytest.param(1, A, ["gone"], ["a"], True, id="a running pod's deleted claim"),
        pytest.param(
            1, [make_pvc("a", volume="a"), make_pv("a"), *B], ["a"], ["b"], True, id="not a CSI volume"
        ),
    ],
)
def test_volumes_are_counted_once_and_by_driver(
    limit: int | None, objects: list[Object], used: list[str], wanted: list[str], fits: bool
) -> None:
    cluster = node_with({DRIVER: limit}, *objects, used_by=[make_pod(f"on-{c}", claims=[c]) for c in used])
    rejections = evaluate(make_plugin(NodeVolumeLimits), make_pod(claims=wanted), cluster)
    assert rejections == ({} if fits else {"n": FULL})


@pytest.mark.parametrize(
    ("attachment", "fits"),
    [
        pytest.param(make_volume_attachment("x", driver=DRIVER, node="n", volume="b"), False, id="attached"),
        pytest.param(make_volume_attachment("x", driver=DRIVER, node="m", volume="b"), True, id="elsewhere"),
        pytest.param(make_volume_attachment("x", driver=DRIVER, node="n", volume="a"), True, id="and used"),
        pytest.param(
            make_volume_attachment("x", driver=DRIVER, node="n", volume="z"), True, id="no such volume"
        ),
        pytest.param(
            make_volume_attachment("x", driver="", node="n", volume="b"), True, id="without a driver"
        ),
        pytest.param(make_volume_attachment("x", driver=OTHER, node="n", volume="b"), True, id="by another"),
        pytest.param(
            make_volume_attachment("x", driver=DRIVER, node="n", volume="c"),
            False,
            id="the very volume, which then counts on both sides",
        ),
    ],
)
def test_what_is_attached_counts_although_no_pod_uses_it(attachment: Object, fits: bool) -> None:
    """Trap: with a limit of 2, a volume in use and one that is only attached leave no room."""
    cluster = node_with({DRIVER: 2}, *A, *B, *C, attachment, used_by=[make_pod("on-a", claims=["a"])])
    rejections = evaluate(make_plugin(NodeVolumeLimits), make_pod(claims=["c"]), cluster)
    assert rejections == ({} if fits else {"n": FULL})


IN_TREE = make_pv("b")
IN_TREE = replace(
    IN_TREE,
    spec=replace(IN_TREE.spec, aws_elastic_block_store=AWSElasticBlockStoreVolumeSource(volume_id="vol-1")),
)


@pytest.mark.parametrize(
    ("wanted", "used", "fits"),
    [
        pytest.param(make_pod(volumes=[ebs("vol-2")]), [ebs("vol-1")], False, id="another volume"),
        pytest.param(make_pod(volumes=[ebs("vol-1")]), [ebs("vol-1")], True, id="the same volume"),
        pytest.param(make_pod(volumes=[ebs("aws://z/vol-1")]), [ebs("vol-1")], True, id="written otherwise"),
        pytest.param(make_pod(claims=["b"]), [ebs("vol-1")], True, id="the same volume by a claim"),
        pytest.param(make_pod(claims=["b"]), [ebs("vol-2")], False, id="another volume by a claim"),
        pytest.param(make_pod(claims=["new"]), [ebs("vol-2")], False, id="one that is to be made"),
        pytest.param(
            make_pod(
                volumes=[Volume(name="g", gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name="d"))]
            ),
            [ebs("vol-2")],
            True,
            id="a volume of another plugin",
        ),
    ],
)
def test_in_tree_volumes_count_as_their_csi_drivers(wanted: Pod, used: list[Volume], fits: bool) -> None:
    cluster = node_with(
        {EBS: 1},
        make_pvc("b", volume="b"),
        IN_TREE,
        UNBOUND,
        make_storage_class("k", provisioner="kubernetes.io/aws-ebs"),
        used_by=[make_pod("other", volumes=used)],
    )
    assert evaluate(make_plugin(NodeVolumeLimits), wanted, cluster) == ({} if fits else {"n": FULL})


OWN = make_owner("Pod", "p", uid="pod/default/p", api_version="v1")
NOT_FOUND = 'looking up PVC default/{0}: persistentvolumeclaim "{0}" not found'
NOT_OWNER = "PVC default/p-scratch was not created for pod default/p (pod is not owner)"
BAD_EBS = (
    "converting volume(disk) from inline to csi: failed to translate Kubernetes ID to EBS Volume ID "
    "Invalid format for AWS volume (aws://z/1)"
)


@pytest.mark.parametrize("csi", [pytest.param(True, id="CSINode"), pytest.param(False, id="no CSINode")])
@pytest.mark.parametrize(
    ("pod", "code", "text"),
    [
        pytest.param(make_pod(claims=["x"]), Code.UNRESOLVABLE, NOT_FOUND.format("x"), id="no claim"),
        pytest.param(
            make_pod("q", volumes=[scratch()]),
            Code.UNRESOLVABLE,
            NOT_FOUND.format("q-scratch"),
            id="an ephemeral volume's claim is not there yet",
        ),
        pytest.param(make_pod("p", volumes=[scratch()]), Code.ERROR, NOT_OWNER, id="or of another owner"),
        pytest.param(
            make_pod(claims=[""]), Code.ERROR, "PersistentVolumeClaim had no name", id="a claim without name"
        ),
    ],
)
def test_a_pod_whose_volumes_cannot_be_identified_is_rejected(
    pod: Pod, code: Code, text: str, csi: bool
) -> None:
    cluster = node_with({DRIVER: 1}, make_pvc("p-scratch"), csi=csi)
    assert evaluate(make_plugin(NodeVolumeLimits), pod, cluster) == {"n": (code, frozenset({text}))}


def test_an_inline_volume_that_does_not_translate_is_an_error_where_it_would_be_counted() -> None:
    cluster = storage_cluster([make_node("n"), make_node("m")], make_csi_node("n"))
    rejections = evaluate(make_plugin(NodeVolumeLimits), make_pod(volumes=[ebs("aws://z/1")]), cluster)
    assert rejections == {"n": (Code.ERROR, frozenset({BAD_EBS}))}


@pytest.mark.parametrize(
    ("limits", "broken"),
    [
        pytest.param({OTHER: 5}, True, id="on a node with limits, whatever they are about"),
        pytest.param({OTHER: None}, False, id="but not on one without"),
    ],
)
def test_a_running_pod_whose_volumes_cannot_be_identified_is_an_error(
    limits: dict[str, int | None], broken: bool
) -> None:
    pods = [make_pod("p", volumes=[scratch()])]
    cluster = node_with(limits, make_pvc("p-scratch"), *A, used_by=pods)
    rejections = evaluate(make_plugin(NodeVolumeLimits), make_pod("new", claims=["a"]), cluster)
    assert rejections == ({"n": (Code.ERROR, frozenset({NOT_OWNER}))} if broken else {})


def test_an_ephemeral_volume_counts_like_a_claim() -> None:
    own = make_pvc("p-scratch", storage_class="k", owner=OWN)
    cluster = node_with(
        {DRIVER: 1},
        own,
        *A,
        make_storage_class("k", provisioner=DRIVER),
        used_by=[make_pod("on-a", claims=["a"])],
    )
    assert evaluate(make_plugin(NodeVolumeLimits), make_pod("p", volumes=[scratch()]), cluster) == {"n": FULL}


def test_evicted_pods_leave_room_and_nominated_ones_take_it() -> None:
    """What is attached stays attached; pods in question without volumes change nothing."""
    on_n, idle, plugin, pod, state = (
        make_pod("on-n", claims=["a"]),
        make_pod("idle"),
        make_plugin(NodeVolumeLimits),
        make_pod("new", claims=["c"]),
        CycleState(),
    )
    cluster = storage_cluster(
        [make_node("n"), make_node("m"), make_node("o")],
        *(make_csi_node(name, {DRIVER: 1}) for name in "nmo"),
        *(item for name in "abc" for item in bound(name)),
        assigned={"n": [on_n], "o": [make_pod("on-o", claims=["b"]), idle]},
    )
    plugin.pre_filter(state, pod, NodeColumns(cluster))
    view = supposing(cluster, gone=[on_n, idle], added={"m": [make_pod("nominated", claims=["b"])]})
    assert filtered(plugin, state, pod, view) == {"m": FULL, "o": FULL}


def test_it_registers_for_the_events_upstream_does() -> None:
    assert registrations(make_plugin(NodeVolumeLimits)) == [
        (Resource.CSI_NODE, Action.ADD),
        (Resource.CSI_NODE, Action.UPDATE),
        (Resource.POD, Action.DELETE),
        (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
        (Resource.VOLUME_ATTACHMENT, Action.DELETE),
    ]


def csi_node(**limits: int | None) -> CSINode:
    return make_csi_node("n", limits)


POD_DELETED = (Resource.ASSIGNED_POD, Action.DELETE)
CSI_NODE_UPDATED = (Resource.CSI_NODE, Action.UPDATE)
CLAIM_ADDED = (Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
NEW_DRIVER = CSINode(spec=CSINodeSpec(drivers=(CSINodeDriver(name="a"),)))


@pytest.mark.parametrize(
    ("event", "old", "new", "helps"),
    [
        pytest.param((Resource.CSI_NODE, Action.ADD), None, csi_node(), True, id="a CSINode was added"),
        pytest.param(CSI_NODE_UPDATED, csi_node(a=1, b=3), csi_node(a=2, b=1), True, id="a limit grew"),
        pytest.param(CSI_NODE_UPDATED, csi_node(a=2), csi_node(a=2), False, id="no limit grew"),
        pytest.param(CSI_NODE_UPDATED, csi_node(a=2), csi_node(a=1), False, id="a limit shrank"),
        pytest.param(CSI_NODE_UPDATED, csi_node(), csi_node(a=1), True, id="a driver was added"),
        pytest.param(CSI_NODE_UPDATED, csi_node(), NEW_DRIVER, False, id="a driver was added without limit"),
        pytest.param(CSI_NODE_UPDATED, csi_node(a=1), csi_node(a=None), False, id="a limit was removed"),
        pytest.param(
            POD_DELETED,
            make_pod("x", node="n", claims=["z"]),
            None,
            True,
            id="a pod with a claim was deleted",
        ),
        pytest.param(
            POD_DELETED,
            make_pod("x", node="n", volumes=[scratch()]),
            None,
            True,
            id="one with a scratch volume",
        ),
        pytest.param(
            POD_DELETED,
            make_pod("x", node="n", volumes=[ebs("vol-9")]),
            None,
            True,
            id="one with an EBS volume",
        ),
        pytest.param(
            POD_DELETED,
            make_pod("x", nominated_node="n", claims=["z"]),
            None,
            True,
            id="one that was nominated",
        ),
        pytest.param(POD_DELETED, make_pod("x", claims=["z"]), None, False, id="one that was nowhere"),
        pytest.param(POD_DELETED, make_pod("x", node="n"), None, False, id="one without volumes"),
        pytest.param(CLAIM_ADDED, None, make_pvc("c"), True, id="the pod's claim was added"),
        pytest.param(
            CLAIM_ADDED, None, make_pvc("p-scratch"), True, id="its ephemeral volume's claim was added"
        ),
        pytest.param(CLAIM_ADDED, None, make_pvc("d"), False, id="another claim was added"),
        pytest.param(
            CLAIM_ADDED, None, make_pvc("c", namespace="x"), False, id="a claim was added elsewhere"
        ),
    ],
)
def test_what_requeues_a_pod(
    event: tuple[Resource, Action], old: Object | None, new: Object | None, helps: bool
) -> None:
    pod = make_pod("p", claims=["c"], volumes=[scratch()])
    assert requeues(make_plugin(NodeVolumeLimits), event, pod, old, new) is helps


@pytest.mark.parametrize(
    ("pod", "driver", "helps"),
    [
        pytest.param(make_pod(claims=["c"]), "any", True, id="any claim may be of that driver"),
        pytest.param(make_pod(volumes=[ebs("vol-1")]), EBS, True, id="an inline volume of that driver"),
        pytest.param(make_pod(volumes=[ebs("vol-1")]), DRIVER, False, id="one of another"),
        pytest.param(make_pod(volumes=[ebs("aws://z/1")]), DRIVER, True, id="one whose driver is unknown"),
        pytest.param(
            make_pod(volumes=[Volume(name="f", azure_file=AzureFileVolumeSource())]),
            "file.csi.azure.com",
            True,
            id="one that never counts",
        ),
        pytest.param(make_pod(volumes=[scratch()]), DRIVER, False, id="ephemeral volumes are not checked"),
    ],
)
def test_a_detached_volume_may_help(pod: Pod, driver: str, helps: bool) -> None:
    detached = make_volume_attachment("x", driver=driver, node="n", volume="v")
    event = (Resource.VOLUME_ATTACHMENT, Action.DELETE)
    assert requeues(make_plugin(NodeVolumeLimits), event, pod, detached, None) is helps
