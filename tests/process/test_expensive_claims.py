"""A claim whose search takes long: other pods are bound, probes are answered, and the lease is renewed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aiohttp
import pytest

from bayplan.api.pod import Pod, PodResourceClaim
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_device_class, make_node, make_pod
from tests.client.http.api_server import ApiServer
from tests.dra.hard import hard_claim, hard_slices

from .running import bound, play, scheduling, until
from .test_endpoints import OPEN, free_port

NODES = 8
OTHERS = 40
LEASE = (
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=200ms",
)
MAX_SECONDS = 1.0
"""Within which a probe is answered. It is CPU time of the scheduler: the machine may be busy."""


def cluster() -> MemoryStore:
    store = MemoryStore()
    store.create(make_device_class("gpu"))
    for number in range(NODES):
        store.create(make_node(f"n{number}", cpu="100", memory="100Gi"))
        for item in hard_slices(f"n{number}"):
            store.create(item)
    for name in ("hard-1", "hard-2"):
        add_hard_pod(store, name)
    return store


def add_hard_pod(store: MemoryStore, name: str) -> None:
    store.create(hard_claim(name))
    claim = PodResourceClaim(name="gpu", resource_claim_name=name)
    store.create(make_pod(name, resource_claims=(claim,)))


def message(store: MemoryStore, name: str) -> str:
    """Why the pod is not scheduled, as its status says."""
    return "".join(condition.message for condition in store.get(Pod, name, "default").status.conditions)


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_others_are_bound_and_probes_are_answered(tmp_path: Path) -> None:
    store, port = cluster(), free_port()
    delays: list[float] = []

    async def main() -> str:
        where = (f"--secure-port={port}", "--bind-address=127.0.0.1", OPEN)
        async with (
            scheduling(ApiServer(store), tmp_path, *where, *LEASE) as run,
            aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session,
        ):
            await until(lambda: "timed out trying to allocate" in message(store, "hard-1"), run)
            pid = run.process.pid
            for number in range(OTHERS):
                store.create(make_pod(f"p{number}"))
                if not number % 5:
                    add_hard_pod(store, f"more-{number}")
                started = cpu_seconds(pid)
                async with session.get("/livez", ssl=False) as answer:
                    assert answer.status == 200
                delays.append(cpu_seconds(pid) - started)
                await asyncio.sleep(0.1)
            await until(lambda: len(bound(store)) == OTHERS, run)
            assert run.process.returncode is None, "a scheduler that loses its lease ends"
            return run.log

    log = play(main())
    assert bound(store).keys() == {f"p{number}" for number in range(OTHERS)}
    assert max(delays) < MAX_SECONDS, log
