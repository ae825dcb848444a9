"""Generated clusters with storage of every kind, small enough that names meet at random."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from msgspec.structs import replace

from bayplan.api.meta import LabelSelectorRequirement, NodeSelector, NodeSelectorTerm, ObjectReference
from bayplan.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    AzureFileVolumeSource,
    EphemeralVolumeSource,
    GCEPersistentDiskVolumeSource,
    ISCSIVolumeSource,
    RBDVolumeSource,
    VsphereVolumeSource,
)
from bayplan.api.storage import PersistentVolumeSpec, VolumeNodeAffinity
from bayplan.plugin import Cluster, LabelSelector, Node, Object, Pod
from bayplan.plugin.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from bayplan.testing.builders import (
    make_claim_volume,
    make_csi_capacity,
    make_csi_driver,
    make_csi_node,
    make_node,
    make_owner,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_class,
    make_volume_attachment,
)

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION, BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
HOST = "kubernetes.io/hostname"
EBS_ZONE, GKE_ZONE = "topology.ebs.csi.aws.com/zone", "topology.gke.io/zone"
KEYS = (ZONE, BETA_ZONE, REGION, BETA_REGION, HOST, EBS_ZONE, GKE_ZONE)
ZONES = ("us-east1-a", "us-east1-b")
DRIVERS = ("csi.example.com", "ebs.csi.aws.com", "pd.csi.storage.gke.io")
PLUGINS = ("kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/vsphere-volume")
CLASSES = ("static", "made", "in-tree", "immediate", "gone")
NODES = tuple(f"n{i}" for i in range(4))
CLAIMS = tuple(f"c{i}" for i in range(4))
VOLUMES = tuple(f"v{i}" for i in range(5))
NAMESPACES = ("default", "other")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Storage:
    """Makes objects at random. Every choice comes from `rng`, so that it can be repeated."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._pods = 0

    def maybe(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def labels(self, percent: int = 50) -> dict[str, str]:
        return {key: self.rng.choice(ZONES) for key in KEYS if self.maybe(percent)}

    def node(self, name: str) -> Node:
        return make_node(name, labels={**self.labels(), **({HOST: name} if self.maybe(80) else {})})

    def csi_node(self, name: str) -> CSINode:
        limits: dict[str, int | None] = {
            driver: self.rng.choice((0, 1, 2, 3, None)) for driver in DRIVERS if self.maybe(70)
        }
        moved = ",".join(plugin for plugin in PLUGINS if self.maybe(50))
        key = "storage.alpha.kubernetes.io/migrated-plugins"
        return make_csi_node(name, limits, annotations={key: moved} if self.maybe(80) else {})

    def storage_class(self, name: str) -> StorageClass:
        provisioner = {
            "static": "kubernetes.io/no-provisioner",
            "in-tree": self.rng.choice(PLUGINS),
        }.get(name, DRIVERS[0])
        allowed = [
            {self.rng.choice(KEYS): self.rng.sample(ZONES, self.rng.randint(1, 2))}
            for _ in range(self.rng.choice((0, 0, 1, 2)))
        ]
        return make_storage_class(
            name, provisioner=provisioner, wait_for_consumer=name != "immediate", allowed=allowed
        )

    def expression(self) -> LabelSelectorRequirement:
        key, operator = (
            self.rng.choice(KEYS),
            self.rng.choice(("In", "In", "In", "NotIn", "Exists", "?")),
        )
        choices = NODES if key == HOST else ZONES
        values = self.rng.sample(choices, self.rng.randint(1, 2)) if operator != "Exists" else ()
        return LabelSelectorRequirement(key=key, operator=operator, values=tuple(values))

    def affinity(self) -> VolumeNodeAffinity | None:
        if self.maybe(30):
            return None
        terms = []
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            fields = (
                (LabelSelectorRequirement(key="metadata.name", operator="In", values=("n0",)),)
                if self.maybe(15)
                else ()
            )
            expressions = tuple(self.expression() for _ in range(self.rng.choice((0, 1, 1, 1, 2))))
            terms.append(NodeSelectorTerm(match_expressions=expressions, match_fields=fields))
        return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=tuple(terms)))

    def volume(self, name: str) -> PersistentVolume:
        made = make_pv(
            name,
            capacity=self.rng.choice(("1Gi", "2Gi", "3Gi")),
            storage_class=self.rng.choice(CLASSES),
            access_modes=self.rng.choice((("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany"))),
            driver=self.rng.choice((None, *DRIVERS)),
            volume_mode=self.rng.choice((None, "Filesystem", "Filesystem", "Block")),
            phase=self.rng.choice(("Available", "Available", "Available", "Bound")),
            labels=self.labels(20),
            deleted=LONG_AGO if self.maybe(5) else None,
        )
        if self.maybe(10):
            made.labels[ZONE] = self.rng.choice(("us-east1-a__us-east1-b", "a__", "us-east1-a__x"))
        spec = replace(
            made.spec,
            node_affinity=self.affinity(),
            volume_attributes_class_name="gold" if self.maybe(10) else None,
        )
        if spec.csi is None:
            spec = self.in_tree(spec)
        if self.maybe(30):
            claim, namespace = self.rng.choice(CLAIMS), self.rng.choice(NAMESPACES)
            uid = self.rng.choice(("", f"persistentvolumeclaim/{namespace}/{claim}", "another"))
            spec = replace(spec, claim_ref=ObjectReference(namespace=namespace, name=claim, uid=uid))
        return replace(made, spec=spec)

    def in_tree(self, spec: PersistentVolumeSpec) -> PersistentVolumeSpec:
        kind = self.rng.randrange(4)
        if kind == 0:
            volume_id = self.rng.choice(("vol-1", "aws://a/vol-1", "aws://a/1"))
            return replace(
                spec, aws_elastic_block_store=AWSElasticBlockStoreVolumeSource(volume_id=volume_id)
            )
        if kind == 1:
            return replace(spec, gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name="d"))
        if kind == 2:
            return replace(spec, vsphere_volume=VsphereVolumeSource(volume_path="p"))
        return spec

    def claim(self, name: str, namespace: str) -> PersistentVolumeClaim:
        volume = self.rng.choice((*VOLUMES, "lost")) if self.maybe(45) else ""
        annotations = {}
        if not volume and self.maybe(15):
            annotations["volume.kubernetes.io/selected-node"] = self.rng.choice(NODES)
        made = make_pvc(
            name,
            namespace=namespace,
            storage=self.rng.choice(("1Gi", "2Gi", "1500Mi")),
            storage_class=self.rng.choice(("static", "static", "made", "made", "in-tree", "in-tree", "gone")),
            access_modes=(self.rng.choice(("ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany")),),
            volume=volume,
            volume_mode=self.rng.choice((None, "Filesystem")),
            annotations=annotations,
            selector=self.selector() if self.maybe(15) else None,
        )
        if self.maybe(5):
            return replace(made, spec=replace(made.spec, volume_attributes_class_name="gold"))
        return made

    def selector(self) -> LabelSelector:
        if self.maybe(30):
            return LabelSelector(match_labels={"not a key": "x"})
        return LabelSelector(match_labels={self.rng.choice(KEYS): self.rng.choice(ZONES)})

    def capacity(self, name: str) -> CSIStorageCapacity:
        return make_csi_capacity(
            name,
            self.rng.choice(("made", "in-tree")),
            capacity=self.rng.choice((None, "1Gi", "2Gi")),
            maximum_volume_size="1Gi" if self.maybe(20) else None,
            on_nodes_with=self.rng.choice(
                (None, {}, {ZONE: ZONES[0]}, {HOST: "n1"}, {ZONE: "a", HOST: "n1"})
            ),
        )

    def attachment(self, name: str) -> VolumeAttachment:
        return make_volume_attachment(
            name,
            driver=self.rng.choice((*DRIVERS, "")),
            node=self.rng.choice(NODES),
            volume=self.rng.choice(VOLUMES),
        )

    def pod_volume(self, name: str) -> Volume:
        read_only = self.maybe(50)
        kind = self.rng.randrange(12)
        if kind < 5:
            return replace(make_claim_volume(self.rng.choice(CLAIMS)), name=name)
        disk = self.rng.choice(("d", "e"))
        volume = Volume(name=name)
        if kind == 5:
            return replace(volume, ephemeral=EphemeralVolumeSource())
        if kind == 6:
            return replace(
                volume, gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name=disk, read_only=read_only)
            )
        if kind == 7:
            volume_id = self.rng.choice(("vol-1", "vol-2", "aws://a/vol-1", "aws://a/1"))
            return replace(
                volume,
                aws_elastic_block_store=AWSElasticBlockStoreVolumeSource(
                    volume_id=volume_id, read_only=read_only
                ),
            )
        if kind == 8:
            return replace(volume, iscsi=ISCSIVolumeSource(iqn=disk, read_only=read_only))
        if kind == 9:
            monitors = tuple(self.rng.sample(("a", "b", "c"), self.rng.randint(1, 2)))
            return replace(
                volume, rbd=RBDVolumeSource(monitors=monitors, pool="p", image=disk, read_only=read_only)
            )
        if kind == 10:
            return replace(volume, azure_file=AzureFileVolumeSource(share_name="s"))
        return volume

    def pod(self) -> Pod:
        self._pods += 1
        volumes = [self.pod_volume(f"volume-{i}") for i in range(self.rng.choice((0, 1, 1, 2, 3)))]
        return make_pod(f"p{self._pods}", namespace=self.rng.choice(NAMESPACES), volumes=volumes)

    def made_for(self, pod: Pod) -> list[PersistentVolumeClaim]:
        """The claims of a pod's ephemeral volumes, mostly."""
        claims = []
        for volume in pod.spec.volumes:
            if volume.ephemeral is not None and self.maybe(85):
                uid = pod.uid if self.maybe(90) else "another"
                claim = self.claim(f"{pod.name}-{volume.name}", pod.namespace)
                owner = make_owner("Pod", pod.name, uid=uid, api_version="v1")
                claims.append(replace(claim, metadata=replace(claim.metadata, owner_references=(owner,))))
        return claims

    def cluster(self) -> Cluster:
        cluster = Cluster()
        for name in NODES:
            if self.maybe(90):
                cluster.set_node(self.node(name))
        for item in self.objects():
            cluster.objects.put(item)
        for _ in range(self.rng.randrange(8)):
            self.place(cluster)
        return cluster

    def objects(self) -> list[Object]:
        items: list[Object] = [make_csi_driver(DRIVERS[0], storage_capacity=self.maybe(60))]
        items += [self.csi_node(name) for name in NODES if self.maybe(80)]
        items += [self.storage_class(name) for name in CLASSES[:-1]]
        items += [self.volume(name) for name in VOLUMES if self.maybe(80)]
        items += [self.claim(name, ns) for name in CLAIMS for ns in NAMESPACES if self.maybe(90)]
        items += [self.capacity(f"k{i}") for i in range(3) if self.maybe(60)]
        items += [self.attachment(f"a{i}") for i in range(4) if self.maybe(50)]
        return items

    def place(self, cluster: Cluster) -> None:
        pod = self.pod()
        for claim in self.made_for(pod):
            cluster.objects.put(claim)
        cluster.add_pod(pod, self.rng.choice(NODES))

    def change(self, cluster: Cluster) -> None:
        """Something happens."""
        kind = self.rng.randrange(10)
        assigned = [p for p in cluster.pods.pod if p is not None and cluster.assigned_pod(p.uid) is not None]
        if kind < 2:
            self.place(cluster)
        elif kind < 4 and assigned:
            cluster.remove_pod(self.rng.choice(assigned).uid)
        elif kind == 4:
            name = self.rng.choice(NODES)
            is_there = (
                name in cluster.nodes.row_of and cluster.nodes.node[cluster.nodes.row_of[name]] is not None
            )
            if is_there and self.maybe(50):
                cluster.remove_node(name)
            else:
                cluster.set_node(self.node(name))
        else:
            item = self.rng.choice(self.objects())
            if self.maybe(25):
                cluster.objects.remove(item)
            else:
                cluster.objects.put(item)
