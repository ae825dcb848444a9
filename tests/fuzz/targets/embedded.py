"""Requests to the embedded cluster of `bayplan up`, over HTTPS: objects, patches, definitions, nonsense.

Nothing is answered with 5xx, no part of the cluster ends, and a sound pod that comes last is bound.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import ssl
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
import yarl

from bayplan.embedded.server.kinds import BUILT_IN, PODS
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from tests.fuzz import samples
from tests.fuzz.mutation import Mutator
from tests.fuzz.oracle import FindingError
from tests.fuzz.targets.patches import PATCHES

REQUESTS: Final = 25
BOUND_SECONDS: Final = 60.0
"""For the last pod; it takes milliseconds, unless something is broken."""
ALLOWED: Final = (501, 504)
"""Not implemented; and too large a resourceVersion, which kube-apiserver waits for and calls a timeout."""
UPSTREAM_500: Final = (
    "target.kind: Unsupported value: ",
    "[target.kind: Unsupported value: ",
    "target.name: Required value",
    "resourceVersion should not be set on objects to be created",
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    "failed to create typed patch object (",
)
"""What kube-apiserver and the embedded server answer with 500 and without a reason though the request is at
fault: each but the last, which is from its source, is recorded from the real server in
conformance/api/cases.json. A failure of the server has the reason InternalError."""
WITNESS: Final = "witness"
CREATED: Final = 6
"""Sound objects that are created first, for the others to act on."""
PARAMETERS: Final = (
    "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector",
    "dryRun", "fieldValidation", "fieldManager", "force", "gracePeriodSeconds", "propagationPolicy",
    "sendInitialEvents", "timeoutSeconds", "pretty", "includeObject",
)  # fmt: skip
VALUES: Final = (
    "", "0", "1", "-1", "9" * 20, "9" * 4300, "true", "All", "a=b", "a in (b", "spec.nodeName=",
    "metadata.name=x", "Strict", "Foreground", "NotOlderThan", "Exact", "é", "\0", "x,y,,",
    "eyJ2IjoxfQ", "Object",
)  # fmt: skip
MEDIA_TYPES: Final = (
    "application/json",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
)
SUBRESOURCES: Final = (
    "status",
    "scale",
    "binding",
    "eviction",
    "finalize",
    "log",
    "exec",
    "ephemeralcontainers",
)

_PATHS: Final = {
    resource.kind: (resource.root, resource.plural, resource.namespaced) for resource in BUILT_IN
}
_PATHS["Gadget"] = ("/apis/example.com/v1", "gadgets", True)


class Request(msgspec.Struct, frozen=True):
    method: str
    target: str
    media_type: str = ""
    body: bytes = b""


class _Status(msgspec.Struct, frozen=True):
    """The fields of a Status object that distinguish failures."""

    message: str = ""
    reason: str = ""


class Conversation(msgspec.Struct, frozen=True):
    requests: list[Request]


class Embedded:
    name = "embedded"
    input_type = Conversation

    def make(self, rng: random.Random) -> Conversation:
        objects = [
            *samples.cluster(rng)[3:],
            *samples.other_objects(),
            samples.definition(),
            samples.custom_object("g"),
        ]
        first = rng.sample(objects, min(CREATED, len(objects)))
        if rng.random() < 0.5:
            first = [samples.definition(), samples.custom_object("g"), *first]
        requests = [Request("POST", collection(item), "application/json", _json(item)) for item in first]
        for _ in range(REQUESTS - len(requests)):
            # Mostly about what is there.
            item = rng.choice(first if rng.random() < 0.7 else objects)
            requests.append(_request(item, rng))
        return Conversation(requests)

    def run(self, given: Conversation) -> None:
        asyncio.run(_converse(given))


def collection(item: dict[str, Any]) -> str:
    root, plural, namespaced = _PATHS[item["kind"]]
    return f"{root}/namespaces/default/{plural}" if namespaced else f"{root}/{plural}"


def _request(item: dict[str, Any], rng: random.Random) -> Request:
    mutator = Mutator(rng)
    path = f"{collection(item)}/{quote(item['metadata']['name'])}"
    changed = mutator.document(item)
    choice = rng.random()
    if choice < 0.35:
        media_type, body = _encoded(changed, mutator)
        return Request("POST", collection(item), media_type, body)
    if choice < 0.5:
        media_type, body = _encoded(changed, mutator)
        part = f"/{rng.choice(SUBRESOURCES)}" if rng.random() < 0.4 else ""
        return Request(rng.choice(("PUT", "PUT", "POST")), path + part, media_type, body)
    if choice < 0.85:
        media_type, make = rng.choice(PATCHES)
        part = f"/{rng.choice(SUBRESOURCES)}" if rng.random() < 0.2 else ""
        query = "?" + urlencode({"fieldManager": "fuzz", "force": "true"})
        return Request("PATCH", path + part + query, media_type, make(item, mutator))
    parameters = {rng.choice(PARAMETERS): rng.choice(VALUES) for _ in range(rng.randrange(4))}
    query = "?" + urlencode(parameters)
    if choice < 0.9:
        options = mutator.document({"gracePeriodSeconds": 0, "preconditions": {"uid": "x"}})
        return Request("DELETE", path + query, "application/json", _json(options))
    if rng.random() < 0.2 and "timeoutSeconds" not in parameters:
        query += "&watch=true&timeoutSeconds=1"
    return Request("GET", (path if rng.random() < 0.3 else collection(item)) + query)


def _encoded(document: Any, mutator: Mutator) -> tuple[str, bytes]:
    media_type = mutator.rng.choice(MEDIA_TYPES)
    if media_type == "application/yaml":
        return media_type, mutator.encode([document])
    data = _json(document)
    return media_type, mutator.damage(data) if mutator.rng.random() < 0.1 else data


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


async def _converse(given: Conversation) -> None:
    # Small, because a mutated workload may request two billion pods.
    settings = LocalSettings(nodes=3, max_bytes=2 << 20)
    async with LocalCluster(settings, Outcomes()) as cluster:
        failing = asyncio.ensure_future(cluster.failure())
        conversation = asyncio.ensure_future(_send_all(cluster, given))
        try:
            await asyncio.wait([failing, conversation], return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                failing.result()
                raise FindingError("a part of the cluster has ended")
            conversation.result()
        finally:
            failing.cancel()
            conversation.cancel()
            await asyncio.gather(failing, conversation, return_exceptions=True)


async def _send_all(cluster: LocalCluster, given: Conversation) -> None:
    server = cluster.server
    context = ssl.create_default_context(cafile=server.certificates.ca)
    connector = aiohttp.TCPConnector(ssl=context)
    timeout = aiohttp.ClientTimeout(total=BOUND_SECONDS)
    headers = {"Authorization": f"Bearer {server.token}"}
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session:
        for request in given.requests:
            await _send(session, server.url, request)
        witness = samples.plain_pod(WITNESS, cpu="1m", memory="1Mi")
        # Whatever the others did to nodes and to quotas, this one may run, on a node of its own.
        witness["spec"] |= {"nodeSelector": {"witness": "yes"}, "tolerations": [{"operator": "Exists"}]}
        node = samples.node("witness-node")
        node["metadata"]["labels"] = {"witness": "yes"}
        await _send(session, server.url, Request("POST", collection(node), "application/json", _json(node)))
        await _send(
            session, server.url, Request("POST", collection(witness), "application/json", _json(witness))
        )
    await _bound(cluster)


async def _send(session: aiohttp.ClientSession, url: str, request: Request) -> None:
    headers = {"Content-Type": request.media_type} if request.media_type else {}
    target = yarl.URL(url + request.target, encoded=True)
    body = io.BytesIO(request.body) if request.body else None
    async with session.request(
        request.method, target, data=body, headers=headers, skip_auto_headers=["Content-Type"]
    ) as response:
        content = await response.read()
        if is_server_error(response.status, content):
            text = content[:2000].decode(errors="replace")
            kind = request.target.partition("?")[0].rstrip("/").rpartition("/")[2]
            raise FindingError(
                f"{request.method} {request.target} {request.media_type}: {response.status} {text}",
                f"{response.status} for {request.method} {kind} {request.media_type}",
            )


def is_server_error(status: int, body: bytes) -> bool:
    """Whether a response means that the server has failed, and not what was wrong with the request."""
    if status < 500 or status in ALLOWED:
        return False
    try:
        failure = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        return True
    return status != 500 or bool(failure.reason) or not failure.message.startswith(UPSTREAM_500)


async def _bound(cluster: LocalCluster) -> None:
    api = cluster.server.api
    for _ in range(int(BOUND_SECONDS / 0.02)):
        found = api.store.find(PODS, PODS.key(WITNESS, "default"))
        if found is None:
            return  # rejected by a quota, or deleted with its namespace
        if found.parse()["spec"].get("nodeName"):
            return
        await asyncio.sleep(0.02)
    raise FindingError("the last pod is not bound")
