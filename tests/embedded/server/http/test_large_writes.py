"""The long steps of large writes run beside the event loop, and nothing is lost by that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from bayplan.embedded.server import objects
from bayplan.embedded.server.kinds import CONFIG_MAPS as CONFIG_MAP_KIND
from bayplan.embedded.server.kinds import NAMESPACES, SERVICES
from bayplan.embedded.server.patching import apply
from tests.embedded.server.http.serving import (
    APPLY,
    CONFIG_MAPS,
    MERGE,
    PODS,
    Caller,
    Reply,
    config_map,
    pod,
    serve,
)

SERVICES_PATH = "/api/v1/namespaces/default/services"
STEPS = (
    (objects, "_stored_copy"),
    (objects, "_set_defaults"),
    (objects, "new_problems"),
    (objects, "update_problems"),
    (objects, "track_update"),
    (apply, "paths_of"),
    (apply, "_combined"),
)
"""What takes long for a large object."""


def large_pod(containers: int) -> dict[str, Any]:
    return pod(containers=[{"name": f"c{number}", "image": "i" * 100} for number in range(containers)])


def large_service(name: str) -> dict[str, Any]:
    labels = {f"l{number}": "v" * 20 for number in range(4000)}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"ports": [{"port": 1}]}}


def meanwhile(*actions: Callable[[], object]) -> Callable[[], None]:
    """Lets others act while a step runs in a thread, one of them in each step."""
    loop, waiting = asyncio.get_running_loop(), list(actions)

    def let_act() -> None:
        if not is_loop_thread() and waiting:
            action, done = waiting.pop(0), threading.Event()
            loop.call_soon_threadsafe(action)
            loop.call_soon_threadsafe(done.set)
            assert done.wait(60)

    return let_act


def is_loop_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@pytest.fixture
def observe(monkeypatch: pytest.MonkeyPatch) -> Observe:
    """Notes in which threads each long step runs, and calls a function at the beginning of each."""
    seen: set[str] = set()

    def install(also: Callable[[], None]) -> set[str]:
        for module, name in STEPS:
            monkeypatch.setattr(module, name, observed(name, getattr(module, name), also))
        return seen

    def observed(name: str, function: Callable[..., Any], also: Callable[[], None]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            seen.add(f"{name} {'loop' if is_loop_thread() else 'thread'}")
            also()
            return function(*args)

        return call

    return install


Observe = Callable[[Callable[[], None]], set[str]]


def label(call: Caller, value: str) -> Callable[[], object]:
    patch = {"metadata": {"labels": {"between": value}}}
    return lambda: call.server.api.patch(CONFIG_MAP_KIND, "settings", "default", patch)


@pytest.mark.parametrize(("containers", "where"), [(2, "loop"), (500, "thread")])
def test_large_objects_are_handled_in_threads(containers: int, where: str, observe: Observe) -> None:
    seen: set[str] = set()

    async def scenario(call: Caller) -> list[int]:
        observed = observe(lambda: None)
        applied = {**large_pod(containers), "metadata": {"name": "applied"}}
        labelled = {**applied, "metadata": {"name": "applied", "labels": {"a": "b"}}}
        other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"c": "d"}}}
        replies = [
            await call("POST", PODS, large_pod(containers)),
            await call("PATCH", f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}}, MERGE),
            await call("PATCH", f"{PODS}/applied?fieldManager=me", applied, APPLY),
            await call("PATCH", f"{PODS}/applied?fieldManager=me", labelled, APPLY),
            # Small requests about an object that is large.
            await call("PATCH", f"{PODS}/applied?fieldManager=you", other, APPLY),
            await call("PATCH", f"{PODS}/applied", {"metadata": {"labels": {"e": "f"}}}, MERGE),
        ]
        seen.update(observed)
        return [reply.status for reply in replies]

    assert serve(scenario) == [201, 200, 201, 200, 200, 200]
    assert seen == {f"{name} {where}" for _, name in STEPS}


def test_what_a_large_schema_adds_is_made_in_a_thread(observe: Observe) -> None:
    """The object itself is small."""
    properties = {f"p{number}": {"type": "string", "default": "x"} for number in range(2000)}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "gadgets", "kind": "Gadget"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "gadgets.example.com"}, "spec": spec}
    gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {}}

    async def scenario(call: Caller) -> tuple[set[str], Reply]:
        await call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        seen = observe(lambda: None)
        reply = await call("POST", "/apis/example.com/v1/namespaces/default/gadgets", gadget)
        return set(seen), reply

    seen, reply = serve(scenario)
    assert (reply.status, len(reply.body["spec"])) == (201, 2000)
    assert "_set_defaults thread" in seen


@pytest.mark.parametrize("method", ["PUT", "PATCH", "apply"])
def test_a_change_in_between_is_not_lost(method: str, observe: Observe) -> None:
    """Another client writes while a step runs: the write begins again with what is there then."""
    data = {f"k{number}": "v" * 20 for number in range(4000)}

    async def scenario(call: Caller) -> tuple[Reply, Reply]:
        await call("POST", CONFIG_MAPS, config_map(a="1"))
        observe(meanwhile(*(label(call, value) for value in "xy")))
        if method == "PUT":
            reply = await call("PUT", f"{CONFIG_MAPS}/settings", config_map(**data))
        elif method == "PATCH":
            reply = await call("PATCH", f"{CONFIG_MAPS}/settings", {"data": data}, MERGE)
        else:
            target = f"{CONFIG_MAPS}/settings?fieldManager=me&force=true"
            reply = await call("PATCH", target, config_map(**data), APPLY)
        return reply, await call("GET", f"{CONFIG_MAPS}/settings")

    reply, found = serve(scenario)
    assert reply.status == 200, reply.message
    assert found.body["data"].items() >= data.items()
    # An update without a resourceVersion replaces whatever is there; a patch keeps it.
    expected = None if method == "PUT" else {"between": "y"}
    assert found.body["metadata"].get("labels") == expected


def test_a_version_that_was_replaced_meanwhile_is_a_conflict(observe: Observe) -> None:
    async def scenario(call: Caller) -> Reply:
        created = (await call("POST", CONFIG_MAPS, config_map(a="1"))).body
        observe(meanwhile(label(call, "x")))
        created["data"] = {f"k{number}": "v" * 20 for number in range(4000)}
        return await call("PUT", f"{CONFIG_MAPS}/settings", created)

    assert serve(scenario).status == 409


def test_a_namespace_that_is_deleted_meanwhile_gets_no_object(observe: Observe) -> None:
    async def scenario(call: Caller) -> Reply:
        await call("POST", "/api/v1/namespaces", {"metadata": {"name": "going"}})
        observe(meanwhile(lambda: call.server.api.delete(NAMESPACES, "going")))
        data = {f"k{number}": "v" * 20 for number in range(4000)}
        return await call("POST", "/api/v1/namespaces/going/configmaps", config_map(**data))

    assert serve(scenario).status in (403, 404)


def test_services_that_are_made_at_once_have_addresses_of_their_own(observe: Observe) -> None:
    async def scenario(call: Caller) -> set[str]:
        small = ({"metadata": {"name": name}, "spec": {"ports": [{"port": 1}]}} for name in "abc")
        create = partial(call.server.api.create, SERVICES, namespace="default")
        observe(meanwhile(*(partial(create, content) for content in small)))
        reply = await call("POST", SERVICES_PATH, large_service("large"))
        assert reply.status == 201, reply.message
        found = (await call("GET", SERVICES_PATH)).body["items"]
        return {item["spec"]["clusterIP"] for item in found}

    assert len(serve(scenario)) == 5  # with that of the API server
