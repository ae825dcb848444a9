"""An administrator that creates and reads objects: plain JSON in and out, over bayplan's own connections.

Objects are dictionaries here, deliberately: what is read back is what the server has, with all fields, and
not what our records understand of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, Self

from bayplan.api.kinds import KINDS
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.errors import NotFoundError

Raw = dict[str, Any]

AT_ONCE = 16
"""Requests in progress at a time when much is created or deleted."""


class Admin:
    """An administrator without rate limit. Use it in an `async with` block."""

    def __init__(self, access: Access) -> None:
        self.cluster = KubernetesCluster(access, qps=-1, component="conformance")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cluster.close()

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Raw:
        sent = b"" if body is None else json.dumps(body).encode()
        answer: Raw = json.loads(await self.cluster.requests.send(method, path, sent, repeatable=False))
        return answer

    async def create(self, item: Mapping[str, Any]) -> Raw:
        """Creates an object, and its status too where it has one that a plain creation would drop."""
        created = await self.send("POST", collection_of(item), item)
        if item.get("status") and created.get("status") != item["status"] and item["kind"] in _STATUS_APART:
            created["status"] = item["status"]
            return await self.send("PUT", f"{path_of(created)}/status", created)
        return created

    async def create_all(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Creates many objects, several at a time, begun in the order given."""
        waiting = iter(items)

        async def work() -> None:
            for item in waiting:
                await self.create(item)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    async def get(self, kind: str, name: str, namespace: str = "") -> Raw:
        return await self.send("GET", KINDS[kind].item(name, namespace))

    async def find(self, kind: str, name: str, namespace: str = "") -> Raw | None:
        """An object, or None if there is none."""
        try:
            return await self.get(kind, name, namespace)
        except NotFoundError:
            return None

    async def list(self, kind: str, namespace: str = "") -> list[Raw]:
        items: list[Raw] = (await self.send("GET", KINDS[kind].collection(namespace)))["items"]
        return items

    async def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Deletes an object without a grace period."""
        await self.send("DELETE", KINDS[kind].item(name, namespace), {"gracePeriodSeconds": 0})

    async def clear(self, *kinds: str) -> None:
        """Deletes all objects of these kinds, in all namespaces, whatever their finalizers wait for."""
        for kind in kinds:
            waiting = iter(await self.list(kind))

            async def work(kind: str = kind, waiting: Any = waiting) -> None:
                for item in waiting:
                    meta = item["metadata"]
                    if meta.pop("finalizers", None):
                        path = KINDS[kind].item(meta["name"], meta.get("namespace", ""))
                        await self.send("PUT", path, item)
                    await self.delete(kind, meta["name"], meta.get("namespace", ""))

            await asyncio.gather(*(work() for _ in range(AT_ONCE)))


_STATUS_APART = frozenset(("PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget"))
"""Kinds whose status is dropped when they are created. (Nodes keep theirs, pods get one of their own.)"""


def collection_of(item: Mapping[str, Any]) -> str:
    return KINDS[item["kind"]].collection(item["metadata"].get("namespace", ""))


def path_of(item: Mapping[str, Any]) -> str:
    meta = item["metadata"]
    return KINDS[item["kind"]].item(meta["name"], meta.get("namespace", ""))
