"""What the client costs: CPU for a binding, and for taking in 5,000 nodes and 50,000 pods.

    python -m tests.client.http.measure

The server is a process of its own that sends prepared bytes, so that only the client is measured. Objects are
as large as they are in real clusters, with all that scheduling does not read.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import ssl
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.net.tls import TLSSettings
from bayplan.testing.builders import make_pod

from .certificates import authority

NODES, PODS, BINDS = 5_000, 50_000, 10_000


def node(i: int) -> dict[str, Any]:
    labels = {
        "kubernetes.io/hostname": f"node-{i}",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{i % 3}",
        "node.kubernetes.io/instance-type": "m5.2xlarge",
    }
    conditions = [
        {
            "type": name,
            "status": "False",
            "lastHeartbeatTime": "2026-01-31T12:00:00Z",
            "lastTransitionTime": "2026-01-31T12:00:00Z",
            "reason": "KubeletHasSufficient",
            "message": "kubelet has sufficient resources available",
        }
        for name in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [
        {"names": [f"registry/app-{k}@sha256:{k:064x}", f"registry/app-{k}:v1"], "sizeBytes": 123456 + k}
        for k in range(15)
    ]
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    return {
        "metadata": metadata(f"node-{i}", "", i, labels),
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": f"aws:///zone/i-{i:016x}"},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": conditions,
            "images": images,
            "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Debian", "machineID": f"{i:032x}"},
        },
    }


def metadata(name: str, namespace: str, i: int, labels: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        f"f:part-{k}": {".": {}, "f:lastTransitionTime": {}, "f:type": {}} for k in range(20)
    }
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "uid": f"0a5c8c1e-7a08-4ef7-bb9f-{i:012x}",
        "resourceVersion": str(1000 + i),
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "labels": labels,
        "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": fields}],
    }


def pod(i: int) -> dict[str, Any]:
    labels = {"app": f"app-{i % 100}", "pod-template-hash": f"{i % 100:010x}"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{i % 100}", "uid": "u"}
    container = {
        "name": "main",
        "image": f"registry/app-{i % 100}:v1",
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"VARIABLE_{k}", "value": "some value"} for k in range(8)],
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
    }
    effects = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    tolerations = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in effects
    ]
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    conditions = [
        {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-31T12:00:00Z"}
        for name in kinds
    ]
    meta = metadata(f"app-{i}", f"team-{i % 20}", i, labels)
    return {
        "metadata": {**meta, "ownerReferences": [{**owner, "controller": True}]},
        "spec": {
            "containers": [container],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}}],
            "nodeName": f"node-{i % NODES}",
            "schedulerName": "default-scheduler",
            "tolerations": tolerations,
            "priority": 0,
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "startTime": "2026-01-31T12:00:00Z",
            "containerStatuses": [{"name": "main", "ready": True, "imageID": "sha256:0", "started": True}],
        },
    }


# The server


def prepared(kind: str, items: list[dict[str, Any]]) -> tuple[bytes, bytes]:
    """The plain list and the stream of these objects, each item in a chunk of its own."""
    texts = [json.dumps(item, separators=(",", ":")).encode() for item in items]
    head = (
        b'{"kind":"%sList","apiVersion":"v1","metadata":{"resourceVersion":"99999"},"items":[' % kind.encode()
    )
    parts = [head, *(text + (b"," if i < len(texts) - 1 else b"") for i, text in enumerate(texts)), b"]}"]
    frames = [b'{"type":"ADDED","object":' + text + b"}\n" for text in texts]
    end = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": "99999"}
    frames.append(json.dumps({"type": "BOOKMARK", "object": {"metadata": end}}).encode() + b"\n")
    plain, stream = (b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) for pieces in (parts, frames))
    return plain + b"0\r\n\r\n", stream


HEAD = (
    b"HTTP/1.1 %s\r\nAudit-Id: 0a5c8c1e-7a08-4ef7-bb9f-3b7a1a7c1b9b\r\nCache-Control: no-cache, private\r\n"
    b"X-Kubernetes-Pf-Flowschema-Uid: 47a2a2b2-7a08-4ef7-bb9f-3b7a1a7c1b9b\r\n"
    b"Content-Type: application/json\r\nDate: Sat, 31 Jan 2026 12:00:00 GMT\r\n"
)
BOUND = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'


class Server(asyncio.Protocol):
    lists: dict[bytes, tuple[bytes, bytes]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        lower = self.buffer[:end].lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return
        first, self.buffer = self.buffer.split(b"\r\n", 1)[0], self.buffer[end + 4 + length :]
        name = first.split(b"?")[0].rpartition(b"/")[2]
        if name in self.lists and b"sendInitialEvents" in first and first.startswith(b"GET /plain"):
            self.transport.write((HEAD % b"422 Unprocessable Entity") + b"Content-Length: 0\r\n\r\n")
        elif name in self.lists:
            plain, stream = self.lists[name]
            chunked = (HEAD % b"200 OK") + b"Transfer-Encoding: chunked\r\n\r\n"
            self.transport.write(chunked + (stream if b"sendInitialEvents" in first else plain))
        else:
            self.transport.write((HEAD % b"201 Created") + b"Content-Length: %d\r\n\r\n" % len(BOUND) + BOUND)


def serve(pipe: Connection, certificate: str) -> None:
    async def main() -> None:
        Server.lists = {
            b"nodes": prepared("Node", [node(i) for i in range(NODES)]),
            b"pods": prepared("Pod", [pod(i) for i in range(PODS)]),
        }
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        loop = asyncio.get_running_loop()
        plain = await loop.create_server(Server, "127.0.0.1", 0)
        secure = await loop.create_server(Server, "127.0.0.1", 0, ssl=tls)
        sizes = {name.decode(): len(answer[0]) for name, answer in Server.lists.items()}
        pipe.send(([server.sockets[0].getsockname()[1] for server in (plain, secure)], sizes))
        await asyncio.get_running_loop().create_future()

    asyncio.run(main())


# The client


def report(text: str, cpu: float, wall: float, count: int = 1) -> None:
    unit, factor = ("s ", 1.0) if count == 1 else ("µs", 1e6)
    print(f"  {text:40} {cpu / count * factor:8.2f} {unit} of CPU in {wall / count * factor:8.2f} {unit}")


async def bindings(access: Access, at_once: int) -> None:
    """Pods bound, so many at once."""
    pods = iter([make_pod(f"app-{i}", uid=f"0a5c8c1e-7a08-4ef7-bb9f-{i:012x}") for i in range(BINDS)])
    async with KubernetesCluster(access, qps=-1) as cluster:

        async def work() -> None:
            for one in pods:
                await cluster.bind(one, "node-1")

        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(work() for _ in range(at_once)))
        text = f"a binding, {at_once} at once, {access.server.partition(':')[0]}"
        report(text, time.process_time() - cpu, time.perf_counter() - wall, BINDS)


async def start(access: Access, way: str) -> None:
    """All nodes and pods taken in."""
    async with KubernetesCluster(access, qps=-1) as cluster:
        for kind in (Node, Pod):
            cpu, wall = time.process_time(), time.perf_counter()
            items, _ = await cluster.list(kind)
            text = f"{len(items)} {kind.__name__}s, {way}, {access.server.partition(':')[0]}"
            report(text, time.process_time() - cpu, time.perf_counter() - wall)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {'peak memory':40} {peak:8.0f} MB")


def run(what: str, access: Access) -> None:
    if what == "plain":
        access = replace(access, server=f"{access.server}/plain")  # where the server has no streams
    asyncio.run(bindings(access, int(what)) if what.isdecimal() else start(access, what))


def main() -> None:
    context = multiprocessing.get_context("spawn")
    pair = authority("measure").issue("server", "127.0.0.1")
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        pipe, other = context.Pipe()
        server = context.Process(target=serve, args=(other, file.name), daemon=True)
        server.start()
        (plain_port, secure_port), sizes = pipe.recv()
    print("  " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in sizes.items()))
    plain = Access(f"http://127.0.0.1:{plain_port}")
    secure = Access(
        f"https://127.0.0.1:{secure_port}",
        tls=TLSSettings(ca_data=authority("measure").certificate),
        token="x" * 900,
    )
    for what in sys.argv[1:] or ("1", "16", "stream", "plain"):
        for access in (plain, secure):
            worker = context.Process(target=run, args=(what, access))
            worker.start()
            worker.join()
    server.terminate()


if __name__ == "__main__":
    main()
