"""In-tree volumes as the CSI drivers that took over see them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.meta import NodeSelector, NodeSelectorTerm
from bayplan.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CinderVolumeSource,
    GCEPersistentDiskVolumeSource,
    PortworxVolumeSource,
    Volume,
    VsphereVolumeSource,
)
from bayplan.api.storage import (
    AWS_EBS,
    AZURE_DISK,
    CINDER,
    GCE_PD,
    IN_TREE_PLUGINS,
    PORTWORX,
    VSPHERE,
    InTreePlugin,
    PersistentVolume,
    TranslationError,
    VolumeNodeAffinity,
    in_tree_plugin,
    inline_handle,
    migrated_affinity,
    migrated_plugins,
    volume_handle,
)
from bayplan.testing.builders import make_csi_node, make_expression, make_node_term, make_pv

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION, BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"

SOURCES: dict[str, Any] = {
    "gce_persistent_disk": GCEPersistentDiskVolumeSource(pd_name="d"),
    "aws_elastic_block_store": AWSElasticBlockStoreVolumeSource(volume_id="vol-1"),
    "azure_disk": AzureDiskVolumeSource(disk_name="d", disk_uri="/disks/d"),
    "azure_file": AzureFileVolumeSource(share_name="s"),
    "cinder": CinderVolumeSource(volume_id="c"),
    "vsphere_volume": VsphereVolumeSource(volume_path="[ds] d.vmdk"),
    "portworx_volume": PortworxVolumeSource(volume_id="p"),
}


def volume_of(
    plugin: InTreePlugin, *terms: NodeSelectorTerm, labels: dict[str, str] | None = None, **source: Any
) -> PersistentVolume:
    made = make_pv("v", labels=labels)
    description = replace(SOURCES[plugin.source], **source) if source else SOURCES[plugin.source]
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms)) if terms else None
    return replace(made, spec=replace(made.spec, node_affinity=affinity, **{plugin.source: description}))


@pytest.mark.parametrize("plugin", IN_TREE_PLUGINS.values(), ids=lambda plugin: plugin.name)
def test_a_plugin_is_known_by_its_description(plugin: InTreePlugin) -> None:
    """In a pod as well as in a PersistentVolume."""
    inline = replace(Volume(name="x"), **{plugin.source: SOURCES[plugin.source]})
    assert in_tree_plugin(inline) is plugin
    assert in_tree_plugin(volume_of(plugin).spec) is plugin


def test_other_volumes_have_no_plugin() -> None:
    assert in_tree_plugin(Volume(name="config")) is None
    assert in_tree_plugin(make_pv("v", driver="csi.example.com").spec) is None


@pytest.mark.parametrize(
    ("plugin", "handle"),
    [
        pytest.param(GCE_PD, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", id="gce-pd"),
        pytest.param(AWS_EBS, "vol-1", id="aws-ebs"),
        pytest.param(AZURE_DISK, "/disks/d", id="azure-disk"),
        pytest.param(CINDER, "c", id="cinder"),
        pytest.param(PORTWORX, "p", id="portworx"),
    ],
)
def test_a_volume_has_the_same_handle_wherever_it_is_written(plugin: InTreePlugin, handle: str) -> None:
    inline = replace(Volume(name="x"), **{plugin.source: SOURCES[plugin.source]})
    assert inline_handle(plugin, inline) == handle
    assert volume_handle(plugin, volume_of(plugin)) == handle


@pytest.mark.parametrize(
    ("labels", "handle"),
    [
        pytest.param({ZONE: "us-east1-b"}, "zones/us-east1-b", id="one zone"),
        pytest.param(
            {ZONE: "us-east1-b", BETA_ZONE: "us-east1-c"}, "zones/us-east1-c", id="the old label first"
        ),
        pytest.param({ZONE: "us-east1-b", BETA_ZONE: ""}, "zones/us-east1-b", id="unless it is empty"),
        pytest.param({ZONE: "us-east1-b__us-east1-c"}, "regions/us-east1", id="several zones of a region"),
    ],
)
def test_a_disk_of_gce_is_named_by_where_it_is(labels: dict[str, str], handle: str) -> None:
    assert volume_handle(GCE_PD, volume_of(GCE_PD, labels=labels)) == f"projects/UNSPECIFIED/{handle}/disks/d"


@pytest.mark.parametrize(
    ("zones", "problem"),
    [
        pytest.param(
            "a__b",
            "zone in unexpected format, expected: {locale}-{region}-{zone}, got: a",
            id="invalid zones",
        ),
        pytest.param(
            "us-west1-a__us-east1-b",
            "multiple or no regions gotten from zones, got: map[us-east1:{} us-west1:{}]",
            id="zones of two regions",
        ),
    ],
)
def test_a_disk_of_gce_has_to_be_in_one_region(zones: str, problem: str) -> None:
    with pytest.raises(TranslationError) as raised:
        volume_handle(GCE_PD, volume_of(GCE_PD, labels={ZONE: zones}))
    assert str(raised.value) == f"failed to get region from zones: {problem}"


@pytest.mark.parametrize(
    ("written", "handle"),
    [
        pytest.param("vol-1", "vol-1", id="bare"),
        pytest.param("anything", "anything", id="bare, whatever it is"),
        pytest.param("aws://us-east-1a/vol-1", "vol-1", id="with a zone"),
        pytest.param("aws:///vol-1", "vol-1", id="without"),
        pytest.param("aws://us-east-1a/vol-1/", "vol-1", id="with a slash at the end"),
    ],
)
def test_a_volume_of_ebs_can_be_written_in_several_ways(written: str, handle: str) -> None:
    assert volume_handle(AWS_EBS, volume_of(AWS_EBS, volume_id=written)) == handle


@pytest.mark.parametrize("written", ["aws://a/disk-1", "aws://vol-1", "aws://a/vol-1/x", "aws://[/vol-1"])
def test_but_not_in_others(written: str) -> None:
    with pytest.raises(TranslationError) as raised:
        volume_handle(AWS_EBS, volume_of(AWS_EBS, volume_id=written))
    text = "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume"
    assert str(raised.value) == f"{text} ({written})"


def zone(key: str, *values: str) -> NodeSelectorTerm:
    return make_node_term(make_expression(key, "In", *values))


GKE, EBS = "topology.gke.io/zone", "topology.ebs.csi.aws.com/zone"
VC_ZONE, VC_REGION = "topology.csi.vmware.com/zone", "topology.csi.vmware.com/region"
RACK = make_expression("rack", "In", "1")


@pytest.mark.parametrize(
    ("volume", "terms"),
    [
        pytest.param(volume_of(GCE_PD, zone(ZONE, "a")), [zone(GKE, "a")], id="today's label"),
        pytest.param(volume_of(AWS_EBS, zone(BETA_ZONE, "a")), [zone(EBS, "a")], id="the old label"),
        pytest.param(
            volume_of(AWS_EBS, zone(ZONE, "a"), zone(BETA_ZONE, "b")),
            [zone(EBS, "a"), zone(BETA_ZONE, "b")],
            id="today's label hides the old one",
        ),
        pytest.param(
            volume_of(CINDER, make_node_term(RACK, make_expression(ZONE, "In", "a"))),
            [make_node_term(RACK, make_expression("topology.cinder.csi.openstack.org/zone", "In", "a"))],
            id="other demands stay",
        ),
        pytest.param(volume_of(GCE_PD, labels={ZONE: "a"}), [zone(GKE, "a")], id="the volume's label"),
        pytest.param(
            volume_of(AWS_EBS, labels={ZONE: "b__a"}), [zone(EBS, "a", "b")], id="several zones in the label"
        ),
        pytest.param(
            volume_of(AWS_EBS, make_node_term(RACK), make_node_term(), labels={BETA_ZONE: "a"}),
            [
                make_node_term(RACK, make_expression(EBS, "In", "a")),
                make_node_term(make_expression(EBS, "In", "a")),
            ],
            id="the label joins every term",
        ),
        pytest.param(
            volume_of(AWS_EBS, zone(ZONE, "a"), labels={ZONE: "b"}),
            [zone(EBS, "a")],
            id="the affinity has precedence",
        ),
        pytest.param(
            volume_of(AWS_EBS, make_node_term(make_expression(ZONE, "Exists")), labels={ZONE: "b"}),
            [make_node_term(make_expression(ZONE, "Exists"), make_expression(EBS, "In", "b"))],
            id="unless it names no zone",
        ),
        pytest.param(
            volume_of(
                AWS_EBS,
                make_node_term(
                    make_expression(BETA_ZONE, "In", "a"), make_expression(BETA_REGION, "In", "r")
                ),
            ),
            [make_node_term(make_expression(EBS, "In", "a"), make_expression(REGION, "In", "r"))],
            id="an old region becomes today's",
        ),
        pytest.param(volume_of(AWS_EBS, labels={ZONE: "__"}), None, id="a label without zones is ignored"),
        pytest.param(volume_of(AWS_EBS), None, id="nothing is known"),
        pytest.param(
            volume_of(
                VSPHERE,
                make_node_term(make_expression(ZONE, "In", "a"), make_expression(REGION, "In", "r")),
            ),
            [make_node_term(make_expression(VC_ZONE, "In", "a"), make_expression(VC_REGION, "In", "r"))],
            id="vSphere has a label for regions too",
        ),
        pytest.param(
            volume_of(VSPHERE, labels={ZONE: "a__b", REGION: "r"}),
            [make_node_term(make_expression(VC_ZONE, "In", "a__b"), make_expression(VC_REGION, "In", "r"))],
            id="and takes labels as they are",
        ),
        pytest.param(volume_of(AZURE_DISK, zone(ZONE, "a")), [zone(ZONE, "a")], id="Azure changes nothing"),
    ],
)
def test_zones_are_looked_up_under_the_drivers_label(
    volume: PersistentVolume, terms: list[NodeSelectorTerm] | None
) -> None:
    plugin = in_tree_plugin(volume.spec)
    assert plugin is not None
    expected = None if terms is None else NodeSelector(node_selector_terms=tuple(terms))
    assert migrated_affinity(plugin, volume) == expected


def test_a_volume_that_the_driver_would_not_recognize_has_no_affinity() -> None:
    with pytest.raises(TranslationError):
        migrated_affinity(AWS_EBS, volume_of(AWS_EBS, zone(ZONE, "a"), volume_id="aws://a/1"))


@pytest.mark.parametrize(
    ("annotation", "plugins"),
    [
        pytest.param(None, set(), id="no annotation"),
        pytest.param("", set(), id="an empty one"),
        pytest.param("a", {"a"}, id="one plugin"),
        pytest.param("a,b", {"a", "b"}, id="several"),
    ],
)
def test_the_annotation_of_a_node_lists_migrated_plugins(annotation: str | None, plugins: set[str]) -> None:
    key = "storage.alpha.kubernetes.io/migrated-plugins"
    csi_node = make_csi_node("n", annotations={} if annotation is None else {key: annotation})
    assert migrated_plugins(csi_node) == plugins
