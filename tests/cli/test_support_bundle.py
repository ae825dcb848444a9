"""`bayplan support-bundle` collects what a bug report needs, names what is missing, and leaks nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from aiohttp import web

from bayplan.cli import support_bundle
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import NODES, PODS
from tests.commands import Ended, bayplan

from .decide_files import as_yaml, node, pod

SECRET = "hunter2"
"""Is part of everything that must not be in an archive."""


def bundle(*arguments: str, directory: Path) -> tuple[Ended, dict[str, bytes]]:
    """Runs the command, and returns the files of the archive by name."""
    ended = bayplan("support-bundle", "--to", "s.tar.gz", *arguments, directory=directory)
    if not (directory / "s.tar.gz").exists():
        return ended, {}
    with tarfile.open(directory / "s.tar.gz") as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        found = {name.removeprefix("bayplan-support/"): file.read() for name, file in members.items() if file}
    return ended, found


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    waiting = pod("big", cpu="64")
    message = '0/2 nodes are available: 2 Insufficient cpu. persistentvolumeclaim "payroll" not found'
    reported = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    waiting["status"]["conditions"] = [reported]
    gated = pod("gated", schedulingGates=[{"name": "acme.example/gate"}])
    foreign = pod("foreign", schedulerName="other")
    path.write_bytes(as_yaml(node("n1"), node("n2"), pod("a"), pod("b"), waiting, gated, foreign))
    return str(path)


def test_what_it_contains(cluster: str, tmp_path: Path) -> None:
    ended, files = bundle("-f", cluster, directory=tmp_path)
    assert (ended.status, ended.stdout) == (0, "s.tar.gz: 2 nodes, 5 pods, 2 pending pods explained\n")
    assert list(files) == [
        "README.txt", "bundle.json", "versions.json", "cluster.json", "pending.json", "decisions.json",
    ]  # fmt: skip
    versions = json.loads(files["versions.json"])
    assert {"aiohttp", "numpy"} <= set(versions["packages"])
    assert not {"pytest", "mypy"} & set(versions["packages"])
    pending = {one["message"]: one for one in json.loads(files["pending.json"])}
    assert pending[
        '0/2 nodes are available: 2 Insufficient cpu. persistentvolumeclaim "…" not found'
    ] == {"pods": 1, "message": next(iter(set(pending) - {"the scheduler has not reported anything"})),
          "reason": "Unschedulable", "notEvaluated": None}  # fmt: skip
    fits, unschedulable = json.loads(files["decisions.json"])
    assert (fits["identicalPods"], fits["feasibleNodeCount"], fits["sameOnTheCluster"]) == (2, 2, True)
    assert "2 Insufficient cpu" in unschedulable["message"]
    content = b"".join(files.values())
    assert [word for word in (b"payroll", b"acme", b"n1", b'gated"') if word in content] == []


def test_the_snapshot_gives_the_same_decisions(cluster: str, tmp_path: Path) -> None:
    _, files = bundle("-f", cluster, directory=tmp_path)
    (tmp_path / "c.json").write_bytes(files["cluster.json"])
    decided = json.loads(bayplan("decide", "c.json", "-o", "json", directory=tmp_path).stdout)
    found = {one["pod"]: one["message"] for one in json.loads(files["decisions.json"])}
    results = {one["pod"]: one["fitErrorFull"] for one in decided["results"]}
    assert {name: results[name] for name in found} == found


def test_nothing_is_overwritten(cluster: str, tmp_path: Path) -> None:
    target = tmp_path / "s.tar.gz"
    target.write_text("mine")
    ended = bayplan("support-bundle", "--to", str(target), "-f", cluster)
    assert (ended.status, target.read_text()) == (2, "mine")
    assert "the file exists; pass --overwrite" in ended.stderr
    ended, files = bundle("-f", cluster, "--overwrite", directory=tmp_path)
    assert (ended.status, target.stat().st_mode & 0o777) == (0, 0o600)
    assert "decisions.json" in files


def test_standard_input_is_rejected(tmp_path: Path) -> None:
    ended, _ = bundle("-f", "-", directory=tmp_path)
    assert (ended.status, "standard input" in ended.stderr) == (2, True)


def config_file(directory: Path, **content: Any) -> str:
    path = directory / "config.yaml"
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    path.write_text(yaml.safe_dump(head | content))
    return str(path)


def test_an_invalid_configuration_is_collected_and_named(cluster: str, tmp_path: Path) -> None:
    file = config_file(tmp_path, parallelism=-1)
    ended, files = bundle("-f", cluster, "--config", file, directory=tmp_path)
    assert ended.status == 3
    assert "not collected: decisions.json with the configuration: the configuration cannot be used" in (
        ended.stdout
    )
    assert b"parallelism: -1" in files["configuration.yaml"]
    assert b"not collected: decisions.json with the configuration" in files["README.txt"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a: [", "line 1: "), ("- a\n", "a document is not a mapping")],
    ids=["malformed YAML", "a list"],
)
def test_a_configuration_that_cannot_be_read(text: str, problem: str, cluster: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    ended, files = bundle("-f", cluster, "--config", "c.yaml", directory=tmp_path)
    assert ended.status == 3
    assert f"not collected: configuration.yaml: {problem}" in ended.stdout
    assert "configuration.yaml" not in files


def test_a_configuration_that_depends_on_replaced_labels(tmp_path: Path) -> None:
    """The decision on the redacted cluster is not the real one, and the bundle says so."""
    labelled = node("n1")
    labelled["metadata"]["labels"] = {"disk": "fast"}
    (tmp_path / "c.yaml").write_bytes(as_yaml(labelled, node("n2"), pod("a")))
    expression = {"key": "disk", "operator": "In", "values": ["fast"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    args = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    file = config_file(tmp_path, profiles=[{"pluginConfig": [{"name": "NodeAffinity", "args": args}]}])
    ended, files = bundle("-f", "c.yaml", "--config", file, directory=tmp_path)
    assert ended.status == 3
    assert "1 pod decided differently on the redacted cluster" in ended.stdout
    assert [one["sameOnTheCluster"] for one in json.loads(files["decisions.json"])] == [False]


def test_the_number_of_explained_pods_is_limited(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support_bundle, "MAX_PODS", 1)
    ended, files = bundle("-f", cluster, directory=tmp_path)
    assert (ended.status, len(json.loads(files["decisions.json"]))) == (3, 1)
    assert "1 more pending pod of other kinds: only 1 are explained" in ended.stdout


def test_a_plugin_that_fails(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from bayplan.plugin import NodePlugin\n\n"
        "class Broken(NodePlugin):\n    def filter_node(self, state, pod, node):\n"
        f"        raise KeyError('password={SECRET}')\n"
    )
    plugin = f"{tmp_path / 'broken.py'}:Broken"
    ended, files = bundle("-f", cluster, "--plugin", plugin, directory=tmp_path)
    assert ended.status == 3
    assert "a plugin failed for 2 pods" in ended.stdout
    assert {one["failedPlugin"] for one in json.loads(files["decisions.json"])} == {"Broken"}
    assert SECRET.encode() not in b"".join(files.values())


def test_a_cluster_that_cannot_be_reached(tmp_path: Path) -> None:
    user = {"name": "u", "user": {"token": f"token-{SECRET}"}}
    place = {"name": "c", "cluster": {"server": f"http://me:{SECRET}@127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"current-context": "x", "users": [user], "clusters": [place], "contexts": [context]}
    (tmp_path / "k").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    ended, files = bundle(
        "--kubeconfig", "k", "--scheduler", f"http://me:{SECRET}@127.0.0.1:1", directory=tmp_path
    )
    assert ended.status == 3
    assert ended.stdout.startswith("s.tar.gz: no cluster, 0 pending pods explained\nnot collected: cluster")
    missing = [one["what"] for one in json.loads(files["bundle.json"])["notCollected"]]
    assert missing == ["cluster.json", *(f"scheduler{page}" for page in support_bundle.PAGES)]
    assert SECRET.encode() not in b"".join(files.values()) + ended.output + ended.errors


# A live cluster and a running scheduler, with secrets everywhere


@dataclass(frozen=True)
class Live:
    kubeconfig: Path
    token: str
    scheduler: str


CONFIGZ = {
    "componentconfig": {
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": f"https://u:{SECRET}@e/", "tlsConfig": {"keyData": SECRET}}],
        "profiles": [{"pluginConfig": [{"name": "Mine", "args": {"colour": SECRET, "size": 3}}]}],
    }
}


async def page(request: web.Request) -> web.Response:
    if request.path == "/configz":
        return web.json_response(CONFIGZ)
    if request.path == "/queue":
        return web.json_response({"pod": request.query["pod"], "state": "backoff", "attempts": 4})
    if request.path == "/statusz":
        return web.Response(status=403, text=f'User "{SECRET}" cannot get path')
    if request.path == "/flagz":
        return web.Response(text=f"token={SECRET}\ntls-private-key-file=/etc/key\npassword: '{SECRET} b'\n")
    return web.Response(text=f'scheduler_pending_pods{{queue="active"}} 3\n# Bearer {SECRET}.x\n')


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """An embedded API server, and pages as of a scheduler."""
    ready, stop = Event(), Event()
    path = tmp_path / "kubeconfig"
    found: list[str] = []

    async def serve() -> None:
        application = web.Application()
        application.router.add_get("/{path:.*}", page)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        found.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        async with EmbeddedServer() as server:
            made = node(f"node-{SECRET}")
            made["metadata"] |= {"annotations": {"note": SECRET}, "labels": {"team": SECRET}}
            server.api.create(NODES, made)
            body = pod(f"pod-{SECRET}", cpu="64")
            body["metadata"]["annotations"] = {"vault": SECRET, "kubectl.kubernetes.io/last-applied": SECRET}
            container = body["spec"]["containers"][0]
            container |= {"image": f"registry/{SECRET}:1", "env": [{"name": "PASSWORD", "value": SECRET}]}
            container |= {"command": ["run", f"--token={SECRET}"]}
            server.api.create(PODS, body, "default")
            server.write_kubeconfig(path)
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)
        await runner.cleanup()

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        token = yaml.safe_load(path.read_text())["users"][0]["user"]["token"]
        yield Live(path, token, found[0])
    finally:
        stop.set()
        thread.join()


def test_no_secret_is_in_the_archive(live: Live, tmp_path: Path) -> None:
    """Whichever file it is planted in: the whole archive is searched, also for its base64 form."""
    encoded = base64.b64encode(SECRET.encode()).decode()
    tls = {"certData": encoded, "keyData": encoded, "caData": encoded}
    extender = {"urlPrefix": f"https://me:{SECRET}@e.example/x", "filterVerb": "f", "enableHTTPS": True}
    pem = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"
    args = {"hint": SECRET, "deep": [{"more": pem}], "size": 3}
    file = config_file(
        tmp_path,
        extenders=[extender | {"tlsConfig": tls}],
        clientConnection={"kubeconfig": f"https://t:{SECRET}@h/?access_token={SECRET}"},
        profiles=[{"pluginConfig": [{"name": "Mine", "args": args}]}],
        env=[{"name": "A", "value": SECRET}],
        annotations={"a": SECRET},
    )
    arguments = ["--kubeconfig", str(live.kubeconfig), "--config", file, "--scheduler", live.scheduler]
    ended, files = bundle(*arguments, directory=tmp_path)
    assert ended.status == 3
    assert "not collected: scheduler/statusz: " in ended.stdout
    assert {"scheduler/metrics", "scheduler/configz", "scheduler/flagz", "scheduler/queue.json"} <= set(files)
    leaks = [
        (name, text)
        for name, content in files.items()
        for text in (SECRET, encoded, live.token)
        if text in content.decode()
    ]
    assert leaks == []
    (position,) = json.loads(files["scheduler/queue.json"])
    assert (position["state"], position["attempts"]) == ("backoff", 4)
    assert position["pod"] == json.loads(files["decisions.json"])[0]["pod"]
    assert b"tls-private-key-file=/etc/key" in files["scheduler/flagz"]
    assert b'scheduler_pending_pods{queue="active"} 3' in files["scheduler/metrics"]
    # What is no secret is kept.
    config = yaml.safe_load(files["configuration.yaml"])
    assert config["extenders"][0]["urlPrefix"] == "https://REDACTED@e.example/x"
    assert config["profiles"][0]["pluginConfig"][0]["args"]["size"] == 3
