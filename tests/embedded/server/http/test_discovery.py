"""Discovery: groups, resources and schemas."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.http import discovery
from bayplan.embedded.server.kinds import Resource

from .serving import Caller, Reply, serve

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


def get(path: str, accept: str = "application/json") -> Reply:
    async def scenario(call: Caller) -> Reply:
        return await call("GET", path, Accept=accept)

    return serve(scenario)


def test_releases_serve_different_resources() -> None:
    def names(release: Release) -> set[str]:
        catalog = Catalog(release=release)
        lists = {(resource.group, resource.version) for resource in discovery.served(catalog)}
        found = [discovery.resource_list(catalog, group, version) or {} for group, version in lists]
        return {f"{each['groupVersion']}/{entry['name']}" for each in found for entry in each["resources"]}

    assert names(V1_36) < names(V1_37)
    assert names(V1_37) - names(V1_36) == {
        "resource.k8s.io/v1/devicetaintrules",
        "resource.k8s.io/v1/devicetaintrules/status",
        "storage.k8s.io/v1/csinodes/status",
    }


def test_both_forms_of_discovery_have_the_same_content() -> None:
    """kubectl requests everything at once; other clients read group by group."""

    async def scenario(call: Caller) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
        at_once, one_by_one = set(), set()
        for root in ("/api", "/apis"):
            for group in (await call("GET", root, Accept=AGGREGATED)).body["items"]:
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    for entry in version["resources"]:
                        at_once.add((name, version["version"], entry["resource"], *entry["verbs"]))
        groups = (await call("GET", "/apis")).body["groups"]
        lists = [("", "v1", "/api/v1")]
        for group in groups:
            for version in group["versions"]:
                path = f"/apis/{version['groupVersion']}"
                lists.append((group["name"], version["version"], path))
        for name, version, path in lists:
            for entry in (await call("GET", path)).body["resources"]:
                if "/" not in entry["name"]:
                    one_by_one.add((name, version, entry["name"], *entry["verbs"]))
        return at_once, one_by_one

    at_once, one_by_one = serve(scenario)
    assert at_once == one_by_one
    assert len(at_once) == len(discovery.served(Catalog()))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("/apis/apps", 200, id="a group"),
        pytest.param("/apis/nothing", 404, id="no group"),
        pytest.param("/apis/apps/v9", 404, id="no version"),
        pytest.param("/api/v9", 404, id="no version of the core"),
        pytest.param("/openapi/v3/apis/apps/v1", 200, id="a schema"),
        pytest.param("/openapi/v3/apis/nothing/v1", 404, id="no schema"),
        pytest.param("/openapi/v2", 200, id="schemas in the older form"),
        pytest.param("/apis/metrics.k8s.io/v1beta1", 200, id="metrics, of which there are none"),
        pytest.param("/metrics", 404, id="nothing else"),
    ],
)
def test_what_there_is(path: str, status: int) -> None:
    assert get(path).status == status


def test_older_schemas_are_an_empty_document_in_protobuf() -> None:
    """kubectl requests them for a kind it has not found, and then reports it as unknown."""
    reply = get("/openapi/v2", "application/com.github.proto-discovery.spec.v2@v1.0+protobuf")
    assert reply.body == "\n\x032.0"
    assert reply.headers["Content-Type"] == discovery.V2_PROTOBUF


def test_older_schemas_have_all_definitions() -> None:
    async def scenario(call: Caller) -> tuple[Reply, Reply]:
        schema = {
            "type": "object",
            "description": "a size",
            "properties": {
                "size": {"type": "integer", "nullable": True},
                "more": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"a": {}},
                },
                "either": {"type": "string", "default": "x", "oneOf": [{"minLength": 1}, {"maxLength": 3}]},
            },
        }
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": "sizes", "singular": "size", "kind": "Size", "listKind": "SizeList"}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "sizes.shop.example.com"},
            "spec": {"group": "shop.example.com", "scope": "Cluster", "names": names, "versions": [version]},
        }
        await call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        found = await call("GET", "/openapi/v2")
        again = await call("GET", "/openapi/v2", **{"If-None-Match": found.headers["ETag"]})
        return found, again

    found, again = serve(scenario)
    definitions = found.body["definitions"]
    assert references(definitions) <= definitions.keys()
    assert definitions["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"][0]["kind"] == "Pod"
    size = definitions["com.example.shop.v1.Size"]
    properties = {key: size["properties"][key] for key in ("size", "more", "either")}
    assert size["description"] == "a size"
    assert properties == {
        "size": {},
        "more": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "either": {"type": "string"},
    }
    assert again.status == 304


def test_an_object_with_any_fields_is_published_without_fields() -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {}}}
    catalog = Catalog()
    catalog.add(Resource("sizes", "Size", "example.com", schema=schema))
    size = discovery.document_v2(catalog)["definitions"]["com.example.v1.Size"]
    assert size.keys() == {"type", "x-kubernetes-group-version-kind"}


def references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["$ref"].rpartition("/")[2]} if "$ref" in schema else set()
        return own.union(*map(references, schema.values()))
    return set().union(*map(references, schema)) if isinstance(schema, list) else set()


@pytest.mark.parametrize("root", discovery.OpenAPIDocuments(Catalog()).index()["paths"])
def test_schemas_are_complete(root: str) -> None:
    """Everything that is referred to is there, and all kinds can be found by their names."""
    document = discovery.document(Catalog(), root)
    assert document is not None
    schemas = document["components"]["schemas"]
    assert references(document) <= schemas.keys()
    described = {
        gvk["kind"] for s in schemas.values() for gvk in s.get("x-kubernetes-group-version-kind", ())
    }
    assert described >= {r.kind for r in Catalog() if r.root == f"/{root}"}


def test_the_schema_shows_that_the_server_checks_fields() -> None:
    """kubectl looks for this before it sends fieldValidation."""
    document = discovery.document(Catalog(), "api/v1")
    assert document is not None
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
