"""PreFilter of VolumeBinding, and pods with bound claims."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    EphemeralVolumeSource,
    GCEPersistentDiskVolumeSource,
)
from bayplan.plugin import SKIP, Code, CycleState, NodeColumns, Object, Pod, Status, failure, unresolvable
from bayplan.plugin.storage import (
    PersistentVolume,
    Volume,
)
from bayplan.plugins.volume_binding import (
    REASON_AFFINITY,
    REASON_LOST_VOLUME,
    REASON_NO_VOLUME,
    VolumeBinding,
)
from bayplan.plugins.volume_binding.claims import UNBOUND_IMMEDIATE
from bayplan.testing.builders import (
    make_csi_node,
    make_expression,
    make_node,
    make_node_term,
    make_owner,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_class,
)
from bayplan.testing.calling import make_plugin

from ..evaluating import points
from ..volume_evaluating import evaluate, storage_cluster
from .clusters import BOUND, HOST, LONG_AGO, MADE, NODES, ZONE, pinned, rejected, rejections


def test_its_points_are_upstreams() -> None:
    assert points(VolumeBinding) == {"PreFilter", "Filter", "PreScore", "Score", "Reserve", "PreBind"}


def test_it_does_not_score_as_long_as_the_gate_is_off() -> None:
    nodes = NodeColumns(storage_cluster(NODES))
    assert make_plugin(VolumeBinding).pre_score(CycleState(), make_pod(), nodes) is SKIP
    assert make_plugin(VolumeBinding).score(CycleState(), make_pod(), nodes).tolist() == [0, 0]


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
            id="or has another owner",
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
            id="a terminating claim",
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
            id="a class without a binding mode",
        ),
        pytest.param(
            make_pod(claims=["c", "x"]),
            [make_pvc("c")],
            unresolvable('persistentvolumeclaim "x" not found'),
            id="what is missing is reported before what is unbound",
        ),
    ],
)
def test_claims_that_are_not_ready_reject_the_pod(pod: Pod, objects: list[Object], answer: Status) -> None:
    assert rejections(pod, *objects) == answer


def test_the_claim_of_an_ephemeral_volume_counts() -> None:
    claim = make_pvc("p-e", volume="v", owner=OWN)
    assert rejections(EPHEMERAL, claim, make_pv("v", on_nodes_with={ZONE: ["a"]})) == {
        "m": rejected(REASON_AFFINITY)
    }


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
            id="unless it is required in an invalid way",
        ),
        pytest.param(pinned("v", make_node_term()), "", id="an empty term matches nothing"),
        pytest.param(pinned("v"), "", id="no term at all matches nothing"),
        pytest.param(
            pinned("v", make_node_term(make_expression(ZONE, "Near", "a"))),
            "",
            id="what cannot be parsed neither",
        ),
    ],
)
def test_a_bound_volume_ties_the_pod_to_the_nodes_it_reaches(volume: PersistentVolume, reached: str) -> None:
    found = rejections(make_pod(claims=["c"]), BOUND, volume)
    assert found == {name: rejected(REASON_AFFINITY) for name in "nm" if name not in reached}


def test_a_bound_claim_whose_volume_is_gone_fits_nowhere() -> None:
    assert rejections(make_pod(claims=["c"]), BOUND) == dict.fromkeys("nm", rejected(REASON_LOST_VOLUME))


def test_the_first_bound_claim_that_fails_decides() -> None:
    claims = [make_pvc("c", volume="v"), make_pvc("d", volume="gone")]
    found = rejections(make_pod(claims=["c", "d"]), *claims, make_pv("v", on_nodes_with={ZONE: ["a"]}))
    assert found == {"n": rejected(REASON_LOST_VOLUME), "m": rejected(REASON_AFFINITY)}


def test_bound_and_unbound_claims_add_up_their_reasons() -> None:
    found = rejections(
        make_pod(claims=["c", "d"]),
        BOUND,
        make_pv("v", on_nodes_with={ZONE: ["a"]}),
        make_pvc("d", storage_class="static"),
    )
    assert found == {"n": rejected(REASON_NO_VOLUME), "m": rejected(REASON_AFFINITY, REASON_NO_VOLUME)}


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
    """Nodes n and m have contradictory values under the old label and the driver's."""
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
    found = evaluate(make_plugin(VolumeBinding), make_pod(claims=["c"]), cluster)
    assert found == {name: rejected(REASON_AFFINITY) for name in "nm" if name not in reached}


def test_a_volume_that_does_not_translate_is_an_error_where_its_plugin_has_moved() -> None:
    volume = make_pv("v", on_nodes_with={ZONE: ["a"]})
    source = AWSElasticBlockStoreVolumeSource(volume_id="aws://a/1")
    volume = replace(volume, spec=replace(volume.spec, aws_elastic_block_store=source))
    note = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
    text = (
        "could not translate pv: failed to translate Kubernetes ID to EBS Volume ID "
        "Invalid format for AWS volume (aws://a/1)"
    )
    found = rejections(make_pod(claims=["c"]), BOUND, volume, make_csi_node("n", annotations=note))
    assert found == {"n": (Code.ERROR, frozenset({text})), "m": rejected(REASON_AFFINITY)}
