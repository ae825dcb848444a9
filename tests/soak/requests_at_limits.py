"""Requests with objects, patches and lists at every limit of the embedded server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from bayplan.api.meta import Content
from bayplan.embedded.server.sizes import (
    LABELS_PER_RULE,
    MAX_CUSTOM_VALUES,
    MAX_NODE_RESOURCES,
    MAX_POD_VALUES,
    MAX_RULES,
    MAX_VALUES,
)

API: Final = "/api/v1/namespaces/default"
APPS: Final = "/apis/apps/v1/namespaces/default"
JSON: Final = "application/json"
YAML: Final = "application/yaml"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


class Request(NamedTuple):
    name: str
    method: str
    path: str
    content: Any = None
    media_type: str = JSON
    accept: str = JSON


def meta(name: str, **more: Any) -> Content:
    return {"name": name, **more}


def pod(name: str, spec: Content | None = None, **metadata: Any) -> Content:
    default = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, **metadata),
        "spec": {**default, **(spec or {})},
    }


def _containers(count: int) -> list[Content]:
    return [{"name": f"c{n}", "image": f"i{n}"} for n in range(count)]


def _expressions(count: int) -> list[Content]:
    return [{"key": f"k{n}", "operator": "In", "values": ["a"]} for n in range(count)]


def _terms(count: int) -> list[Content]:
    return [
        {"labelSelector": {"matchLabels": {f"k{n}": "v"}}, "topologyKey": f"zone{n % 100}"}
        for n in range(count)
    ]


def pods() -> Iterator[tuple[str, Content]]:
    """Pods with about as many values as are allowed, each in other fields."""
    yield "containers", pod("containers", {"containers": _containers(MAX_POD_VALUES // 9)})
    env = [{"name": f"e{n}", "value": "v"} for n in range(MAX_POD_VALUES // 3 - 50)]
    yield "env", pod("env", {"containers": [{"name": "c", "image": "i", "env": env}]})
    yield "labels", pod("labels", labels={f"l{n}": "v" for n in range(MAX_POD_VALUES - 100)})
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{n}", "uid": f"u{n}"}
        for n in range(MAX_POD_VALUES // 5 - 20)
    ]
    yield "owners", pod("owners", ownerReferences=owners)
    tolerations = [{"key": f"t{n}", "operator": "Exists"} for n in range(MAX_POD_VALUES // 3 - 100)]
    yield "tolerations", pod("tolerations", {"tolerations": tolerations})
    selector = {f"l{n}": "v" for n in range((MAX_RULES - 1) * LABELS_PER_RULE)}
    yield "node selector", pod("selector", {"nodeSelector": selector})
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": _terms(MAX_RULES - 1)}
        yield kind, pod(kind.lower(), {"affinity": {kind: terms}}, labels={"k1": "v"})
        weighted = [{"weight": 1, "podAffinityTerm": term} for term in _terms(MAX_RULES - 1)]
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        yield f"preferred {kind}", pod(f"preferred-{kind.lower()}", {"affinity": {kind: preferred}})
    node_terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": _expressions(1)} for n in range(MAX_RULES - 10)]
        }
    }
    yield "node affinity", pod("node-affinity", {"affinity": {"nodeAffinity": node_terms}})
    node_terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": _expressions((MAX_RULES - 2) * LABELS_PER_RULE)}]
        }
    }
    yield "node expressions", pod("node-expressions", {"affinity": {"nodeAffinity": node_terms}})
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": f"z{n}",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
        for n in range(MAX_RULES - 10)
    ]
    yield "spread", pod("spread", {"topologySpreadConstraints": spread})
    volumes = [
        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}}
        for n in range(MAX_POD_VALUES // 4 - 50)
    ]
    yield "volumes", pod("volumes", {"volumes": volumes})
    ephemeral = [
        {
            "name": f"v{n}",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            },
        }
        for n in range(MAX_POD_VALUES // 10 - 50)
    ]
    yield "ephemeral volumes", pod("ephemeral", {"volumes": ephemeral})
    ports = [{"containerPort": n + 1, "hostPort": n + 1} for n in range(MAX_POD_VALUES // 4 - 50)]
    yield "host ports", pod("ports", {"containers": [{"name": "c", "image": "i", "ports": ports}]})
    gates = [{"name": f"example.com/g{n}"} for n in range(MAX_POD_VALUES // 2 - 50)]
    yield "gates", pod("gates", {"schedulingGates": gates})
    resources = {f"example.com/r{n}": "1" for n in range(MAX_RULES)}
    requests = {"requests": resources, "limits": resources}
    yield "resources", pod("resources", {"containers": [{"name": "c", "image": "i", "resources": requests}]})


def _template(spec: Content | None = None, **metadata: Any) -> Content:
    return {"metadata": {"labels": {"app": "a"}, **metadata}, "spec": pod("x", spec)["spec"]}


def others() -> Iterator[tuple[str, str, Content]]:
    """Objects of other kinds, with the path they are created at."""
    env = [{"name": f"e{n}", "value": "v"} for n in range(MAX_POD_VALUES // 3 - 50)]
    template = _template({"containers": [{"name": "c", "image": "i", "env": env}]})
    selector = {"matchLabels": {"app": "a"}}
    for kind, more in (
        ("deployments", {"replicas": 2}),
        ("statefulsets", {"replicas": 2, "serviceName": "s"}),
        ("daemonsets", {}),
        ("replicasets", {"replicas": 2}),
    ):
        spec = {"selector": selector, "template": template, **more}
        yield kind, f"{APPS}/{kind}", {"metadata": meta(f"large-{kind}"), "spec": spec}
    job = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    yield (
        "jobs",
        "/apis/batch/v1/namespaces/default/jobs",
        {"metadata": meta("large-job"), "spec": {"template": job, "completions": 3, "parallelism": 3}},
    )
    expressions = _expressions(MAX_VALUES // 5 - 50)
    yield (
        "selector of a budget",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {
            "metadata": meta("large-budget"),
            "spec": {"minAvailable": 1, "selector": {"matchExpressions": expressions}},
        },
    )
    data = {f"k{n}": "v" for n in range(MAX_VALUES - 100)}
    yield "config map", f"{API}/configmaps", {"metadata": meta("large-map"), "data": data}
    labels = {f"l{n}": "v" for n in range(MAX_VALUES - 100)}
    yield "labels of a namespace", "/api/v1/namespaces", {"metadata": meta("large", labels=labels)}
    yield "labels of a node", "/api/v1/nodes", {"metadata": meta("large", labels=labels)}
    taints = [{"key": f"t{n}", "effect": "PreferNoSchedule"} for n in range(MAX_VALUES // 3 - 50)]
    yield "taints of a node", "/api/v1/nodes", {"metadata": meta("tainted"), "spec": {"taints": taints}}
    capacity = {f"example.com/r{n}": "5" for n in range(MAX_NODE_RESOURCES)}
    yield (
        "resources of a node",
        "/api/v1/nodes",
        {"metadata": meta("many"), "status": {"capacity": capacity, "allocatable": capacity}},
    )
    images = [{"names": [f"i{n}"], "sizeBytes": 1} for n in range(MAX_VALUES // 4 - 50)]
    yield "images of a node", "/api/v1/nodes", {"metadata": meta("images"), "status": {"images": images}}
    hard = {f"count/r{n}.example.com": "5" for n in range(MAX_POD_VALUES - 100)}
    yield "quota", f"{API}/resourcequotas", {"metadata": meta("quota"), "spec": {"hard": hard}}
    limits = [{"type": "Container", "max": {f"example.com/r{n}": "5"}} for n in range(MAX_VALUES // 6 - 50)]
    yield "limit range", f"{API}/limitranges", {"metadata": meta("range"), "spec": {"limits": limits}}
    ports = [{"name": f"p{n}", "port": n + 1} for n in range(MAX_VALUES // 5 - 100)]
    yield "service", f"{API}/services", {"metadata": meta("large-service"), "spec": {"ports": ports}}
    requests = [{"name": f"r{n}", "exactly": {"deviceClassName": "c"}} for n in range(32)]
    yield (
        "claim",
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        {"metadata": meta("large-claim"), "spec": {"devices": {"requests": requests}}},
    )
    attributes = {f"a{n}": {"int": n} for n in range(30)}
    devices = [{"name": f"d{n}", "attributes": attributes} for n in range(128)]
    yield (
        "slice",
        "/apis/resource.k8s.io/v1/resourceslices",
        {
            "metadata": meta("large-slice"),
            "spec": {
                "driver": "a.example.com",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": devices,
            },
        },
    )
    expression = "device.attributes['a'].b == 1 && " * 300 + "true"
    selectors = [{"cel": {"expression": expression[-10_000:].lstrip("&= ")}} for n in range(32)]
    yield (
        "device class",
        "/apis/resource.k8s.io/v1/deviceclasses",
        {"metadata": meta("large-class"), "spec": {"selectors": selectors}},
    )


def many() -> Iterator[Request]:
    """Small requests that have controllers make or delete many objects."""
    selector = {"matchLabels": {"app": "a"}}
    for kind, more in (
        ("deployments", {"replicas": 1000}),
        ("statefulsets", {"replicas": 1000, "serviceName": "s", "podManagementPolicy": "Parallel"}),
        ("daemonsets", {}),
    ):
        spec = {"selector": selector, "template": _template(), **more}
        yield Request(f"many, {kind}", "POST", f"{APPS}/{kind}", {"metadata": meta("many"), "spec": spec})
        patch = {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}
        yield Request(f"many, {kind}, rolled", "PATCH", f"{APPS}/{kind}/many", patch, MERGE)
        yield Request(f"many, {kind}, deleted", "DELETE", f"{APPS}/{kind}/many")
    template = _template({"restartPolicy": "Never"})
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    spec = {"template": template, "completions": 1000, "parallelism": 1000}
    yield Request("many, jobs", "POST", jobs, {"metadata": meta("many"), "spec": spec})
    yield Request("many, jobs, deleted", "DELETE", f"{jobs}/many?propagationPolicy=Foreground")
    sets = f"{APPS}/replicasets"
    spec = {"selector": selector, "template": _template(), "replicas": 1000}
    yield Request("many, replicasets", "POST", sets, {"metadata": meta("many"), "spec": spec})
    yield Request("many, replicasets, foreground", "DELETE", f"{sets}/many?propagationPolicy=Foreground")
    yield Request("many, node deleted", "DELETE", "/api/v1/nodes/n01")
    yield Request("many, pods deleted", "DELETE", f"{API}/pods?gracePeriodSeconds=0")


def definition(name: str, schema: Content) -> Content:
    plural = f"{name}s"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": meta(f"{plural}.example.com"),
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": name.capitalize(), "singular": name},
            "versions": [version],
        },
    }


def customs() -> Iterator[Request]:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    text: Content = {"type": "string", "pattern": "^(a|aa)+$", "default": "a"}
    items = {"type": "array", "items": {"type": "object", "properties": {"a": text, "b": text}}}
    yield Request(
        "definition, small",
        "POST",
        crds,
        definition("widget", {"type": "object", "properties": {"spec": items}}),
    )
    properties = {f"p{n}": text for n in range(MAX_CUSTOM_VALUES // 4 - 200)}
    yield Request(
        "definition, 100,000 values",
        "POST",
        crds,
        definition(
            "gadget", {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
        ),
    )
    many = [{"a": "a"} for _ in range(MAX_CUSTOM_VALUES // 3 - 100)]
    widgets = "/apis/example.com/v1/namespaces/default/widgets"
    gadgets = "/apis/example.com/v1/namespaces/default/gadgets"
    head = {"apiVersion": "example.com/v1"}
    yield Request(
        "custom, list with defaults",
        "POST",
        widgets,
        {**head, "kind": "Widget", "metadata": meta("w"), "spec": many},
    )
    yield Request(
        "custom, list that breaks its pattern",
        "POST",
        widgets,
        {**head, "kind": "Widget", "metadata": meta("v"), "spec": [{"a": "b"}] * 30000},
    )
    yield Request(
        "custom, all from defaults",
        "POST",
        gadgets,
        {**head, "kind": "Gadget", "metadata": meta("g"), "spec": {}},
    )
    yield Request("custom, merge patch", "PATCH", f"{widgets}/w", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    yield Request(
        "custom, apply",
        "PATCH",
        f"{widgets}/a?fieldManager=me",
        {**head, "kind": "Widget", "metadata": meta("a"), "spec": many[:20000]},
        APPLY,
    )
    yield Request("custom, get as YAML", "GET", f"{widgets}/w", accept=YAML)
    yield Request("custom, get pretty", "GET", f"{widgets}/w?pretty=true")
    yield Request("custom, table", "GET", f"{widgets}", accept=TABLE)
    yield Request("custom, list as YAML", "GET", widgets, accept=YAML)
    yield Request("definition as YAML", "GET", f"{crds}/gadgets.example.com", accept=YAML)
    yield Request("OpenAPI of the group", "GET", "/openapi/v3/apis/example.com/v1")
    yield Request("definition, deleted", "DELETE", f"{crds}/widgets.example.com")
    yield Request("definition, deleted, large", "DELETE", f"{crds}/gadgets.example.com")


def writes() -> Iterator[Request]:
    for name, content in pods():
        yield Request(f"pod, {name}", "POST", f"{API}/pods", content)
        path = f"{API}/pods/{content['metadata']['name']}"
        yield Request(
            f"pod, {name}, merge patch", "PATCH", path, {"metadata": {"annotations": {"a": "b"}}}, MERGE
        )
        yield Request(
            f"pod, {name}, status", "PATCH", f"{path}/status", {"status": {"message": "m"}}, STRATEGIC
        )
        yield Request(
            f"pod, {name}, applied label",
            "PATCH",
            f"{path}?fieldManager=me",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta(content["metadata"]["name"], labels={"b": "c"}),
            },
            APPLY,
        )
        yield Request(f"pod, {name}, deleted", "DELETE", f"{path}?gracePeriodSeconds=0")
    for name, path, content in others():
        yield Request(name, "POST", path, content)
        named = f"{path}/{content['metadata']['name']}"
        yield Request(f"{name}, merge patch", "PATCH", named, {"metadata": {"labels": {"a": "b"}}}, MERGE)
        yield Request(f"{name}, as YAML", "GET", named, accept=YAML)
        if name not in ("limit range", "quota"):
            yield Request(f"{name}, deleted", "DELETE", named)
        else:
            yield Request(f"pod beside {name}", "POST", f"{API}/pods", pod(name.replace(" ", "-")))
            yield Request(f"{name}, deleted", "DELETE", named)
    yield from patches()
    yield from customs()


def patches() -> Iterator[Request]:
    maps, name = f"{API}/configmaps", "patched"
    yield Request("config map", "POST", maps, {"metadata": meta(name), "data": {"a": "b"}})
    path = f"{maps}/{name}"
    data = {f"k{n}": "v" for n in range(MAX_VALUES - 100)}
    yield Request("merge patch, all values", "PATCH", path, {"data": data}, MERGE)
    yield Request("merge patch, none left", "PATCH", path, {"data": dict.fromkeys(data)}, MERGE)
    yield Request(
        "merge patch, 99,000 nulls", "PATCH", path, {"data": {f"k{n}": None for n in range(99_000)}}, MERGE
    )
    operations = [{"op": "add", "path": f"/data/k{n}", "value": "v"} for n in range(10_000)]
    yield Request("JSON patch, 10,000 operations", "PATCH", path, operations, JSON_PATCH)
    tests = [{"op": "test", "path": "/data", "value": {}}] + [
        {"op": "test", "path": "/metadata/name", "value": name} for n in range(9_999)
    ]
    yield Request("JSON patch, 10,000 tests", "PATCH", path, tests[1:], JSON_PATCH)
    yield Request(
        "service", "POST", f"{API}/services", {"metadata": meta("svc"), "spec": {"ports": [{"port": 1}]}}
    )
    ports = [{"port": n + 1, "name": f"p{n}"} for n in range(2900)]
    order = [{"port": n + 1, "protocol": "TCP"} for n in reversed(range(2900))]
    patch = {"spec": {"ports": ports, "$setElementOrder/ports": order}}
    yield Request("strategic patch, ordered list", "PATCH", f"{API}/services/svc", patch, STRATEGIC)
    yield Request("strategic patch, ordered list again", "PATCH", f"{API}/services/svc", patch, STRATEGIC)
    whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("applied"), "data": data}
    yield Request("apply, all values", "PATCH", f"{maps}/applied?fieldManager=me", whole, APPLY)
    yield Request(
        "apply, all values, another manager",
        "PATCH",
        f"{maps}/applied?fieldManager=you&force=true",
        whole,
        APPLY,
    )
    yield Request(
        "apply, conflicts",
        "PATCH",
        f"{maps}/applied?fieldManager=them",
        {**whole, "data": dict.fromkeys(data, "w")},
        APPLY,
    )
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\ndata:\n" + "".join(
        f"  k{n}: v\n" for n in range(MAX_VALUES - 100)
    )
    yield Request("YAML, all values", "POST", maps, body.encode(), YAML)
    yield Request("as YAML", "GET", f"{maps}/yaml", accept=YAML)
    yield Request("strings of 1 MB", "POST", maps, {"metadata": meta("long"), "data": {"a": "x" * 1_000_000}})
    yield Request("strings of 1 MB as YAML", "GET", f"{maps}/long", accept=YAML)
    yield Request(
        "escapes of 1 MB", "POST", maps, {"metadata": meta("escapes"), "data": {"a": "\n\u00e9 " * 250_000}}
    )
    yield Request("escapes of 1 MB as YAML", "GET", f"{maps}/escapes", accept=YAML)
    for large in ("yaml", "long", "escapes", "applied", "patched"):
        yield Request(f"deleted, {large}", "DELETE", f"{maps}/{large}")


def lists() -> Iterator[Request]:
    maps = f"{API}/configmaps"
    odd = f"{maps}?labelSelector=number%20in%20(1,3,5)"
    unusual = ",".join(f"x{n}!=y" for n in range(600))
    yield Request("list", "GET", maps)
    yield Request("list, selector", "GET", odd)
    yield Request("list, 600 requirements", "GET", f"{maps}?labelSelector={unusual}")
    yield Request("list, fields", "GET", f"{maps}?fieldSelector=metadata.name=m7")
    yield Request("list, first page", "GET", f"{maps}?limit=500")
    yield Request("list, table", "GET", maps, accept=TABLE)
    yield Request("list, table with objects", "GET", f"{maps}?includeObject=Object", accept=TABLE)
    yield Request("list, metadata", "GET", maps, accept=PARTIAL)
    yield Request("list, YAML", "GET", maps, accept=YAML)
    yield Request("list, pretty", "GET", f"{maps}?pretty=true")
    yield Request(
        "watch, initial events",
        "GET",
        f"{maps}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5",
    )
    yield Request(
        "watch, selector, initial events",
        "GET",
        f"{odd}&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5",
    )
    yield Request(
        "watch, table, initial events",
        "GET",
        f"{maps}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5",
        accept=TABLE,
    )
    yield Request("watch, old", "GET", f"{maps}?watch=true&resourceVersion=1&timeoutSeconds=5")
    yield Request(
        "discovery",
        "GET",
        "/apis",
        accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    )
    yield Request("OpenAPI", "GET", "/openapi/v3/api/v1")
    yield Request("OpenAPI, apps", "GET", "/openapi/v3/apis/apps/v1")
    yield Request("deletecollection, selector", "DELETE", odd)
    yield Request("deletecollection", "DELETE", maps)
