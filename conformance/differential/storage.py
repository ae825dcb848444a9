"""Storage of a scenario: classes, claims and the volumes they are bound to, and which of it pods want."""

from __future__ import annotations

from conformance.differential.drawing import NAMESPACES, ZONE, Draw, Raw


def make_storage(draw: Draw) -> list[Raw]:
    items: list[Raw] = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "now"},
            "provisioner": "example.com/now",
            "volumeBindingMode": "Immediate",
        },
    ]
    for number in range(8):
        items += _claim(draw, number)
    return items


def _claim(draw: Draw, number: int) -> list[Raw]:
    bound = draw.maybe(0.8)
    modes = [draw.choice(("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))]
    namespace = draw.choice(list(NAMESPACES))
    name = f"claim-{number}"
    claim: Raw = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "now",
        },
    }
    if not bound:
        return [claim]
    volume: Raw = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{number}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": modes,
            "storageClassName": "now",
            "claimRef": {"namespace": namespace, "name": name},
            "csi": {"driver": "example.com", "volumeHandle": f"h{number}"},
        },
        "status": {"phase": "Bound"},
    }
    if draw.maybe(0.5):
        requirement = {
            "key": ZONE,
            "operator": "In",
            "values": draw.sample(["z1", "z2", "z3"], draw.randint(1, 2)),
        }
        volume["spec"]["nodeAffinity"] = {
            "required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
        }
    elif draw.maybe(0.4):
        volume["metadata"]["labels"] = {ZONE: draw.choice(("z1", "z2__z3"))}
    claim["spec"]["volumeName"] = f"pv-{number}"
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claim["status"] = {"phase": "Bound"}
    return [volume, claim]


def pod_volumes(draw: Draw) -> list[Raw]:
    claim = f"claim-{draw.randint(0, 9)}"
    disk = {"pdName": f"disk-{draw.randint(0, 2)}", "readOnly": draw.maybe(0.5)}
    return draw.choice(
        (
            [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
            [{"name": "v", "emptyDir": {}}],
            [{"name": "v", "gcePersistentDisk": disk}],
            [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}],
        )
    )
