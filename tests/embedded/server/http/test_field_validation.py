"""fieldValidation of patches and of server-side apply; and custom resources that change with their schema."""

from __future__ import annotations

from typing import Any

import pytest

from .serving import Caller, Reply, serve

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SIZES = "/apis/example.com/v1/sizes"
APPLY = "application/apply-patch+yaml"


def definition(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"host": {"type": "string"}, **properties}}
    version = {"served": True, "schema": {"openAPIV3Schema": schema}}
    versions = [
        {"name": "v1", "storage": True, **version},
        {"name": "v2", "storage": False, **version, "selectableFields": [{"jsonPath": ".host"}]},
    ]
    names = {"plural": "sizes", "singular": "size", "kind": "Size", "listKind": "SizeList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "sizes.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": names, "versions": versions},
    }


def size(name: str = "s", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Size", "metadata": {"name": name}, **fields}


@pytest.mark.parametrize(("how", "status"), [("Strict", 422), ("Warn", 200), ("Ignore", 200)])
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"data": {"a": "1", "a": "2"}}', 'duplicate field "data.a"'),
        (b'{"dta": {"a": "1"}}', 'unknown field "dta"'),
    ],
    ids=["twice", "unknown"],
)
def test_patches(how: str, status: int, body: bytes, problem: str) -> None:
    async def scenario(call: Caller) -> Reply:
        await call("POST", CONFIG_MAPS, {"metadata": {"name": "c"}})
        headers = {"Content-Type": "application/merge-patch+json"}
        return await call("PATCH", f"{CONFIG_MAPS}/c?fieldValidation={how}", body, **headers)

    reply = serve(scenario)
    assert reply.status == status
    said = reply.message if how == "Strict" else reply.headers.get("Warning", "").replace("\\", "")
    assert (problem in said) is (how != "Ignore")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        pytest.param(
            b"apiVersion: example.com/v1\nkind: Size\nmetadata: {name: s, more: 1}\nhst: a\n",
            500,
            "failed to create typed patch object (/s; example.com/v1, Kind=Size): errors:\n"
            "  .metadata.more: field not declared in schema\n  .hst: field not declared in schema",
            id="unknown fields",
        ),
        pytest.param(
            b"apiVersion: example.com/v1\nkind: Size\nmetadata: {name: s}\nhost: a\nhost: b\n",
            400,
            "error decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
            '  line 5: key "host" already set in map',
            id="a field twice in YAML",
        ),
        pytest.param(
            b'{"apiVersion": "example.com/v1", "kind": "Size", "metadata": {"name": "s"}, "host": "a", '
            b'"host": "b"}',
            400,
            'error strict decoding YAML: duplicate field "host"',
            id="a field twice in JSON",
        ),
        pytest.param(b"{apiVersion: example.com/v1, kind: Size, host: a}", 201, "", id="YAML in braces"),
    ],
)
def test_server_side_apply(body: bytes, status: int, message: str) -> None:
    async def scenario(call: Caller) -> Reply:
        await call("POST", DEFINITIONS, definition())
        path = f"{SIZES}/s?fieldManager=me&fieldValidation=Strict"
        return await call("PATCH", path, body, **{"Content-Type": APPLY})

    reply = serve(scenario)
    assert (reply.status, reply.message) == (status, message)


def test_custom_resources_get_new_defaults_when_they_are_read() -> None:
    async def scenario(call: Caller) -> list[Any]:
        await call("POST", DEFINITIONS, definition())
        await call("POST", SIZES, size(host="a"))
        before = await call("GET", f"{SIZES}/s")
        path = "/spec/versions/0/schema/openAPIV3Schema/properties/mode"
        change = [{"op": "add", "path": path, "value": {"type": "string", "default": "fast"}}]
        headers = {"Content-Type": "application/json-patch+json"}
        await call("PATCH", f"{DEFINITIONS}/sizes.example.com", change, **headers)
        after = await call("GET", f"{SIZES}/s")
        (listed,) = (await call("GET", SIZES)).body["items"]
        other = await call("GET", f"{SIZES.replace('v1', 'v2')}/s")
        return [one.get("mode") for one in (before.body, after.body, listed, other.body)]

    assert serve(scenario) == [None, "fast", "fast", None], "the other version has no default"


def test_versions_have_selectable_fields_of_their_own() -> None:
    async def scenario(call: Caller) -> tuple[int, list[str]]:
        await call("POST", DEFINITIONS, definition())
        await call("POST", SIZES, size("a", host="x"))
        await call("POST", SIZES, size("b", host="y"))
        await call("GET", f"{SIZES}?labelSelector=none=none")
        first = await call("GET", f"{SIZES}?fieldSelector=host=x")
        found = await call("GET", f"{SIZES.replace('v1', 'v2')}?fieldSelector=host=x")
        return first.status, [one["metadata"]["name"] for one in found.body["items"]]

    assert serve(scenario) == (400, ["a"])


def test_a_patch_that_makes_no_scale_is_invalid() -> None:
    async def scenario(call: Caller) -> Reply:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        path = "/apis/apps/v1/namespaces/default/replicasets"
        await call("POST", path, {"metadata": {"name": "r"}, "spec": spec})
        headers = {"Content-Type": "application/merge-patch+json"}
        return await call("PATCH", f"{path}/r/scale", {"spec": True}, **headers)

    reply = serve(scenario)
    assert (reply.status, reply.reason) == (422, "Invalid"), reply.body
