"""Lists of a server are read as the reader of ordinary files reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.sources.files import read_cluster
from bayplan.answers.sources.snapshot import decode_listing
from bayplan.api.decode import parse_objects
from bayplan.api.defaults import with_defaults
from bayplan.api.pod import Pod
from bayplan.errors import DecodeError, InputError


def stored(kind: str, name: str, api_version: str = "v1", **fields: Any) -> dict[str, Any]:
    meta = {"name": name, "uid": f"{kind}-{name}", "resourceVersion": "7", "creationTimestamp": None}
    if kind not in ("Node", "StorageClass"):
        meta["namespace"] = "shop"
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    token = f"kube-api-access-{name}"
    container = {
        "name": "c",
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": token, "mountPath": "/t"}],
    }
    content = {"containers": [container], "volumes": [{"name": token, "projected": {}}], **spec}
    conditions = [{"type": "Ready", "status": "True", "lastProbeTime": None}]
    return stored("Pod", name, spec=content, status={"phase": "Running", "conditions": conditions})


PODS = [pod(f"web-{i}", nodeName=f"n{i}", schedulerName="default-scheduler") for i in range(4)]
OBJECTS = [
    stored("Node", "n0", status={"capacity": {"cpu": "4"}, "allocatable": None}),
    *PODS,
    pod("edited"),
    stored("ConfigMap", "unknown", data={"a": "b"}),
    stored("StorageClass", "fast", "storage.k8s.io/v1", provisioner="x"),
    stored("Pod", "null", spec={"containers": [{"name": "c", "ports": None}], "tolerations": None}),
]


def listing(*items: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List", **fields}, indent=4).encode()


def test_they_are_read_as_other_files() -> None:
    """With the defaults that an edited object may lack, nulls for absent fields, and without other kinds."""
    data = listing(*OBJECTS)
    assert decode_listing(data) == with_defaults(parse_objects(data, is_json=True))


def test_pods_of_a_template_share_their_spec() -> None:
    found = decode_listing(listing(*PODS))
    assert found is not None
    pods = [item for item in found if isinstance(item, Pod)]
    assert [one.spec.node_name for one in pods] == ["n0", "n1", "n2", "n3"]
    assert len({id(one.spec.containers) for one in pods}) == 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(listing({**PODS[0], "metadata": {"name": "p"}}), id="an object of no server"),
        pytest.param(listing(PODS[0], PODS[0]), id="an object that occurs twice"),
        pytest.param(listing(pod("p", priority="high")), id="a malformed object"),
        pytest.param(listing(PODS[0], snapshot={}), id="a snapshot that was edited"),
        pytest.param(listing({"kind": "Pod"}), id="another order of fields"),
        pytest.param(listing(PODS[0]) + listing(PODS[1]), id="several documents"),
        pytest.param(json.dumps(PODS[0]).encode(), id="a single object"),
        pytest.param(b"[" * 100_000, id="deep nesting"),
        pytest.param(b"kind: List", id="no JSON"),
    ],
)
def test_the_unusual_is_left_to_the_reader_of_files(data: bytes) -> None:
    assert decode_listing(data) is None


def test_errors_name_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(listing(PODS[0], pod("bad", overhead={"cpu": "much"})))
    with pytest.raises(InputError, match=r"dump\.json.*shop/bad.*overhead"):
        read_cluster([str(file)])
    file.write_bytes(listing(PODS[0]))
    with pytest.raises(DecodeError, match="Pod shop/web-0: the object is in two files"):
        read_cluster([str(file), str(file)])
