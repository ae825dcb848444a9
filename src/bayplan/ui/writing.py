"""What the page may write with --allow-writes: cordon and uncordon a node, evict a pod.

Nothing else: these three can be undone or are repaired by a controller, respect disruption budgets, and are
what an operator who looks at a node needs at once. Everything larger (manifests, replicas, drains) has a
command that can be reviewed and repeated; the page shows what it would do.

Requests are made as the user of the kubeconfig. Every write is first sent as a dry run; the page shows the
response before it asks for confirmation.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from bayplan.api.kinds import KINDS
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.client.requests import JSON, MERGE_PATCH
from bayplan.errors import APIError, InputError
from bayplan.printable import printable_lines

ACTIONS: Final = ("cordon", "uncordon", "evict")
_MALFORMED: Final = f"a write has an action ({', '.join(ACTIONS)}), a name and, for a pod, its uid"

_log = logging.getLogger(__name__)


class WriteRejectedError(Exception):
    """The API server has rejected a write, or did not respond."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Writer:
    """Writes to the cluster of an access, one request at a time."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._writing = asyncio.Lock()

    async def write(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a change, or tries it (`dryRun`); says what was done.

        Raises:
            InputError: the request is malformed.
            WriteRejectedError: the API server has rejected it.
        """
        method, target, content, kind, said = _request(body)
        is_dry = body.get("dryRun") is not False
        async with self._writing, KubernetesCluster(self._access, component="ui") as cluster:
            try:
                await cluster.requests.send(
                    method,
                    f"{target}?dryRun=All" if is_dry else target,
                    json.dumps(content).encode(),
                    content_type=kind,
                    repeatable=method == "PATCH",
                )
            except APIError as error:
                raise WriteRejectedError(error.code or 502, str(error)) from None
        if not is_dry:
            _log.info("written by the page: %s", printable_lines(said))
        return {"done": said, "dryRun": is_dry}


def _request(body: Mapping[str, Any]) -> tuple[str, str, dict[str, Any], str, str]:
    action, name, uid = body.get("action"), body.get("name"), body.get("uid")
    if action not in ACTIONS or not isinstance(name, str) or not name:
        raise InputError(_MALFORMED)
    if action != "evict":
        patch = {"spec": {"unschedulable": True if action == "cordon" else None}}
        return "PATCH", KINDS["Node"].item(name), patch, MERGE_PATCH, f"{action} node {name}"
    namespace, _, pod = name.partition("/")
    if not pod or not isinstance(uid, str) or not uid:
        raise InputError(_MALFORMED)
    target = f"{KINDS['Pod'].item(pod, namespace)}/eviction"
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        # The uid guards against evicting a later pod of the same name.
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    return "POST", target, eviction, JSON, f"evict pod {name}"
