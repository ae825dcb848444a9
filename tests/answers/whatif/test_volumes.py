"""Claims of new and moved pods: what StatefulSets, ephemeral volumes and storage classes make of them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from bayplan.answers.whatif import Cluster, Outcome
from bayplan.api.decode import decode_object
from bayplan.api.defaults import with_defaults
from bayplan.api.meta import Object
from bayplan.api.storage import PersistentVolumeClaim

CLUSTER = """
- {kind: Node, apiVersion: v1, metadata: {name: a0, labels: {topology.kubernetes.io/zone: a}}, status: &node
    {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}}
- {kind: Node, apiVersion: v1, metadata: {name: b0, labels: {topology.kubernetes.io/zone: b}}, status: *node}
- {kind: Node, apiVersion: v1, metadata: {name: b1, labels: {topology.kubernetes.io/zone: b}}, status: *node}
- {kind: StorageClass, apiVersion: storage.k8s.io/v1, metadata: {name: late}, provisioner: example.com/disk,
   volumeBindingMode: WaitForFirstConsumer}
- {kind: StorageClass, apiVersion: storage.k8s.io/v1, metadata: {name: now}, provisioner: example.com/disk,
   volumeBindingMode: Immediate}
- {kind: StorageClass, apiVersion: storage.k8s.io/v1, metadata: {name: static},
   provisioner: kubernetes.io/no-provisioner, volumeBindingMode: Immediate}
- kind: PersistentVolume
  apiVersion: v1
  metadata: {name: pv-0}
  spec: &volume
    storageClassName: late
    accessModes: [ReadWriteOnce]
    capacity: {storage: 1Gi}
    claimRef: {kind: PersistentVolumeClaim, namespace: default, name: data-db-0, uid: claim-0}
    nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
      {key: topology.kubernetes.io/zone, operator: In, values: [a]}]}]}}
  status: {phase: Bound}
- kind: PersistentVolumeClaim
  apiVersion: v1
  metadata: {name: data-db-0, namespace: default, uid: claim-0, annotations: &bound
    {pv.kubernetes.io/bind-completed: "yes", volume.kubernetes.io/selected-node: a0}}
  spec: {storageClassName: late, accessModes: [ReadWriteOnce], volumeName: pv-0, resources:
    {requests: {storage: 1Gi}}}
  status: {phase: Bound}
- kind: Pod
  apiVersion: v1
  metadata: {name: db-0, namespace: default, uid: pod-0, labels: {app: db, apps.kubernetes.io/pod-index: "0"},
    ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: s, controller: true}]}
  spec: {nodeName: a0, containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}],
    volumes: [{name: data, persistentVolumeClaim: {claimName: data-db-0}}]}
  status: {phase: Running}
- kind: PersistentVolume
  apiVersion: v1
  metadata: {name: pv-1}
  spec:
    <<: *volume
    claimRef: {kind: PersistentVolumeClaim, namespace: default, name: web-x-cache, uid: claim-1}
  status: {phase: Bound}
- kind: PersistentVolumeClaim
  apiVersion: v1
  metadata: {name: web-x-cache, namespace: default, uid: claim-1, annotations: *bound,
    finalizers: [kubernetes.io/pvc-protection],
    ownerReferences: [{apiVersion: v1, kind: Pod, name: web-x, uid: pod-1, controller: true}]}
  spec: {storageClassName: late, accessModes: [ReadWriteOnce], volumeName: pv-1, resources:
    {requests: {storage: 1Gi}}}
  status: {phase: Bound}
- kind: Pod
  apiVersion: v1
  metadata: {name: web-x, namespace: default, uid: pod-1,
    ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: r, controller: true}]}
  spec: {nodeName: a0, containers: [{name: c, resources: {requests: {cpu: "1"}}}], priority: 0,
    volumes: [{name: cache, ephemeral: {volumeClaimTemplate: {spec: {}}}}]}
  status: {phase: Running}
"""

POD = """
kind: Pod
apiVersion: v1
metadata: {name: new, namespace: default}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]
  volumes:
  - name: scratch
    ephemeral:
      volumeClaimTemplate:
        metadata: {labels: {made: by-controller}}
        spec: {storageClassName: late, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""


def loaded() -> Cluster:
    objects: list[Object] = [
        one for raw in yaml.safe_load(CLUSTER) if (one := decode_object(raw)) is not None
    ]
    return Cluster.from_objects(with_defaults(objects))


def claim_of(cluster: Cluster, name: str) -> PersistentVolumeClaim:
    [found] = [one for one in cluster.objects if isinstance(one, PersistentVolumeClaim) and one.name == name]
    return found


def manifest(**changes: Any) -> dict[str, Any]:
    raw = yaml.safe_load(POD)
    raw["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"] |= changes
    content: dict[str, Any] = raw
    return content


def test_a_stateful_set_that_grows_gets_new_claims() -> None:
    """The copy does not mount the volume of the pod that it was copied from, which is in another zone."""
    cluster = loaded()
    cluster.scale("db", 3)
    result = cluster.schedule()
    assert {result["db-1"].node, result["db-2"].node} == {"b0", "b1"}
    assert claim_of(cluster, "data-db-2").spec.volume_name != "pv-0"
    assert cluster.pod("db-1").labels == {"app": "db", "apps.kubernetes.io/pod-index": "1"}


def test_claims_of_a_stateful_set_are_used_again() -> None:
    cluster = loaded()
    cluster.scale("db", 2)
    cluster.schedule()
    volume = claim_of(cluster, "data-db-1").spec.volume_name
    cluster.scale("db", 1)
    cluster.scale("db", 2)
    assert cluster.schedule().fits
    assert claim_of(cluster, "data-db-1").spec.volume_name == volume != ""


def test_copies_are_counted_with_claims_of_their_own() -> None:
    cluster = loaded()
    counted = cluster.capacity(cluster.pod("db-0"))
    assert (counted.count, counted.by_node) == (2, {"b0": 1, "b1": 1})


def test_a_volume_of_a_stateful_set_keeps_its_pod_in_the_zone() -> None:
    cluster = loaded()
    cluster.drain("a0")
    result = cluster.schedule()
    assert result["db-0"].outcome is Outcome.UNSCHEDULABLE
    assert result["web-x"].node in ("b0", "b1"), "an ephemeral volume ends with its pod"
    claim = claim_of(cluster, "web-x-cache")
    assert claim.was_made_for(cluster.pod("web-x"))
    assert claim.spec.volume_name not in ("", "pv-1")


def test_an_evicted_pod_gets_new_ephemeral_volumes() -> None:
    cluster = loaded()
    spec = {
        "priority": 10,
        "nodeSelector": {"topology.kubernetes.io/zone": "a"},
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    }
    urgent = decode_object({**yaml.safe_load(POD), "spec": spec})
    assert urgent is not None
    cluster.add(urgent)
    result = cluster.schedule()
    assert result.evicted == ("default/web-x",)
    [again] = [one for one in result if one.was_on == "a0"]
    assert again.node in ("b0", "b1")


def test_new_pods_get_claims_for_ephemeral_volumes() -> None:
    cluster = loaded()
    cluster.apply(manifest())
    pod = cluster.pod("new")
    assert cluster.schedule().fits
    claim = claim_of(cluster, "new-scratch")
    assert claim.was_made_for(cluster.pod("new"))
    assert claim.labels == {"made": "by-controller"}
    with cluster.branch() as b:
        counted = b.capacity(pod)
        assert (counted.count, sorted(counted.by_node)) == (
            1,
            sorted({"b0", "b1"} - {cluster.pod("new").spec.node_name}),
        )


@pytest.mark.parametrize(
    ("name", "fits", "warns"), [("late", True, False), ("now", True, True), ("static", False, False)]
)
def test_volumes_that_are_provisioned_before_a_node_is_chosen(name: str, fits: bool, warns: bool) -> None:
    """Where they can be used is not known, and the result has a warning."""
    cluster = loaded()
    cluster.apply(manifest(storageClassName=name))
    result = cluster.schedule()
    assert result.fits is fits
    texts = [one.message for one in result.warnings if "before a node is chosen" in one.message]
    assert bool(texts) is warns
    if not fits:
        assert "unbound immediate PersistentVolumeClaims" in result["new"].reason
