"""A live cluster is listed, and only listed; what may not be listed is a warning."""

from __future__ import annotations

import pytest
from aiohttp import web

from bayplan.answers.sources.live import Listing, list_cluster_async
from bayplan.api.kinds import KINDS
from bayplan.client.http import KubernetesCluster
from bayplan.errors import ForbiddenError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod
from tests.client.http.api_server import ApiServer, ReceivedRequest, error_response, json_response
from tests.client.http.clients import with_server
from tests.deploy.manifests import OPTIONAL, granted
from tests.deploy.test_permissions import permission_for


def listed(store: MemoryStore, forbidden: str = "") -> tuple[Listing, list[ReceivedRequest]]:
    async def answer(received: ReceivedRequest) -> str | web.StreamResponse | None:
        if received.path == "/version":
            return json_response({"gitVersion": "v1.36.2", "major": "1", "minor": "36"})
        if forbidden and received.path.endswith(forbidden):
            return error_response(ForbiddenError("not you", code=403))
        return None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> tuple[Listing, list[ReceivedRequest]]:
        return await list_cluster_async(server.access), list(server.received)

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
