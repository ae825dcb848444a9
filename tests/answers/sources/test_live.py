"""A live cluster is listed, and only listed; what may not be listed is a warning."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from aiohttp import web

from bayplan.answers.sources.live import Listing, list_cluster_async
from bayplan.api.kinds import KINDS
from bayplan.client.http import KubernetesCluster
from bayplan.errors import ForbiddenError, NotFoundError
from bayplan.queues.yunikorn.config import DEFAULT_CONFIG
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod
from tests.client.http.api_server import ApiServer, ReceivedRequest, error_response, json_response
from tests.client.http.clients import with_server
from tests.deploy.manifests import OPTIONAL, granted
from tests.deploy.test_permissions import permission_for


def listed(
    store: MemoryStore,
    forbidden: str = "",
    config_map: str = "",
    responses: Mapping[str, web.StreamResponse] = MappingProxyType({}),
) -> tuple[Listing, list[ReceivedRequest]]:
    async def answer(received: ReceivedRequest) -> str | web.StreamResponse | None:
        if received.path == "/version":
            return json_response({"gitVersion": "v1.36.2", "major": "1", "minor": "36"})
        if forbidden and received.path.endswith(forbidden):
            return error_response(ForbiddenError("not you", code=403))
        return responses.get(received.path)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> tuple[Listing, list[ReceivedRequest]]:
        found = await list_cluster_async(server.access, config_map=config_map)
        return found, list(server.received)

    return with_server(store, act, interfere=answer)


def store() -> MemoryStore:
    made = MemoryStore()
    made.create(make_node("n"))
    made.create(make_pod("p"))
    return made


def test_everything_is_listed_and_nothing_else_is_requested() -> None:
    found, received = listed(store())
    assert {item.key for item in found.objects} == {"n", "default/p"}
    assert found.server_version == "v1.36.2"
    assert {"Pod", "Node", "PodDisruptionBudget", "PriorityClass", "PodGroup"} <= found.listed
    assert found.warnings == ()
    requests = [one for one in received if one.path != "/version"]
    assert {one.method for one in received} == {"GET"}
    assert {permission_for(one) for one in requests} == granted(OPTIONAL / "reader.yaml")


def test_a_kind_that_may_not_be_listed() -> None:
    found, _ = listed(store(), "/poddisruptionbudgets")
    assert found.listed == KINDS.names - {"PodDisruptionBudget", "Lease", "Event"}
    (warning,) = found.warnings
    assert warning.object == "poddisruptionbudgets"
    assert warning.message.startswith("poddisruptionbudgets cannot be listed (")


def test_a_kind_of_a_gate_that_is_off_needs_no_permission() -> None:
    found, _ = listed(store(), "/apis/scheduling.k8s.io/v1beta1/podgroups")
    assert found.warnings == ()


def test_listing_fails_where_pods_are_forbidden() -> None:
    with pytest.raises(ForbiddenError):
        listed(store(), "/pods")


CONFIG_MAP = "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs"


@pytest.mark.parametrize(
    ("response", "text", "warning"),
    [
        pytest.param(
            json_response({"data": {"queues.yaml": "partitions: []"}}), "partitions: []", "", id="read"
        ),
        pytest.param(json_response({"data": {}}), DEFAULT_CONFIG, "", id="without the key"),
        pytest.param(
            error_response(NotFoundError("none", code=404)),
            DEFAULT_CONFIG,
            "there is no ConfigMap yunikorn/yunikorn-configs: evaluated with a capacity queue",
            id="absent",
        ),
        pytest.param(
            error_response(ForbiddenError("not you", code=403)),
            None,
            "ConfigMap yunikorn/yunikorn-configs cannot be read (",
            id="forbidden",
        ),
    ],
)
def test_the_config_map_of_capacity_queues(
    response: web.StreamResponse, text: str | None, warning: str
) -> None:
    """One GET of this object, which the role in deploy/ allows."""
    found, received = listed(
        store(), config_map="yunikorn/yunikorn-configs", responses={CONFIG_MAP: response}
    )
    assert found.queues_texts.get("yunikorn/yunikorn-configs") == text
    assert [one.message.startswith(warning) for one in found.warnings] == [True] * bool(warning)
    (request,) = (one for one in received if "configmaps" in one.path)
    assert (request.method, request.path) == ("GET", CONFIG_MAP)
    (permission,) = (each for each in granted(OPTIONAL / "yunikorn-rbac.yaml") if each.name)
    assert (permission.verb, permission.namespace, permission.name) == ("get", "yunikorn", "yunikorn-configs")
