"""Roles and requests: the manifests grant what a scheduler needs, all of it and nothing else."""

from __future__ import annotations

import asyncio
import re

from aiohttp import web

from bayplan.api.node import NodeResourceTopology
from bayplan.api.pod import Pod, PodResourceClaim
from bayplan.api.releases import V1_37
from bayplan.api.workloads import ElasticQuota, PodGroup, PriorityClass
from bayplan.client.http import KubernetesCluster
from bayplan.client.leader_election import ElectionSettings, LeaderElection, lease_client
from bayplan.errors import APIError, ConflictError
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.recorder import EventOutput
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import (
    make_device,
    make_device_class,
    make_device_request,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_resource_claim,
    make_resource_slice,
    make_storage_class,
)
from tests.client.http.api_server import BREAK, ApiServer, ReceivedRequest, error_response
from tests.client.http.clients import until, with_server
from tests.deploy.permissions import (
    Permission,
    copying_permissions,
    descheduling_permissions,
    election_permissions,
    group_permissions,
    scheduling_permissions,
    serving_permissions,
    volcano_permissions,
    watching_permissions,
    yunikorn_permissions,
)

from .manifests import OPTIONAL, SECOND, granted

LEASE = "bayplan"

READ = ("get", "list", "watch")
UPSTREAM: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    ("", ("events",), ("create", "patch", "update")),
    ("events.k8s.io", ("events",), ("create", "patch", "update")),
    ("", ("nodes", "namespaces", "services", "replicationcontrollers"), READ),
    ("", ("persistentvolumes", "persistentvolumeclaims"), (*READ, "update", "patch")),
    ("", ("pods",), (*READ, "delete")),
    ("", ("pods/binding", "bindings"), ("create",)),
    ("", ("pods/status",), ("patch", "update")),
    ("apps", ("replicasets", "statefulsets"), READ),
    ("policy", ("poddisruptionbudgets",), READ),
    ("storage.k8s.io", ("csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"), READ),
    ("storage.k8s.io", ("storageclasses",), READ),
    ("resource.k8s.io", ("deviceclasses", "devicetaintrules", "resourceslices"), READ),
    ("resource.k8s.io", ("resourceclaims",), (*READ, "create", "update", "patch", "delete")),
    ("resource.k8s.io", ("resourceclaims/status",), (*READ, "update", "patch")),
    ("resource.k8s.io", ("resourceclaims/binding",), ("update", "patch")),
    # With the gates GenericWorkload and CompositePodGroup.
    ("scheduling.k8s.io", ("podgroups", "compositepodgroups"), READ),
    ("scheduling.k8s.io", ("podgroups/status", "compositepodgroups/status"), ("patch", "update")),
    ("authentication.k8s.io", ("tokenreviews",), ("create",)),
    ("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
]
"""What `system:kube-scheduler` and `system:volume-scheduler` allow in v1.37, as far as bayplan needs it."""


def test_the_manifests_grant_what_is_needed() -> None:
    wanted = scheduling_permissions() | serving_permissions() | election_permissions("kube-system", LEASE)
    assert granted(SECOND) == wanted


def test_the_optional_manifests_grant_what_their_features_need() -> None:
    assert granted(OPTIONAL / "coscheduling-rbac.yaml") == watching_permissions(PodGroup)
    assert granted(OPTIONAL / "pod-groups-rbac.yaml") == group_permissions()
    assert granted(OPTIONAL / "volcano-rbac.yaml") == volcano_permissions()
    assert granted(OPTIONAL / "yunikorn-rbac.yaml") == yunikorn_permissions()
    assert granted(OPTIONAL / "capacity-scheduling-rbac.yaml") == watching_permissions(ElasticQuota)
    assert granted(OPTIONAL / "node-resource-topology-rbac.yaml") == watching_permissions(
        NodeResourceTopology
    )
    assert granted(OPTIONAL / "preemption-toleration-rbac.yaml") == watching_permissions(PriorityClass)
    lease = election_permissions("kube-system", "bayplan-descheduler")
    assert granted(OPTIONAL / "descheduler.yaml") == descheduling_permissions() | lease
    assert granted(OPTIONAL / "estimator.yaml") == copying_permissions()


def test_kube_schedulers_own_roles_suffice() -> None:
    """So that bayplan can take its place under its identity."""
    allowed = {
        Permission(group, resource, verb)
        for group, resources, verbs in UPSTREAM
        for resource in resources
        for verb in verbs
    }
    needed = scheduling_permissions() | serving_permissions() | group_permissions()
    wanted = {item for item in needed if not item.namespace}
    assert wanted - allowed == set()


_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<part>[^/]+))?)?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def permission_for(received: ReceivedRequest) -> Permission | None:
    """What a request needs; None for what every user may do (discovery)."""
    found = _PATH.fullmatch(received.path)
    if found is None:
        assert re.fullmatch(r"/apis/[^/]+/v[^/]+", received.path), received.path
        return None
    resource = found["resource"] + (f"/{found['part']}" if found["part"] else "")
    verb = _VERBS.get(received.method) or (
        "watch" if received.is_watch else "get" if found["name"] else "list"
    )
    if resource != "leases":
        return Permission(found["group"] or "", resource, verb)
    name = "" if verb == "create" else found["name"]
    return Permission(found["group"] or "", resource, verb, found["namespace"], name)


def life(*, streaming: bool) -> set[Permission]:
    """The permissions that a life with everything in it needs.

    Pods are bound, rejected, preempting, with volumes and with devices; an answer is lost; a lease is held
    and released.
    """
    store = MemoryStore()
    store.create(make_node("n", cpu="2", memory="4Gi"))
    store.create(make_storage_class("fast"))
    store.create(make_pv("disk", storage_class="fast"))
    store.create(make_pvc("static", storage_class="fast"))
    store.create(make_pvc("made-on-demand", storage_class="fast", storage="100Gi"))
    store.create(make_device_class("gpu", extended_resource="example.com/gpu"))
    store.create(make_resource_slice("s", make_device("gpu-0"), make_device("gpu-1"), node="n"))
    store.create(make_resource_claim("gpu", make_device_request("gpu", "gpu")))
    victim = store.create(make_pod("victim", requests={"cpu": "2"}, priority=0))
    store.bind(victim.name, victim.namespace, "n")
    answers: dict[str, str | web.StreamResponse] = {
        "/pods/important/binding": BREAK,
        "/resourceclaims/gpu/status": error_response(ConflictError("changed")),
        "/pods/with-devices/binding": error_response(APIError("no", code=422)),
    }
    """To the first request of a path that ends so."""

    async def lose(received: ReceivedRequest) -> str | web.StreamResponse | None:
        ending = next((path for path in answers if received.path.endswith(path)), "")
        return answers.pop(ending, None)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> set[Permission]:
        settings = ElectionSettings(name=LEASE)
        leases = lease_client(cluster.connections, settings)
        election = LeaderElection(leases, settings, "me", events=leases.events())
        await election.acquire()
        running = asyncio.ensure_future(
            Scheduler(
                cluster,
                settings=LoopSettings(eager=False),
                events=EventOutput(cluster.events()),
                release=V1_37,
            ).run()
        )
        try:
            store.create(make_pod("important", requests={"cpu": "1"}, priority=100))
            await until(lambda: bool(store.get(Pod, "important", "default").spec.node_name))
            store.create(make_pod("with-disk", claims=["static", "made-on-demand"]))
            await until(lambda: bool(server.of("PATCH", "/persistentvolumes/disk")))
            await until(lambda: bool(server.of("PATCH", "/persistentvolumeclaims/made-on-demand")))
            claims = (PodResourceClaim(name="gpu", resource_claim_name="gpu"),)
            store.create(make_pod("with-devices", resource_claims=claims, requests={"example.com/gpu": 1}))
            await until(lambda: bool(store.get(Pod, "with-devices", "default").spec.node_name))
            await until(lambda: bool(server.of("POST", "/apis/events.k8s.io/v1/namespaces/default/events")))
            await election.release()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return {
            permission for received in server.received if (permission := permission_for(received)) is not None
        }

    return with_server(store, act, interfere=lose, streaming=streaming)


RARE = {
    Permission("events.k8s.io", "events", "patch"),
    Permission("", "events", "patch"),
    Permission("resource.k8s.io", "resourceclaims/binding", "update"),
    Permission("resource.k8s.io", "resourceclaims/binding", "patch"),
}
"""For events that are repeated (tests/client/http has them), and what the API server checks by itself."""


def test_the_list_has_exactly_the_permissions_that_requests_need() -> None:
    """Nothing is missing in the list, and it has nothing that no request needs."""
    needed = life(streaming=True) | life(streaming=False)
    listed = scheduling_permissions() | election_permissions("kube-system", LEASE)
    assert needed | RARE == listed
