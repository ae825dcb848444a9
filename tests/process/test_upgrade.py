"""Two versions of bayplan side by side: an upgrade and a rollback hand the lease over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bayplan.bench.against import checkout
from bayplan.bench.runner import BenchError
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
