"""Nonsense of all kinds: every request is answered, and none is an internal error."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from urllib.parse import urlencode

from bayplan.embedded.server.kinds import BUILT_IN, CONFIG_MAPS, DEPLOYMENTS, PODS
from bayplan.errors import APIError

from .serving import APPLY, JSON_PATCH, MERGE, STRATEGIC, Caller, config_map, pod, serve

REQUESTS = 800
METHODS = ("GET", "POST", "PUT", "PATCH", "PATCH", "DELETE")
PARTS = ("status", "scale", "binding", "eviction", "finalize", "log")
PARAMETERS = (
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "labelSelector",
    "fieldSelector",
    "dryRun",
    "fieldValidation",
    "fieldManager",
    "force",
    "gracePeriodSeconds",
    "propagationPolicy",
    "orphanDependents",
    "sendInitialEvents",
    "includeObject",
    "pretty",
)
VALUES = (
    "",
    "0",
    "1",
    "-1",
    "abc",
    "9" * 20,
    "true",
    "a=b",
    "a in (b",
    "!",
    "==",
    "metadata.name=x",
    "spec.nodeName!=",
    "\0",
    "é",
    "All",
    "Strict",
    "NotOlderThan",
    "Exact",
    "Foreground",
    "YmF5cGxhbjoxOjA=",
    "a,b",
    "x=1,,",
    "Object",
)
BODIES: tuple[bytes | None, ...] = (
    None,
    b"",
    b"null",
    b"[]",
    b"1",
    b"{}",
    b'{"metadata":null}',
    b'{"metadata":[]}',
    b'{"spec":{"replicas":"x"}}',
    b'{"metadata":{"name":"web"}}',
    b'{"metadata":{"name":"web"},"spec":null}',
    b'{"spec":{"replicas":1.5}}',
    b'[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]',
    b'[{"op":"remove","path":""}]',
    b"[1]",
    b'[{"op":"replace","path":"","value":1}]',
    b'[{"op":"add","path":"/spec/-","value":1}]',
    b'[{"op":"move","path":"/a"}]',
    b'{"$patch":"delete"}',
    b'{"$patch":"foo"}',
    b'{"metadata":{"$retainKeys":1}}',
    b'{"metadata":{"$patch":"replace"}}',
    b'{"metadata":{"finalizers":"x"}}',
    b'{"target":1}',
    b'{"metadata":{"$deleteFromPrimitiveList/finalizers":1}}',
    b"a: b: c",
    b"k8s\x00\x0a\x02",
    b"\xff\xfe",
    b'{"metadata":{"$setElementOrder/ownerReferences":1,"ownerReferences":[{"uid":"x"}]}}',
    b'{"spec":{"containers":[{"name":"c"},1]}}',
    b'{"metadata":{"name":"web","labels":1},"target":{"name":"n"}}',
    b'{"deleteOptions":{"preconditions":{"uid":1}}}',
    b'{"preconditions":1}',
    b'{"gracePeriodSeconds":"x"}',
    b'{"metadata":{"managedFields":[{"fieldsV1":1}]}}',
    b'{"metadata":{"managedFields":[1]}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"data":{"a":1}}',
    b'{"metadata":{"ownerReferences":[{"uid":"x"}]}}',
    b'{"metadata":{"generateName":"x-"}}',
)
TYPES = ("application/json", "application/yaml", MERGE, STRATEGIC, JSON_PATCH, APPLY, "text/plain")
FORMS = ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml", "text/html")


def test_every_request_is_answered() -> None:
    """With a code of the client's or the server's mistake."""
    rng = random.Random(7)

    async def scenario(call: Caller) -> Counter[int]:
        codes: Counter[int] = Counter()
        for _ in range(REQUESTS):
            for kind, content in ((PODS, pod()), (CONFIG_MAPS, config_map("web"))):
                with suppress(APIError):  # it may be there already
                    call.server.api.create(kind, content, "default")
            resource = rng.choice((PODS, CONFIG_MAPS, DEPLOYMENTS, rng.choice(BUILT_IN)))
            path = f"{resource.root}{'/namespaces/default' if resource.namespaced else ''}/{resource.plural}"
            depth = rng.random()
            if depth < 0.7:
                path += rng.choice(("/web", "/default", "/zz"))
            if depth < 0.2:
                path += f"/{rng.choice(PARTS)}"
            query = {name: rng.choice(VALUES) for name in rng.sample(PARAMETERS, rng.randrange(4))}
            method, body = rng.choice(METHODS), rng.choice(BODIES)
            form, content_type = rng.choice(FORMS), rng.choice(TYPES)
            reply = await call(method, f"{path}?{urlencode(query)}", body, content_type, Accept=form)
            codes[reply.status] += 1
            reason = reply.body.get("reason") if isinstance(reply.body, dict) else ""
            assert reason != "InternalError", (method, path, query, body, content_type)
        return codes

    codes = serve(scenario)
    assert {200, 400, 404, 405, 406, 415, 422} <= codes.keys(), "it gets everywhere"
