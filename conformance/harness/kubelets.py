"""What kubelets do for pods on a real API server without nodes: bound pods run, deleted ones end at once."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, Final, Self

from bayplan.api.kinds import KINDS
from bayplan.client.access import Access
from bayplan.client.requests import MERGE_PATCH
from bayplan.errors import ConflictError, NotFoundError
from conformance.harness.admin import Admin, Raw

POLL_SECONDS: Final = 0.3


class Kubelets:
    """Simulated kubelets of all nodes, in a thread of their own. To be used in a `with` block."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        async with Admin(self._access) as admin:
            while not self._stop.is_set():
                for pod in await admin.list("Pod"):
                    await _advance(admin, pod)
                await asyncio.sleep(POLL_SECONDS)


async def _advance(admin: Admin, pod: Raw) -> None:
    meta, status = pod["metadata"], pod.get("status", {})
    if not pod["spec"].get("nodeName"):
        return
    try:
        if meta.get("deletionTimestamp"):
            await admin.delete("Pod", meta["name"], meta["namespace"])
        elif status.get("phase") == "Pending":
            path = f"{KINDS['Pod'].item(meta['name'], meta['namespace'])}/status"
            body = json.dumps({"status": _running(status)}).encode()
            await admin.cluster.requests.send("PATCH", path, body, content_type=MERGE_PATCH)
    except (NotFoundError, ConflictError):
        pass  # it is gone, or has changed: the next list shows how


def _running(status: Raw) -> dict[str, Any]:
    mine = ("Initialized", "ContainersReady", "Ready")
    kept = [one for one in status.get("conditions", ()) if one["type"] not in mine]
    return {"phase": "Running", "conditions": [*kept, *({"type": kind, "status": "True"} for kind in mine)]}


def ready_node(name: str) -> Raw:
    """A node as its kubelet would register it."""
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
