"""Requests over a real socket, and their responses."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bayplan.embedded.server.http import bodies
from bayplan.embedded.server.schema.protobuf import decode_protobuf
from bayplan.errors import DecodeError
from tests.embedded.server.test_schema import DEFINITION

from .serving import APPLY, CONFIG_MAPS, MERGE, PODS, Body, Caller, Reply, binding, config_map, pod, serve


def test_an_object_lives_from_create_to_delete() -> None:
    """Created, read, replaced, patched and deleted; each time with a newer resourceVersion."""

    async def scenario(call: Caller) -> None:
        created = await call("POST", CONFIG_MAPS, config_map(a="1"))
        assert (created.status, created.body["data"]) == (201, {"a": "1"})
        meta = created.body["metadata"]
        assert meta["namespace"] == "default"
        assert meta["uid"]
        assert meta["creationTimestamp"]

        path = f"{CONFIG_MAPS}/settings"
        assert (await call("GET", path)).body == created.body
        created.body["data"]["b"] = "2"
        updated = await call("PUT", path, created.body)
        patched = await call("PATCH", path, {"data": {"a": None}}, MERGE)
        assert patched.body["data"] == {"b": "2"}
        versions = [int(reply.body["metadata"]["resourceVersion"]) for reply in (created, updated, patched)]
        assert versions == sorted(set(versions))

        deleted = await call("DELETE", path)
        assert (deleted.status, deleted.body["status"]) == (200, "Success")
        assert (await call("GET", path)).status == 404

    serve(scenario)


def test_a_pod_is_bound_once() -> None:
    """The condition is written, the zone of the node becomes a label, and a second binding is a conflict."""

    async def scenario(call: Caller) -> None:
        zone = {"topology.kubernetes.io/zone": "eu-a"}
        await call("POST", "/api/v1/nodes", {"metadata": {"name": "n1", "labels": zone}})
        await call("POST", PODS, pod())
        bound = await call("POST", f"{PODS}/web/binding", binding())
        assert (bound.status, bound.body["status"]) == (201, "Success")
        stored = (await call("GET", f"{PODS}/web")).body
        assert stored["spec"]["nodeName"] == "n1"
        assert stored["metadata"]["labels"] == zone
        (condition,) = stored["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
        again = await call("POST", f"{PODS}/web/binding", binding(node="n2"))
        assert (again.status, again.reason) == (409, "Conflict")
        assert again.message == (
            'Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node "n1"'
        )

    serve(scenario)


def test_a_new_pod_has_what_a_server_fills_in() -> None:
    """As a real server answers to the same request."""

    async def scenario(call: Caller) -> Reply:
        return await call("POST", PODS, pod())

    body = serve(scenario).body
    assert body["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "nginx:1",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert body["metadata"]["generation"] == 1


NOT_THERE = "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type", "status", "reason", "message"),
    [
        pytest.param("GET", f"{PODS}/zz", None, "", 404, "NotFound", 'pods "zz" not found', id="no such pod"),
        pytest.param(
            "GET", "/api/v1/foos", None, "", 404, "NotFound", NOT_THERE, id="no such resource"
        ),
        pytest.param("GET", "/apis/x/v1/y", None, "", 404, "NotFound", NOT_THERE, id="no such group"),
        pytest.param(
            "POST", f"{PODS}/a", pod(), "", 405, "MethodNotAllowed",
            "the server does not allow this method on the requested resource", id="a verb that is not there",
        ),
        pytest.param(
            "POST", PODS, b"{bad", "application/json", 400, "BadRequest",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; …",
            id="broken JSON",
        ),
        pytest.param(
            "POST", PODS, b"\x00", "application/vnd.kubernetes.protobuf+x", 415, "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: …",
            id="unknown format",
        ),
        pytest.param(
            "POST", PODS, b" " * (3 * 1024 * 1024 + 1), "application/json", 413, "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728", id="a body that is too large",
        ),
        pytest.param(
            "POST", "/api/v1/namespaces/nope/pods", pod(), "", 404, "NotFound",
            'namespaces "nope" not found',
            id="no such namespace",
        ),
        pytest.param(
            "POST", f"{PODS}?fieldValidation=Strict", {**pod(), "foo": 1}, "", 400, "BadRequest",
            'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "foo"',
            id="an unknown field where that is an error",
        ),
        pytest.param(
            "POST", PODS, {"metadata": {"name": 1}}, "", 400, "BadRequest",
            'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct '
            "field ObjectMeta.metadata.name of type string",
            id="a field of the wrong type",
        ),
        pytest.param(
            "POST", PODS, {"kind": "Node", "apiVersion": "v1"}, "", 400, "BadRequest",
            'Node in version "v1" cannot be handled as a Pod: …', id="another kind",
        ),
        pytest.param(
            "PUT", f"{CONFIG_MAPS}/settings", config_map("other"), "", 400, "BadRequest",
            "the name of the object (other) does not match the name on the URL (settings)",
            id="another name",
        ),
        pytest.param(
            "PUT", f"{CONFIG_MAPS}/settings", {"metadata": {"name": "settings", "resourceVersion": "1"}}, "",
            409, "Conflict",
            'Operation cannot be fulfilled on configmaps "settings": the object has been modified; …',
            id="an older version",
        ),
        pytest.param(
            "POST", CONFIG_MAPS, config_map(), "", 409, "AlreadyExists",
            'configmaps "settings" already exists',
            id="a name that is taken",
        ),
        pytest.param(
            "DELETE", f"{CONFIG_MAPS}/settings", {"preconditions": {"uid": "x"}}, "", 409, "Conflict",
            'Operation cannot be fulfilled on ConfigMap "settings": the UID in the precondition (x) …',
            id="a deletion with the uid of another object",
        ),
        pytest.param(
            "PATCH", f"{CONFIG_MAPS}/settings", {"data": {}}, "application/json", 415, "UnsupportedMediaType",
            "415: Unsupported Media Type",
            id="a patch of no kind",
        ),
        pytest.param(
            "PATCH", f"{CONFIG_MAPS}/x", {"apiVersion": "v1", "kind": "ConfigMap"}, APPLY, 422, "Invalid",
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required …',
            id="apply without a manager",
        ),
        pytest.param(
            "GET", f"{PODS}?labelSelector=a%20b", None, "", 400, "BadRequest",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            id="no label selector",
        ),
        pytest.param(
            "GET", f"{PODS}?fieldSelector=spec.foo=1", None, "", 400, "BadRequest",
            "field label not supported: spec.foo", id="a field that cannot be selected",
        ),
        pytest.param(
            "GET", f"{PODS}?resourceVersion=abc", None, "", 400, "BadRequest",
            'invalid resource version: resourceVersion: Invalid value: "abc": …', id="no resourceVersion",
        ),
        pytest.param(
            "GET", f"{PODS}?resourceVersion=999999", None, "", 504, "Timeout",
            "Timeout: Too large resource version: 999999, current: …", id="a resourceVersion of the future",
        ),
        pytest.param(
            "DELETE", "/api/v1/namespaces/default", None, "", 403, "Forbidden",
            'namespaces "default" is forbidden: this namespace may not be deleted',
            id="the default namespace",
        ),
        pytest.param(
            "POST", f"{PODS}/web/binding", binding("other"), "", 400, "BadRequest",
            "name in URL does not match name in Binding object", id="a binding of another pod",
        ),
        pytest.param(
            "DELETE", f"{CONFIG_MAPS}/settings?dryRun=Bad", None, "", 422, "Invalid",
            'DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Bad"]: supported …',
            id="no dry run",
        ),
    ],
)  # fmt: skip
def test_rejects_as_a_real_server_does(
    method: str, path: str, body: Body, content_type: str, status: int, reason: str, message: str
) -> None:
    """Code, reason and message; `…` at the end stands for anything."""

    async def scenario(call: Caller) -> Reply:
        await call("POST", CONFIG_MAPS, config_map())
        return await call(method, path, body, content_type or "application/json")

    reply = serve(scenario)
    assert (reply.status, reply.reason) == (status, reason), reply.body
    assert reply.body["kind"] == "Status"
    start, cut, _ = message.partition("…")
    assert reply.message == message if not cut else reply.message.startswith(start), reply.message


@pytest.mark.parametrize(
    ("authorization", "path", "status"),
    [
        pytest.param("", PODS, 401, id="anonymous"),
        pytest.param("Bearer wrong", PODS, 401, id="a wrong token"),
        pytest.param("Basic x", "/apis", 401, id="another scheme"),
        pytest.param("", "/readyz", 200, id="health is open to all"),
        pytest.param("", "/version", 200, id="and what it is"),
    ],
)
def test_the_token_is_required(authorization: str, path: str, status: int) -> None:
    """Without it only health and version are served."""

    async def scenario(call: Caller) -> Reply:
        return await call("GET", path, Authorization=authorization)

    reply = serve(scenario)
    assert reply.status == status
    assert status != 401 or reply.reason == "Unauthorized"


PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON = "application/json"
GANGS = "/apis/example.com/v1/namespaces/default/gangs"


def test_protobuf_is_answered_where_nothing_else_is_accepted() -> None:
    async def scenario(call: Caller) -> list[dict[str, Any]]:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        created = await call("POST", definitions, DEFINITION, PROTOBUF)
        assert (created.status, created.body["spec"]["names"]["singular"]) == (201, "gang")
        headers = {"Authorization": f"Bearer {call.server.token}", "Accept": PROTOBUF}
        answered = []
        for path in (f"{definitions}/gangs.example.com", "/api/v1/namespaces/default"):
            async with call.session.get(call.server.url + path, headers=headers) as response:
                assert (response.status, response.content_type) == (200, PROTOBUF)
                answered.append(decode_protobuf(await response.read()))
        async with call.session.get(call.server.url + PODS, headers=headers) as response:
            assert (response.status, response.content_type) == (200, PROTOBUF)
        return answered

    definition, namespace = serve(scenario)
    assert definition["status"]["acceptedNames"]["kind"] == "Gang"
    assert namespace["metadata"]["name"] == "default"


@pytest.mark.parametrize(
    ("path", "accept", "expected"),
    [
        pytest.param(
            "/api/v1/namespaces/default", f"{PROTOBUF},application/json", PROTOBUF, id="protobuf first"
        ),
        pytest.param(
            "/api/v1/namespaces/default", f"{PROTOBUF};q=1, */*", PROTOBUF, id="anything else after it"
        ),
        pytest.param("/api/v1/namespaces/default", f"application/json,{PROTOBUF}", JSON, id="JSON first"),
        pytest.param("/api/v1/namespaces", f"{PROTOBUF},application/json", PROTOBUF, id="a small list"),
        pytest.param(CONFIG_MAPS, f"{PROTOBUF},application/json", JSON, id="a large list"),
        pytest.param(GANGS, f"{PROTOBUF},application/json", JSON, id="a custom resource"),
        pytest.param(f"{PODS}?watch=true", f"{PROTOBUF},application/json", JSON, id="a watch"),
    ],
)
def test_the_first_format_is_answered(path: str, accept: str, expected: str) -> None:
    async def scenario(call: Caller) -> str:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await call("POST", definitions, DEFINITION, PROTOBUF)
        await call("POST", CONFIG_MAPS, {"metadata": {"name": "large"}, "data": {"a": "x" * 70_000}})
        headers = {"Authorization": f"Bearer {call.server.token}", "Accept": accept}
        async with call.session.get(call.server.url + path, headers=headers) as response:
            assert response.status == 200
            return str(response.content_type)

    assert serve(scenario) == expected


@pytest.mark.parametrize("path", [f"{PODS}?watch=true", "/apis/apps"])
def test_what_is_not_answered_in_protobuf(path: str) -> None:
    """A client that accepts nothing else gets the remedy."""

    async def scenario(call: Caller) -> Reply:
        return await call("GET", path, Accept=PROTOBUF)

    reply = serve(scenario)
    assert (reply.status, reply.reason) == (406, "NotAcceptable")
    assert "application/json" in reply.message


def test_an_unknown_field_is_a_warning() -> None:
    """It is left out, and the client gets a warning."""

    async def scenario(call: Caller) -> Reply:
        return await call("POST", CONFIG_MAPS, {**config_map(), "foo": {"bar": 1}})

    reply = serve(scenario)
    assert (reply.status, "foo" in reply.body) == (201, False)
    assert reply.headers["Warning"] == '299 - "unknown field \\"foo\\""'


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_webhook_is_stored_with_a_warning_that_it_is_not_called(method: str) -> None:
    """However it is created; and only then."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hooks = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hooks"},
    }

    async def scenario(call: Caller) -> tuple[Reply, Reply]:
        if method == "POST":
            created = await call("POST", path, hooks)
        else:
            created = await call("PATCH", f"{path}/hooks?fieldManager=me", hooks, APPLY)
        changed = await call("PATCH", f"{path}/hooks", {"metadata": {"labels": {"a": "b"}}}, MERGE)
        return created, changed

    created, changed = serve(scenario)
    assert created.status == 201
    assert created.headers["Warning"] == '299 - "webhooks are stored here, and never called"'
    assert "Warning" not in changed.headers


def test_pages_show_one_moment() -> None:
    """What is created while a list is read page by page does not appear in it."""

    async def scenario(call: Caller) -> list[str]:
        for name in "abcde":
            await call("POST", CONFIG_MAPS, config_map(name))
        names: list[str] = []
        page = (await call("GET", f"{CONFIG_MAPS}?limit=2")).body
        versions = {page["metadata"]["resourceVersion"]}
        assert page["metadata"]["remainingItemCount"] == 3
        await call("POST", CONFIG_MAPS, config_map("cc"))
        await call("DELETE", f"{CONFIG_MAPS}/d")
        while True:
            names += [item["metadata"]["name"] for item in page["items"]]
            versions.add(page["metadata"]["resourceVersion"])
            token = page["metadata"].get("continue")
            if not token:
                break
            page = (await call("GET", f"{CONFIG_MAPS}?limit=2&continue={token}")).body
        assert len(versions) == 1
        return names

    assert serve(scenario) == list("abcde")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        pytest.param("", ["a", "b", "c"], id="everything"),
        pytest.param("labelSelector=app=web", ["a", "b"], id="equality"),
        pytest.param("labelSelector=app!=web", ["c"], id="inequality"),
        pytest.param("labelSelector=tier+in+(front,back),app", ["a", "b"], id="a set and existence"),
        pytest.param("labelSelector=!app", ["c"], id="absence"),
        pytest.param("labelSelector=tier+notin+(front)", ["b", "c"], id="not in a set"),
        pytest.param("fieldSelector=spec.nodeName=n1", ["b"], id="a field"),
        pytest.param("fieldSelector=spec.nodeName!=n1,metadata.name!=c", ["a"], id="fields that differ"),
        pytest.param("fieldSelector=metadata.name=c", ["c"], id="a name"),
        pytest.param("fieldSelector=status.phase=Pending&labelSelector=tier=back", ["b"], id="both"),
    ],
)
def test_selectors_choose(query: str, names: list[str]) -> None:
    """Labels and fields, in lists."""

    async def scenario(call: Caller) -> list[str]:
        for name, labels in (
            ("a", {"app": "web", "tier": "front"}),
            ("b", {"app": "web", "tier": "back"}),
            ("c", {}),
        ):
            made = pod(name)
            made["metadata"]["labels"] = labels
            await call("POST", PODS, made)
        await call("POST", f"{PODS}/b/binding", binding("b"))
        listed = await call("GET", f"{PODS}?{query}")
        return [item["metadata"]["name"] for item in listed.body["items"]]

    assert serve(scenario) == names


def test_a_lease_is_created_by_an_update() -> None:
    """Of the kinds for which a real server does that; others have to be created."""

    async def scenario(call: Caller) -> list[int]:
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
        replies = [await call("PUT", f"{leases}/l", body) for _ in range(2)]
        replies.append(await call("PUT", f"{CONFIG_MAPS}/c", config_map("c")))
        return [reply.status for reply in replies]

    assert serve(scenario) == [201, 200, 404]


def test_names_are_selected_after_a_pod_was_bound() -> None:
    """What is cached of a node for one request does not change the response to another."""

    async def scenario(call: Caller) -> list[str]:
        for name in ("n1", "n2"):
            await call("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        await call("POST", PODS, pod())
        await call("POST", f"{PODS}/web/binding", binding())
        listed = await call("GET", "/api/v1/nodes?fieldSelector=metadata.name!=n1")
        return [item["metadata"]["name"] for item in listed.body["items"]]

    assert serve(scenario) == ["n2"]


def test_an_object_that_is_nested_too_deeply() -> None:
    """It is rejected, without an internal error."""

    async def scenario(call: Caller) -> list[int]:
        codes = []
        for depth in (100, 800, 5_000):
            body = b'{"metadata":{"name":"d%d"},"data":' % depth + b"[" * depth + b"]" * depth + b"}"
            revisions = "/apis/apps/v1/namespaces/default/controllerrevisions"
            codes.append((await call("POST", revisions, body)).status)
        return codes

    assert [code in (201, 400) for code in serve(scenario)] == [True, True, True]


def test_a_watch_reports_what_happens() -> None:
    """From where the list ended, in order; an object that leaves the selection is deleted for the watcher."""

    async def scenario(call: Caller) -> list[tuple[str, str]]:
        version = (await call("GET", PODS)).body["metadata"]["resourceVersion"]
        seen = []
        path = f"{PODS}?watch=1&resourceVersion={version}&fieldSelector=spec.nodeName="
        async with call.watch(path) as following:
            await call("POST", PODS, pod("a"))
            await call("POST", PODS, pod("b"))
            await call("POST", f"{PODS}/a/binding", binding("a"))
            await call("PATCH", f"{PODS}/b", {"metadata": {"labels": {"x": "y"}}}, MERGE)
            await call("DELETE", f"{PODS}/b")
            for _ in range(5):
                event = await following()
                seen.append((event["type"], event["object"]["metadata"]["name"]))
        return seen

    expected = [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert serve(scenario) == expected


def test_a_streaming_list_ends_with_a_bookmark() -> None:
    """All objects as ADDED, a bookmark at their end, and then changes."""

    async def scenario(call: Caller) -> list[str]:
        await call("POST", PODS, pod("a"))
        options = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with call.watch(f"{PODS}?{options}") as following:
            first, mark = await following(), await following()
            await call("DELETE", f"{PODS}/a")
            last = await following()
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(mark["object"]["metadata"]["resourceVersion"]) < int(
            last["object"]["metadata"]["resourceVersion"]
        )
        return [event["type"] for event in (first, mark, last)]

    assert serve(scenario) == ["ADDED", "BOOKMARK", "DELETED"]


def test_a_watch_of_dropped_history_is_gone() -> None:
    """410 as an answer where it begins there, as an ERROR event where it falls behind."""

    async def scenario(call: Caller) -> tuple[int, dict[str, object]]:
        store = call.server.api.store
        async with call.watch(f"{PODS}?watch=1&resourceVersion={store.version}") as following:
            await asyncio.sleep(0)
            old = store.version
            await call("POST", CONFIG_MAPS, config_map())
            store.compact()
            begun = await call("GET", f"{PODS}?watch=1&resourceVersion={old}")
            await call("POST", PODS, pod())
            event = await following()
        assert event["type"] == "ADDED"
        return begun.status, begun.body

    status, body = serve(scenario)
    assert (status, body["reason"]) == (410, "Expired")


def test_a_driver_name_in_capitals_gets_a_warning() -> None:
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    spec = {"pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n", "devices": []}

    async def scenario(call: Caller) -> list[str | None]:
        found = []
        for name, driver in (("a", "GPU.example.com"), ("b", "gpu.example.com")):
            item = {"metadata": {"name": name}, "spec": {**spec, "driver": driver}}
            created = await call("POST", slices, item)
            patch = {"metadata": {"labels": {"a": "b"}}}
            changed = await call("PATCH", f"{slices}/{name}", patch, MERGE)
            assert (created.status, changed.status) == (201, 200)
            found += [created.headers.get("Warning"), changed.headers.get("Warning")]
        return found

    text = (
        'spec.driver: driver names should be lowercase; \\"GPU.example.com\\" contains uppercase characters'
    )
    assert serve(scenario) == [f'299 - "{text}"', f'299 - "{text}"', None, None]


@pytest.mark.parametrize(
    ("manager", "why"),
    [
        ("x" * 129, "Too long: may not be more than 128 bytes"),
        ("a%1bb", "invalid character U+001B (at position 1)"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_field_manager_that_is_rejected(method: str, manager: str, why: str) -> None:
    async def scenario(call: Caller) -> Reply:
        await call("POST", CONFIG_MAPS, config_map("known"))
        path = CONFIG_MAPS if method == "POST" else f"{CONFIG_MAPS}/known"
        kind = "application/json" if method == "POST" else MERGE
        return await call(method, f"{path}?fieldManager={manager}", config_map("new"), kind)

    reply = serve(scenario)
    assert reply.status == 422
    assert f"fieldManager: {why}" in reply.message or why in reply.message


def test_large_yaml_does_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four bodies are parsed one after the other, more are rejected, and JSON does not wait for them."""
    started = threading.Event()
    done = threading.Event()

    def slow(body: bytes) -> list[Any]:
        started.set()
        done.wait(30)
        raise DecodeError("too slow")

    monkeypatch.setattr(bodies, "parse_documents", slow)
    text = b"data: {a: " + b"x" * 100_000 + b"}\n"

    async def scenario(call: Caller) -> tuple[list[int], int]:
        waiting = [asyncio.create_task(call("POST", CONFIG_MAPS, text, "application/yaml")) for _ in range(8)]
        await asyncio.to_thread(started.wait, 30)
        large = config_map("large", a="x" * 20_000)
        written = await asyncio.wait_for(call("POST", CONFIG_MAPS, large), 20)
        done.set()
        return sorted([(await each).status for each in waiting]), written.status

    assert serve(scenario) == ([400] * 4 + [429] * 4, 201)


def test_yaml_may_not_be_as_large_as_json() -> None:
    async def scenario(call: Caller) -> int:
        text = b"data: {a: " + b"x" * (1 << 20) + b"}\n"
        return (await call("POST", CONFIG_MAPS, text, "application/yaml")).status

    assert serve(scenario) == 413


@pytest.mark.parametrize(("how", "status"), [("Strict", 400), ("Warn", 201), ("Ignore", 201)])
def test_a_duplicate_field(how: str, status: int) -> None:
    body = b'{"metadata": {"name": "x"}, "spec": {"containers": [{"name": "a", "name": "c", "image": "i"}]}}'

    async def scenario(call: Caller) -> Reply:
        return await call("POST", f"{PODS}?fieldValidation={how}", body)

    reply = serve(scenario)
    assert reply.status == status
    said = reply.message if how == "Strict" else reply.headers.get("Warning", "").replace("\\", "")
    assert ('duplicate field "spec.containers[0].name"' in said) is (how != "Ignore")


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"requests": {"cpu": "2"}}, ""),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "must be less than or equal to cpu limit"),
        ({"requests": {"cpu": "1", "example.com/gpu": "1"}}, "only cpu and memory resources are mutable"),
        ({}, "Pod QOS Class may not change as a result of resizing"),
    ],
)
def test_a_pod_is_resized(resources: dict[str, Any], problem: str) -> None:
    async def scenario(call: Caller) -> Reply:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        await call("POST", PODS, pod("p", containers=[container]))
        changed = pod("p", containers=[{**container, "image": "other", "resources": resources}])
        changed["metadata"]["labels"] = {"new": "label"}
        return await call("PUT", f"{PODS}/p/resize", changed)

    reply = serve(scenario)
    assert reply.status == (422 if problem else 200), reply.body
    if problem:
        assert problem in reply.message
    else:
        (container,) = reply.body["spec"]["containers"]
        assert (container["resources"], container["image"]) == ({"requests": {"cpu": "2"}}, "i")
        assert reply.body["metadata"]["generation"] == 2
        assert "labels" not in reply.body["metadata"]
