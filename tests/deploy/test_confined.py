"""The scheduler runs as the Deployment has it: read-only root file system, not root, no capabilities."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import NODES, PODS

from .confined import UNAVAILABLE, USER
from .manifests import CONFIG, SECOND, pod_spec, the

CONFINED = [sys.executable, str(Path(__file__).with_name("confined.py"))]
SECONDS = 60


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A directory for what a kubelet mounts; the test is skipped where nothing can be confined."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    probe = [*CONFINED, str(directory), sys.executable, "-c", _PROBE]
    # Without the variables of the tests: coverage could not write where it is confined.
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(probe, capture_output=True, text=True, check=False, timeout=SECONDS, env=env)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stderr.strip())
    assert (done.stdout.split(), done.stderr) == ([str(USER), "0" * 16, "OSError"], "")
    return directory


_PROBE = """
import os, re
print(os.getuid())
print(re.search(r"CapEff:\\s*(\\w+)", open("/proc/self/status").read())[1])
try:
    open("/tmp/written", "w")
except OSError:
    print("OSError")
"""


def test_the_manifest_has_these_settings() -> None:
    """`confined.py` does what the Deployment specifies."""
    spec = pod_spec(the("Deployment", SECOND))
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


def test_it_schedules_and_serves(account: Path) -> None:
    """With the service account of a pod: pods are bound, probes and metrics answered, and SIGTERM ends it."""
    asyncio.run(asyncio.wait_for(_schedule_and_serve(account), SECONDS))


async def _schedule_and_serve(account: Path) -> None:
    (container,) = pod_spec(the("Deployment", SECOND))["containers"]
    (mount,) = container["volumeMounts"]
    arguments = [each.replace(mount["mountPath"], str(CONFIG.parent)) for each in container["args"]]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with EmbeddedServer() as server:
        (account / "token").write_text(server.token)
        (account / "ca.crt").write_bytes(server.certificates.ca.read_bytes())
        status = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
        server.api.create(NODES, {"metadata": {"name": "n1"}, "status": status})
        pod = {"schedulerName": "bayplan", "containers": [{"name": "c", "image": "web"}]}
        server.api.create(PODS, {"metadata": {"name": "web"}, "spec": pod}, "default")
        process = await create_subprocess_exec(
            *CONFINED,
            str(account),
            sys.executable,
            "-m",
            "bayplan.cli.main",
            "run",
            *arguments,
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            env={
                "PATH": os.environ["PATH"],
                "PYTHONDONTWRITEBYTECODE": "1",
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(server.port),
            },
            stderr=PIPE,
        )
        log = asyncio.ensure_future(_read(process))
        try:
            await _until(lambda: "nodeName" in server.api.get(PODS, "web", "default")["spec"], process, log)
            assert await _get(port, "/readyz", server.token) == 200
            assert await _get(port, "/metrics", server.token) == 200
            assert await _get(port, "/metrics", "wrong") == 401
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0, await log
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await log


async def _read(process: Process) -> str:
    assert process.stderr is not None
    return (await process.stderr.read()).decode()


async def _until(is_so: Callable[[], bool], process: Process, log: asyncio.Future[str]) -> None:
    while not is_so():
        assert process.returncode is None, await log
        await asyncio.sleep(0.05)


async def _get(port: int, path: str, token: str) -> int:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}{path}", headers=headers, ssl=trusting) as answer,
    ):
        return answer.status
