"""Two versions of bayplan side by side: an upgrade and a rollback hand the lease over."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bayplan.bench.against import checkout
from bayplan.bench.runner import BenchError
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import PODS
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod
from tests.client.http.api_server import ApiServer, serving
from tests.effort import LONG_RUN

from .running import bound, kubeconfig, play, started, until
from .test_leading import QUICK, holder

OLDER = "0467ce6a"
"""A commit before traces, the chart, capacity queues and pod groups."""


@LONG_RUN
def test_upgrade_and_rollback_with_both_versions_on_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version stands by while the old one leads, takes over when it is stopped, and the other way
    round. No pod is left without a node."""
    try:
        with checkout(OLDER) as (_, source):
            play(hand_over(tmp_path, source, monkeypatch))
    except BenchError as error:
        pytest.skip(f"the repository does not have the commit {OLDER}: {error}")


@LONG_RUN
def test_a_data_directory_of_an_older_version_opens(tmp_path: Path) -> None:
    """`bayplan up` goes on with the objects that the older one has stored, and schedules."""
    (tmp_path / "web.yaml").write_text(DEPLOYMENT)
    here = ["--data-dir", str(tmp_path / "data"), "--kubeconfig", str(tmp_path / "kubeconfig")]
    command = [sys.executable, "-m", "bayplan.cli.main", "up", *here, "--exit-when-idle", "always"]
    try:
        with checkout(OLDER) as (_, source):
            environment = {**os.environ, "PYTHONPATH": str(source)}
            first = [*command, "--nodes", "2", "-f", str(tmp_path / "web.yaml")]
            subprocess.run(first, env=environment, check=True, capture_output=True)
    except BenchError as error:
        pytest.skip(f"the repository does not have the commit {OLDER}: {error}")
    before = asyncio.run(stored_pods(tmp_path / "data"))
    assert len(before) == 3
    (tmp_path / "web.yaml").write_text(DEPLOYMENT.replace("replicas: 3", "replicas: 5"))
    subprocess.run([*command, "-f", str(tmp_path / "web.yaml")], check=True, capture_output=True)
    after = asyncio.run(stored_pods(tmp_path / "data"))
    assert len(after) == 5
    assert before.items() <= after.items()
    assert all(after.values()), "every pod has a node"


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: i}]
"""


async def stored_pods(directory: Path) -> dict[str, str]:
    """The node of each pod in a data directory, by uid."""
    async with EmbeddedServer(directory) as server:
        pods = server.api.list(PODS, "default")
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}


async def hand_over(directory: Path, older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    store.create(make_node("n", cpu="100", memory="100Gi"))
    server = ApiServer(store)
    own = os.environ.get("PYTHONPATH", "")
    async with serving(server):
        access = f"--kubeconfig={kubeconfig(directory, server.access.server)}"
        monkeypatch.setenv("PYTHONPATH", str(older))
        where = [sys.executable, "-c", "import bayplan; print(bayplan.__file__)"]
        assert str(older) in subprocess.check_output(where, text=True), "it is the older code that runs"
        async with started(access, *QUICK) as old:
            await until(lambda: bool(holder(store)), old)
            first = holder(store)
            store.create(make_pod("before"))
            await until(lambda: "before" in bound(store), old)
            monkeypatch.setenv("PYTHONPATH", own)
            async with started(access, *QUICK) as new:
                await new.wait_for_log(f"standing by: {first} is the leader")
                old.signal()
                assert await old.end() == 0
                await until(lambda: holder(store) not in (first, ""), new)
                second = holder(store)
                store.create(make_pod("after"))
                await until(lambda: "after" in bound(store), new)
                # Back again.
                monkeypatch.setenv("PYTHONPATH", str(older))
                async with started(access, *QUICK) as again:
                    await again.wait_for_log(f"standing by: {second} is the leader")
                    new.signal()
                    assert await new.end() == 0
                    await until(lambda: holder(store) not in (second, ""), again)
                    store.create(make_pod("back"))
                    await until(lambda: "back" in bound(store), again)
    assert set(bound(store)) == {"before", "after", "back"}
