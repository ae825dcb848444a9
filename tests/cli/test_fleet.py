"""`bayplan fleet`: what it prints, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayplan.cli.errors import ExitStatus
from bayplan.fleet.estimator.live import LiveMember
from bayplan.fleet.estimator.server import ServerSettings
from tests.commands import Ended, bayplan
from tests.fleet.fleets import anti_affinity, deployment, spread, write, write_nodes


@pytest.fixture
def clusters(tmp_path: Path) -> list[str]:
    """Two clusters as options: east has three nodes, west two."""
    east = write_nodes(tmp_path, "east", 3, zones="ab")
    west = write_nodes(tmp_path, "west", 2)
    return ["--cluster", east, "--cluster", west]


def run(tmp_path: Path, clusters: list[str], command: str, *options: str, replicas: int = 5) -> Ended:
    web = write(tmp_path, "web.yaml", deployment(replicas=replicas, **anti_affinity()))
    return bayplan("fleet", command, "--add", web, *clusters, *options)


def test_what_fits_is_divided(tmp_path: Path, clusters: list[str]) -> None:
    ended = run(tmp_path, clusters, "place")
    assert ended.status == ExitStatus.OK
    assert "Deployment shop/web: 5 replicas: all fit (aggregated, first)" in ended.stdout
    assert "anti-affinity: 3, by resources: 12" in ended.stdout
    assert "east: replica 4 would not fit: 0/3 nodes are available" in ended.stdout
    assert (
        "Karmada's estimates would divide it differently: east 5; 2 would stay pending in east"
        in ended.stdout
    )
    assert "staticWeightList" in ended.stdout
    assert "east: 3 nodes, 0 pods" in ended.stderr


def test_what_does_not_fit_is_status_1(tmp_path: Path, clusters: list[str]) -> None:
    ended = run(tmp_path, clusters, "place", "-q", replicas=6)
    assert (ended.status, ended.stderr) == (ExitStatus.NO, "")
    assert "Clusters available replicas 5 are not enough to schedule." in ended.stdout


def test_json_has_everything(tmp_path: Path, clusters: list[str]) -> None:
    ended = run(tmp_path, clusters, "place", "-o", "json")
    found = json.loads(ended.output)
    assert (found["kind"], found["fits"]) == ("FleetPlacement", True)
    shares = {one["name"]: one["replicas"] for one in found["workloads"][0]["clusters"]}
    assert shares == {"east": 3, "west": 2}
    assert found["members"][0] == {
        "name": "east", "source": "files", "nodes": 3, "pods": 0, "ageSeconds": None, "warnings": [],
    }  # fmt: skip


def test_explain_shows_every_step(tmp_path: Path, clusters: list[str]) -> None:
    policy = write(
        tmp_path,
        "policy.yaml",
        {
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "ClusterPropagationPolicy",
            "metadata": {"name": "all"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "placement": {"clusterAffinity": {"labelSelector": {"matchLabels": {"env": "prod"}}}},
            },
        },
        {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "west", "labels": {"env": "prod"}},
        },
    )
    ended = run(tmp_path, clusters, "explain", "--policy", policy, replicas=2)
    assert ended.status == ExitStatus.OK
    printed = " ".join(ended.stdout.split())
    assert "ClusterAffinity: cluster(s) did not match the placement cluster affinity" in printed
    assert "every selected cluster gets all replicas; room is not compared" in printed


@pytest.mark.parametrize(
    ("divide", "text"),
    [
        ("by-room", "all replicas are divided in proportion to room"),
        ("evenly", "replicas are divided by the weights of the policy"),
        ("aggregated", "among as few clusters as have room"),
    ],
)
def test_the_rule_of_a_division_is_explained(
    tmp_path: Path, clusters: list[str], divide: str, text: str
) -> None:
    ended = run(tmp_path, clusters, "explain", "--divide", divide, replicas=4)
    assert text in ended.stdout


def test_capacity_counts_copies(tmp_path: Path, clusters: list[str]) -> None:
    web = write(tmp_path, "web.yaml", deployment(**spread()))
    ended = bayplan("fleet", "capacity", web, "--for", "20", *clusters)
    assert ended.status == ExitStatus.NO
    assert "17 pods like those of Deployment shop/web fit" in ended.stdout
    ended = bayplan("fleet", "capacity", web, "--for", "17", *clusters, "-o", "json")
    assert ended.status == ExitStatus.OK
    assert json.loads(ended.output)["count"] == 17


@pytest.mark.parametrize(("command", "status"), [("drain", ExitStatus.NO), ("lose", ExitStatus.OK)])
def test_a_cluster_goes(tmp_path: Path, clusters: list[str], command: str, status: ExitStatus) -> None:
    """A budget blocks the drain, and not the loss."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-1", "labels": {"app": "web"}, "ownerReferences": [owner]},
        "spec": {"nodeName": "east-0", "containers": [{"name": "a", "image": "a"}]},
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    more = ["--cluster", "east=" + write(tmp_path, "pods.yaml", pod, budget)]
    ended = bayplan("fleet", command, "east", *clusters, *more)
    assert ended.status == status
    assert "1 replica of 1 would go elsewhere, 0 would stay pending" in ended.stdout
    assert ("PodDisruptionBudget default/web allows 0 of 1 eviction" in ended.stdout) is (command == "drain")
    found = json.loads(bayplan("fleet", command, "east", *clusters, *more, "-o", "json").output)
    assert found["workloads"][0]["to"] == {"west": 1}


def test_an_unreachable_cluster_is_named_and_the_rest_goes_on(tmp_path: Path, clusters: list[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "gone", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "me", "user": {}}],
                "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "me"}}],
            }
        )
    )
    ended = run(tmp_path, clusters, "place", "--kubeconfig", str(kubeconfig), "--context", "gone")
    assert ended.status == ExitStatus.NOT_JUDGED
    assert "gone: not read: " in ended.stdout
    assert "Deployment shop/web: 5 replicas: all fit" in ended.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "name at least one cluster"),
        (["--cluster", "east"], "write NAME=FILE"),
        (["--cluster", "a=x.yaml", "--context", "a"], "two clusters are named 'a'"),
        (["--context", "a", "--context", "a"], "two clusters are named 'a'"),
    ],
)
def test_clusters_have_to_be_named(options: list[str], message: str) -> None:
    ended = bayplan("fleet", "lose", "a", *options)
    assert ended.status == ExitStatus.FAILED
    assert message in ended.stderr


def test_an_unknown_cluster_cannot_be_lost(clusters: list[str]) -> None:
    ended = bayplan("fleet", "lose", "north", *clusters)
    assert (ended.status, "there is no cluster 'north' among east, west" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"kind": "Service"}, "it is a Service, not one of PropagationPolicy"),
        (
            {
                "kind": "PropagationPolicy",
                "metadata": {"name": "p"},
                "spec": {"placement": {"spreadConstraints": [{"spreadByField": "region"}]}},
            },
            "one with spreadByField cluster is missing",
        ),
        (
            {"kind": "PropagationPolicy", "metadata": {"name": "p"}, "spec": {"placement": []}},
            "spec.placement",
        ),
    ],
)
def test_a_policy_has_to_be_valid(
    tmp_path: Path, clusters: list[str], content: dict[str, object], message: str
) -> None:
    policy = write(tmp_path, "policy.yaml", content)
    ended = run(tmp_path, clusters, "place", "--policy", policy)
    assert ended.status == ExitStatus.FAILED
    assert message in ended.stderr


def test_a_daemon_set_is_not_divided(tmp_path: Path, clusters: list[str]) -> None:
    agent = {**deployment("agent"), "kind": "DaemonSet"}
    agent["spec"] = {key: value for key, value in agent["spec"].items() if key != "replicas"}
    ended = bayplan("fleet", "place", "--add", write(tmp_path, "agent.yaml", agent), *clusters)
    assert ended.status == ExitStatus.NOT_JUDGED
    assert "not judged: DaemonSet shop/agent: it has one pod on each node of every cluster" in ended.stdout


def test_the_estimator_is_started_with_its_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "me", "user": {}}],
                "contexts": [{"name": "admin@a", "context": {"cluster": "a", "user": "me"}}],
            }
        )
    )
    started: list[tuple[list[str], int]] = []

    async def serve(members: list[LiveMember], settings: ServerSettings) -> None:
        started.append(([one.name for one in members], settings.port))

    monkeypatch.setattr("bayplan.fleet.estimator.server.serve", serve)
    options = ["--kubeconfig", str(kubeconfig), "--context", "a=admin@a", "--port", "0"]
    assert bayplan("fleet", "estimator", *options).status == ExitStatus.OK
    assert started == [(["a"], 0)]
    ended = bayplan("fleet", "estimator", *options, "--client-ca-file", "ca.crt")
    assert (ended.status, "--client-ca-file needs" in ended.stderr) == (ExitStatus.FAILED, True)
