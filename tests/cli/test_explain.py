"""`bayplan explain` as a user calls it: tables, JSON and YAML, files and a live cluster, and mistakes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
import yaml

from bayplan.answers.sources import live
from bayplan.cli.main import main
from bayplan.client.access import Access
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import NAMESPACES, NODES, PODS

from .decide_files import CONFIG, as_yaml, node, pod


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(as_yaml(node("n1"), node("n2", cpu="1"), pod("a", cpu="3"), pod("big", cpu="64")))
    return str(path)


def explain(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(["explain", *arguments]) == status
    captured = capsys.readouterr()
    return captured.out if status == 0 else captured.err


def test_text(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = explain(capsys, "pod", "a", "-f", cluster)
    assert "default/a goes to n1 · 1 of 2 nodes fits" in shown
    assert "decided as Kubernetes" in " ".join(shown.split())
    shown = explain(capsys, "pod", "default/big", "-f", cluster)
    assert "default/big is unschedulable; preemption would not help · 0 of 2 nodes fit" in shown
    assert "Node: Add, UpdateNodeAllocatable" in shown
    assert "cannot be seen from outside" in shown
    assert "\x1b" not in shown


def test_a_gang_that_is_evicted_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its pods on other nodes are victims, too, and are named with their priorities."""
    gang = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}},
    }
    members = [
        pod(f"g-{name}", cpu="4", nodeName=name, schedulingGroup={"podGroupName": "g"})
        for name in ("n1", "n2")
    ]
    path = tmp_path / "gang.yaml"
    path.write_bytes(as_yaml(node("n1"), node("n2"), gang, *members, pod("urgent", cpu="1", priority=9)))
    shown = explain(capsys, "pod", "urgent", "-f", str(path))
    assert "would preempt default/g-n1 and default/g-n2" in shown
    assert "n1    default/g-n1 (0), default/g-n2 (0)" in shown


def test_a_plugin_that_fails(cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text(
        "from bayplan.plugin import NodePlugin\n\n"
        "class Broken(NodePlugin):\n    def score_node(self, state, pod, node):\n"
        "        return node.labels['zone']\n"
    )
    arguments = ["pod", "a", "-f", cluster, "--plugin", f"{plugin}:Broken"]
    error = explain(capsys, *arguments, status=2)
    assert "1 pod was not evaluated completely, because a plugin failed" in error
    assert "KeyError: 'zone' (broken.py:5, in score_node)" in error
    # The same for a node: the other pod fits nowhere, so that the plugin does not score for it.
    assert main(["explain", "node", "n1", *arguments[2:], "--traceback"]) == 2
    captured = capsys.readouterr()
    assert "default/a" in captured.out
    assert 'plugin "Broken" failed' in captured.err
    assert "1 pod was not evaluated completely, because a plugin failed" in captured.err
    assert "Traceback" in captured.err
    assert "Traceback" not in error
    assert "return node.labels['zone']" in explain(capsys, *arguments, "--traceback", status=2)
    of_node = explain(capsys, "node", "n1", *arguments[2:], status=2)
    assert "because a plugin failed" in of_node
    assert "KeyError: 'zone' (broken.py:5, in score_node)" in of_node


def test_one_schema(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    as_json = json.loads(explain(capsys, "pod", "big", "-f", cluster, "-o", "json"))
    assert yaml.safe_load(explain(capsys, "pod", "big", "-f", cluster, "-o", "yaml")) == as_json
    assert (as_json["apiVersion"], as_json["kind"]) == ("bayplan/v1", "PodExplanation")
    assert as_json["result"]["rejections"][0]["detail"].startswith("requests 64 cpu; the largest of")
    found = json.loads(explain(capsys, "node", "n1", "-f", cluster, "-o", "json"))
    assert (found["kind"], [one["fits"] for one in found["pendingPods"]]) == (
        "NodeExplanation",
        [True, False],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pod", "bi"], "Pod default/bi: there is no such pod in {file}. Did you mean default/big"),
        (["node", "n3"], "Node n3: there is no such node in {file}. Did you mean n2 or n1?"),
        (["pod", "big", "--context", "x"], "a cluster comes from -f or from --kubeconfig and --context"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(capsys, *arguments, "-f", cluster, status=2).startswith(
        f"error: {message.format(file=cluster)}"
    )


# A live cluster


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Of an embedded API server with a node and a pod in the namespace `team`, that of the context."""
    ready, stop = Event(), Event()
    path = tmp_path / "kubeconfig"

    async def serve() -> None:
        async with EmbeddedServer() as server:
            server.api.create(NAMESPACES, {"metadata": {"name": "team"}})
            server.api.create(NODES, node("n1"))
            body = pod("web")
            body["metadata"]["namespace"] = "team"
            body["spec"]["containers"][0]["image"] = "i"
            server.api.create(PODS, body, "team")
            server.write_kubeconfig(path)
            content = yaml.safe_load(path.read_text())
            content["contexts"][0]["context"]["namespace"] = "team"
            path.write_text(yaml.safe_dump(content))
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield path
    finally:
        stop.set()
        thread.join()


def test_as_a_kubectl_plugin_with_its_context_and_namespace(kubeconfig: Path, tmp_path: Path) -> None:
    """kubectl runs `kubectl-bayplan` with its own environment."""
    environment = {**os.environ, "KUBECONFIG": f"{tmp_path}/none{os.pathsep}{kubeconfig}"}
    ended = subprocess.run(
        [sys.executable, "-m", "bayplan.cli.kubectl", "explain", "pod", "web", "-o", "json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    found = json.loads(ended.stdout)
    assert (found["pod"], found["source"]["origin"]) == ("team/web", "live")
    assert found["source"]["warnings"] == []
    ended = subprocess.run(
        [sys.executable, "-m", "bayplan.cli.kubectl", "explain", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.startswith("Usage: kubectl bayplan explain")


def test_a_live_cluster_is_shown_with_the_configuration_that_is_assumed(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing in the API says which configuration its scheduler has."""
    live = ("--kubeconfig", str(kubeconfig))
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    for command in (("explain", "pod", "web"), ("whatif",), ("capacity", "team/web", "--at-most", "3")):
        assert main([*command, *live]) == 0
        assert "with the default configuration (no --config)" in " ".join(capsys.readouterr().out.split())
        assert main([*command, *live, "--config", str(config)]) == 0
        assert f"with{config}" in "".join(capsys.readouterr().out.split()), "a long path is wrapped"


def test_a_snapshot_of_a_live_cluster(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It answers as the cluster itself."""
    target = str(tmp_path / "snapshot.json")
    assert main(["snapshot", "--kubeconfig", str(kubeconfig), "--to", target]) == 0
    capsys.readouterr()
    live = json.loads(explain(capsys, "pod", "web", "--kubeconfig", str(kubeconfig), "-o", "json"))
    saved = json.loads(explain(capsys, "pod", "team/web", "-f", target, "-o", "json"))
    assert saved["result"] == live["result"]
    assert saved["source"]["origin"] == "snapshot"
    assert saved["source"]["serverVersion"] == live["source"]["serverVersion"]


def test_the_position_in_the_queue_of_a_scheduler(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request goes to the URL, with the credentials of the kubeconfig and the given CA."""
    requests: list[tuple[str, str, str, bool]] = []

    async def answer(access: Access, pod: str) -> dict[str, object]:
        requests.append((access.server, access.tls.ca_file, pod, bool(access.token)))
        return {"pod": pod, "state": "active", "position": 3, "length": 7, "attempts": 2, "plugins": ["A"]}

    monkeypatch.setattr(live, "read_position", answer)
    options = ["--kubeconfig", str(kubeconfig), "--scheduler", "https://s:10259/", "--scheduler-ca", "ca.crt"]
    shown = explain(capsys, "pod", "web", *options)
    assert "queue: active, position 3 of 7, after 2 attempts, because of A" in shown
    text = "plugin A of the pod's scheduler rejected or holds the pod, and is not run here"
    assert text in " ".join(shown.split())
    assert requests == [("https://s:10259", "ca.crt", "team/web", True)]
    found = json.loads(explain(capsys, "pod", "web", *options, "-o", "json"))["queue"]
    assert (found["visible"], found["position"]) == (True, 3)

    # Capacity queues have positions of their own.
    with_queues = explain(capsys, "pod", "web", *options, "--config", "examples/queues/scheduler.yaml")
    assert "queue: active, after 2 attempts, because of A" in with_queues

    async def gated(access: Access, pod: str) -> dict[str, object]:
        return {"pod": pod, "state": "unschedulable", "plugins": ["SchedulingGates"]}

    monkeypatch.setattr(live, "read_position", gated)
    assert "queue: gated, because of SchedulingGates" in explain(capsys, "pod", "web", *options)
