"""A Karmada control plane: Clusters, policies and bindings decide as they do there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from bayplan.cli.errors import ExitStatus
from tests.commands import Ended, bayplan
from tests.fleet.fleets import anti_affinity, deployment, write, write_nodes

AGGREGATED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}
PLACEMENT = {
    "clusterAffinity": {"labelSelector": {"matchLabels": {"env": "prod"}}},
    "replicaScheduling": AGGREGATED,
}


def cluster(name: str, **labels: str) -> dict[str, Any]:
    summary = {"allocatable": {"cpu": "40", "memory": "100Gi", "pods": "100"}}
    apis = [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}]
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "labels": labels},
        "status": {"apiEnablements": apis, "resourceSummary": summary},
    }


POLICY = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
        "placement": PLACEMENT,
    },
}


def binding(**clusters: int) -> dict[str, Any]:
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {
            "name": "web-deployment",
            "namespace": "shop",
            "annotations": {"policy.karmada.io/applied-placement": json.dumps(PLACEMENT)},
            "labels": {"propagationpolicy.karmada.io/permanent-id": "1"},
        },
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "replicas": sum(clusters.values()),
            "clusters": [{"name": name, "replicas": count} for name, count in clusters.items()],
            "placement": PLACEMENT,
        },
    }


class Plane:
    """Serves lists, as an API server would, and a kubeconfig for it."""

    def __init__(self, directory: Path) -> None:
        self.items: dict[str, list[dict[str, Any]]] = {
            "clusters": [],
            "propagationpolicies": [POLICY],
            "clusterpropagationpolicies": [],
            "resourcebindings": [],
        }
        plane = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                plural = self.path.partition("?")[0].rpartition("/")[2]
                found = plane.items.get(plural)
                body = json.dumps(
                    {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": found}
                    if found is not None
                    else {"kind": "Status", "code": 404, "status": "Failure", "message": "page not found"}
                ).encode()
                self.send_response(200 if found is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.kubeconfig = directory / "kubeconfig"
        address = f"http://127.0.0.1:{self.server.server_port}"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "k", "cluster": {"server": address}}],
                    "users": [{"name": "k", "user": {}}],
                    "contexts": [{"name": "karmada", "context": {"cluster": "k", "user": "k"}}],
                }
            )
        )


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    made = Plane(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


def place(plane: Plane, directory: Path, *options: str, replicas: int = 4) -> Ended:
    """Places a Deployment with anti-affinity in east (3 nodes) and west (2 nodes)."""
    web = write(directory, "web.yaml", deployment(replicas=replicas, **anti_affinity()))
    members = [write_nodes(directory, "east", 3), write_nodes(directory, "west", 2)]
    named = [word for one in members for word in ("--cluster", one)]
    control = ["--karmada-context", "karmada", "--kubeconfig", str(plane.kubeconfig)]
    return bayplan("fleet", "place", "-q", "--add", web, *named, *control, *options)


def test_its_policies_and_the_labels_of_its_clusters_decide(plane: Plane, tmp_path: Path) -> None:
    plane.items["clusters"] = [cluster("east", env="prod"), cluster("west", env="test")]
    ended = place(plane, tmp_path, replicas=3)
    assert ended.status == ExitStatus.OK, ended.stdout + ended.stderr
    assert "3 replicas: all fit (aggregated, first)" in ended.stdout
    assert place(plane, tmp_path, replicas=4).status == ExitStatus.NO


def test_a_cluster_that_was_not_read_has_only_an_estimate(plane: Plane, tmp_path: Path) -> None:
    plane.items["clusters"] = [cluster(name, env="prod") for name in ("east", "west", "north")]
    ended = place(plane, tmp_path)
    assert ended.status == ExitStatus.NOT_JUDGED
    assert "north: not read, so Karmada's estimate was used for it" in ended.stdout


def test_replicas_that_add_up_are_left_alone(plane: Plane, tmp_path: Path) -> None:
    plane.items["clusters"] = [cluster("east", env="prod"), cluster("west", env="prod")]
    plane.items["resourcebindings"] = [binding(east=2, west=2)]
    ended = place(plane, tmp_path)
    assert "karmada-scheduler does not schedule the binding again: its replicas add up" in ended.stdout


def test_a_changed_number_of_replicas_is_scheduled_again(plane: Plane, tmp_path: Path) -> None:
    plane.items["clusters"] = [cluster("east", env="prod"), cluster("west", env="prod")]
    plane.items["resourcebindings"] = [binding(east=2, west=1)]
    ended = place(plane, tmp_path)
    assert "schedules the binding again: the number of replicas has changed" in ended.stdout
    found = json.loads(place(plane, tmp_path, "-o", "json").output)["workloads"][0]
    assert found["karmadaTrigger"] == "the number of replicas has changed"
    assert {one["name"]: one["replicas"] for one in found["clusters"]} == {"east": 3, "west": 1}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"spec": {"suspension": {"scheduling": True}}}, "its scheduling is suspended"),
        ({"spec": {"schedulerName": "other"}}, "its schedulerName is other"),
        ({"metadata": {"labels": {}}}, "it has no label of the policy that made it"),
    ],
)
def test_a_binding_that_karmada_scheduler_ignores_is_named(
    plane: Plane, tmp_path: Path, fields: dict[str, dict[str, Any]], why: str
) -> None:
    plane.items["clusters"] = [cluster("east", env="prod"), cluster("west", env="prod")]
    ignored = binding(east=2, west=1)
    for part, values in fields.items():
        ignored[part] |= values
    plane.items["resourcebindings"] = [ignored]
    assert f"does not schedule the binding again: {why}" in place(plane, tmp_path).stdout
    found = json.loads(place(plane, tmp_path, "-o", "json").output)["workloads"][0]
    assert (found["karmadaIgnores"], found["karmadaClusters"]) == (why, {"east": 2, "west": 1})


def test_estimates_are_from_the_summary_that_karmada_has(plane: Plane, tmp_path: Path) -> None:
    """Both members have nodes with 4 cores; the control plane does not know that west is empty again."""
    full = cluster("west", env="prod")
    full["status"]["resourceSummary"]["allocated"] = {"cpu": "39", "pods": "39"}
    plane.items["clusters"] = [cluster("east", env="prod"), full]
    found = json.loads(place(plane, tmp_path, "-o", "json").output)["workloads"][0]
    rooms = {one["name"]: one["room"] for one in found["clusters"]}
    assert {name: one["karmadaGeneral"] for name, one in rooms.items()} == {"east": 40, "west": 1}
    assert {name: one["exact"] for name, one in rooms.items()} == {"east": 3, "west": 2}


def test_another_api_server_is_not_taken_for_one(plane: Plane, tmp_path: Path) -> None:
    del plane.items["clusters"]
    ended = place(plane, tmp_path)
    assert ended.status == ExitStatus.FAILED
    assert "is not a Karmada control plane" in ended.stderr
