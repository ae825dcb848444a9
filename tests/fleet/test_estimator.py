"""The scheduler-estimator of Karmada: messages, answers, and the server with a small client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Condition, ObjectMeta
from bayplan.api.workloads import ReplicaSet
from bayplan.embedded.server.schema.protobuf import as_varint, bytes_field
from bayplan.errors import BayplanError, ConfigError
from bayplan.fleet.estimator.answers import Estimates
from bayplan.fleet.estimator.server import EstimateMetrics, EstimatorServer, ServerSettings
from bayplan.fleet.estimator.wire import (
    OBJECT_KEY,
    SERVICE,
    WireError,
    decode_count,
    decode_replicas_request,
    decode_sets_request,
    encode_count,
    encode_replicas_request,
)
from bayplan.fleet.karmada.kinds import ReplicaRequirements
from bayplan.testing import make_node, make_pod
from bayplan.testing.builders.pods import make_owner, make_pod_affinity, make_pod_term
from tests.extender.certificates import authority

grpc = pytest.importorskip("grpc")

ONE_CORE = encode_replicas_request("a", {"cpu": "1"})
WEB = "kind=Deployment, name=default/web"
HOST = "kubernetes.io/hostname"


def number(field: int, value: int) -> bytes:
    return as_varint(field << 3) + as_varint(value)


def text(field: int, value: str) -> bytes:
    return bytes_field(field, value.encode())


def quantity(field: int, name: str, amount: str) -> bytes:
    return bytes_field(field, text(1, name) + bytes_field(2, text(1, amount)))


@dataclass
class StillMember:
    """A member without watches."""

    name: str
    cluster: Cluster
    changes: int = 0
    is_synced: bool = True


def web_pod(name: str = "web-1", **fields: Any) -> Any:
    owner = make_owner("ReplicaSet", "web-1a", uid="web-1a")
    labels = {"app": "web", "pod-template-hash": "1a"}
    return make_pod(name, cpu="1", labels=labels, owner=owner, **fields)


def anti_affine(name: str = "web-1") -> Any:
    return web_pod(
        name, node="a-0", affinity=make_pod_affinity(anti_required=[make_pod_term(HOST, {"app": "web"})])
    )


def still(name: str, *objects: Any, nodes: int = 2) -> StillMember:
    made = [
        make_node(
            f"{name}-{number}", cpu="4", labels={HOST: f"{name}-{number}", "disk": "ssd" if number else ""}
        )
        for number in range(nodes)
    ]
    return StillMember(name, Cluster.from_objects([*made, *objects]))


# Messages


def test_a_request_is_read_as_karmada_1_19_writes_it() -> None:
    requirement = bytes_field(1, text(1, "disk") + text(2, "In") + text(3, "ssd"))
    affinity = bytes_field(1, requirement)
    toleration = text(1, "gpu") + text(2, "Exists") + text(4, "NoSchedule")
    claim = (
        bytes_field(2, text(1, "zone") + text(2, "a")) + bytes_field(4, affinity) + bytes_field(5, toleration)
    )
    requirements = bytes_field(1, claim) + text(3, "shop") + text(4, "high") + quantity(5, "cpu", "1500m")
    found = decode_replicas_request(text(1, "a") + bytes_field(2, requirements))
    assert (found.cluster, found.requirements) == (
        "a",
        _requirements(
            {
                "nodeClaim": {
                    "nodeSelector": {"zone": "a"},
                    "hardNodeAffinity": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
                        ]
                    },
                    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                },
                "resourceRequest": {"cpu": "1500m"},
                "namespace": "shop",
                "priorityClassName": "high",
            }
        ),
    )


def _requirements(content: dict[str, Any]) -> ReplicaRequirements:
    from bayplan.fleet.karmada.kinds import decode_karmada

    return decode_karmada(ReplicaRequirements, content)


def test_the_fields_of_karmada_1_18_are_read_where_the_new_ones_are_missing() -> None:
    toleration = text(1, "gpu") + text(2, "Exists")
    old = bytes_field(1, bytes_field(3, toleration)) + quantity(2, "memory", "1Gi")
    found = decode_replicas_request(text(1, "a") + bytes_field(2, old)).requirements
    assert found is not None
    assert found.resource_request == {"memory": "1Gi"}
    assert found.node_claim is not None
    assert found.node_claim.tolerations[0].key == "gpu"


def test_sets_have_components_and_assumed_workloads() -> None:
    component = text(1, "c") + bytes_field(2, text(3, "high") + quantity(4, "cpu", "1")) + number(3, 2)
    assumed = text(1, "shop") + bytes_field(2, component)
    found = decode_sets_request(
        text(1, "a") + bytes_field(2, component) + text(3, "shop") + bytes_field(4, assumed)
    )
    assert [(one.name, one.replicas) for one in found.components] == [("c", 2)]
    assert found.assumed[0].components == found.components


@pytest.mark.parametrize("data", [b"\x0a\xff", b"\x0a\x01\xff", b"\x10\x01", b"\x0f"])
def test_malformed_messages_are_errors(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_replicas_request(data)


@pytest.mark.parametrize("count", [0, 1, 300, 2**31 - 1, -1])
def test_counts_are_read_as_they_are_written(count: int) -> None:
    assert decode_count(encode_count(count)) == count


# Answers


def test_without_a_pod_the_answer_is_karmadas_own() -> None:
    estimates = Estimates([still("a", make_pod("other", cpu="3", node="a-0"))])
    assert estimates.max_available_replicas(ONE_CORE) == 5
    assert estimates.max_available_replicas(ONE_CORE, "kind=Deployment, name=default/unknown") == 5
    selecting = encode_replicas_request("a", {"cpu": "1"}, node_selector={"disk": "ssd"})
    assert estimates.max_available_replicas(selecting) == 4
    assert dict(estimates.answered) == {("a", "MaxAvailableReplicas", "requests"): 3}


def test_the_pod_of_the_workload_makes_the_answer_exact() -> None:
    estimates = Estimates([still("a", anti_affine(), nodes=3)])
    assert estimates.max_available_replicas(ONE_CORE, WEB) == 2
    assert dict(estimates.answered) == {("a", "MaxAvailableReplicas", "template"): 1}


def test_the_pod_may_run_in_another_member() -> None:
    estimates = Estimates([still("a", nodes=3), still("b", anti_affine())])
    assert estimates.max_available_replicas(ONE_CORE, WEB) == 3


def test_a_pod_of_an_older_template_is_not_used() -> None:
    estimates = Estimates([still("a", anti_affine(), nodes=3)])
    assert estimates.max_available_replicas(encode_replicas_request("a", {"cpu": "2"}), WEB) == 5


def test_a_cached_answer_is_the_fresh_one_after_a_change() -> None:
    member = still("a", anti_affine(), nodes=3)
    estimates = Estimates([member])
    assert estimates.max_available_replicas(ONE_CORE, WEB) == 2
    member.cluster.sync(None, make_pod("big", cpu="4", node="a-1"))
    member.changes += 1
    assert estimates.max_available_replicas(ONE_CORE, WEB) == 1
    assert Estimates([member]).max_available_replicas(ONE_CORE, WEB) == 1


def test_assumed_workloads_take_their_room() -> None:
    component = text(1, "c") + bytes_field(2, quantity(4, "cpu", "3")) + number(3, 2)
    assumed = bytes_field(3, text(1, "shop") + bytes_field(2, component))
    assert Estimates([still("a")]).max_available_replicas(ONE_CORE + assumed) == 2


def test_sets_fit_first_fit() -> None:
    component = bytes_field(2, text(1, "c") + bytes_field(2, quantity(4, "cpu", "3")) + number(3, 2))
    estimates = Estimates([still("a", nodes=5)])
    assert estimates.max_available_sets(text(1, "a") + component) == 2
    assert estimates.max_available_sets(text(1, "a")) == 550


def test_unschedulable_replicas_of_the_newest_replica_set_are_counted() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def waiting(name: str, minutes: int) -> Any:
        since = now - timedelta(minutes=minutes)
        condition = Condition(
            type="PodScheduled", status="False", reason="Unschedulable", last_transition_time=since
        )
        return web_pod(name, conditions=[condition])

    owner = make_owner("Deployment", "web")
    meta = ObjectMeta(name="web-1a", namespace="default", uid="web-1a", owner_references=(owner,))
    newest = ReplicaSet(metadata=meta)
    member = still("a", waiting("web-1", 10), waiting("web-2", 1), newest)
    estimates = Estimates([member], now=lambda: now)
    reference = bytes_field(2, text(2, "Deployment") + text(3, "default") + text(4, "web"))
    five_minutes = number(3, 5 * 60 * 10**9)
    assert estimates.unschedulable_replicas(text(1, "a") + reference + five_minutes) == 1
    assert estimates.unschedulable_replicas(text(1, "a") + reference) == 2
    other = bytes_field(2, text(2, "Job") + text(3, "default") + text(4, "web"))
    with pytest.raises(BayplanError, match=r"kind\(Job\) of workload\(default/web\) is not supported"):
        estimates.unschedulable_replicas(text(1, "a") + other)


def test_another_cluster_is_an_error() -> None:
    with pytest.raises(BayplanError, match="cluster name does not match, got: x, desire: a"):
        Estimates([still("a")]).max_available_replicas(encode_replicas_request("x", {}))
    unread = still("a")
    unread.is_synced = False
    with pytest.raises(BayplanError, match="has not been read completely yet"):
        Estimates([unread]).max_available_replicas(ONE_CORE)


# The server


def ask(
    estimates: Estimates,
    requests: list[tuple[str, bytes, str]],
    settings: ServerSettings,
    connect: Callable[[str], Any],
) -> list[int | str]:
    """Starts a server, sends requests (method, message, workload), and returns counts or error texts."""

    async def run() -> list[int | str]:
        server = EstimatorServer(estimates, settings)
        await server.start()
        found: list[int | str] = []
        try:
            async with connect(f"localhost:{server.port}") as channel:
                for method, data, workload in requests:
                    call = channel.unary_unary(f"/{SERVICE}/{method}")
                    try:
                        answer = await call(data, metadata=((OBJECT_KEY, workload),), timeout=10)
                        found.append(decode_count(answer))
                    except grpc.aio.AioRpcError as error:
                        found.append(error.details() or error.code().name)
        finally:
            await server.stop()
        return found

    return asyncio.run(run())


LOCAL = ServerSettings(address="localhost", port=0)


def test_a_client_gets_answers() -> None:
    estimates = Estimates([still("a", anti_affine(), nodes=3)])
    requests = [
        ("MaxAvailableReplicas", ONE_CORE, WEB),
        ("MaxAvailableReplicas", ONE_CORE, "x"),
        ("MaxAvailableComponentSets", text(1, "a"), ""),
        ("MaxAvailableReplicas", encode_replicas_request("x", {}), WEB),
    ]
    assert ask(estimates, requests, LOCAL, grpc.aio.insecure_channel) == [
        2,
        11,
        329,
        "failed to estimate replicas: cluster name does not match, got: x, desire: a",
    ]
    registry = CollectorRegistry()
    registry.register(EstimateMetrics(estimates))
    line = b'bayplan_fleet_estimates_total{cluster="a",method="MaxAvailableReplicas",source="template"} 1.0'
    assert line in generate_latest(registry)


def test_clients_need_a_certificate(tmp_path: Path) -> None:
    ca = authority("fleet")
    server, client = ca.issue("localhost", "localhost"), ca.issue("karmada-scheduler")
    files = {"ca": ca.certificate, "cert": server.certificate, "key": server.key}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    cert_file, key_file, ca_file = (str(tmp_path / name) for name in ("cert", "key", "ca"))
    settings, roots = ServerSettings("localhost", 0, cert_file, key_file, ca_file), ca.certificate
    known = grpc.ssl_channel_credentials(roots, client.key, client.certificate)
    unknown = grpc.ssl_channel_credentials(roots)
    requests = [("MaxAvailableReplicas", ONE_CORE, "")]
    estimates = Estimates([still("a")])
    assert ask(estimates, requests, settings, lambda to: grpc.aio.secure_channel(to, known)) == [8]
    (refused,) = ask(estimates, requests, settings, lambda to: grpc.aio.secure_channel(to, unknown))
    assert isinstance(refused, str)


@pytest.mark.parametrize(
    "settings",
    [ServerSettings(cert_file="x"), ServerSettings(client_ca_file="x")],
    ids=["a certificate without a key", "client certificates without TLS"],
)
def test_settings_that_contradict_each_other_are_errors(settings: ServerSettings) -> None:
    with pytest.raises(ConfigError):
        EstimatorServer(Estimates([]), settings)
