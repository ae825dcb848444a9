"""`bayplan run` as a process of its own, beside an API server in the test."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from bayplan.api.pod import Pod
from bayplan.simulate.memory.store import MemoryStore
from tests.client.http.api_server import ApiServer, serving
from tests.client.http.certificates import authority, server_tls

T = TypeVar("T")

PATIENCE_SECONDS = 120
"""For something to happen that must happen, on a busy machine, too."""
SECRET = "s3cret-t0ken"
ALONE = ("--leader-elect=false", "--secure-port=0")
"""Flags of a scheduler that neither elects nor serves."""


@dataclass
class Run:
    """A running scheduler, and its log so far."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)
    _logged: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip("\n"))
            self._logged.set()

    async def wait_for_log(self, text: str) -> str:
        """Waits for a line with this text."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for line in self.lines:
                    if text in line:
                        return line
                self._logged.clear()
                await self._logged.wait()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def end(self) -> int:
        """The exit status."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()


def kubeconfig(directory: Path, server: str, token: str = SECRET, **cluster: Any) -> str:
    """A kubeconfig for this server; returns its path."""
    path = directory / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


@asynccontextmanager
async def started(*flags: str) -> AsyncIterator[Run]:
    """A process with these flags; whatever is left of it is killed at the end."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bayplan.cli.main",
        "run",
        *flags,
        env=environ,
        stderr=asyncio.subprocess.PIPE,
    )
    run = Run(process)
    reading = asyncio.ensure_future(run.read())
    try:
        yield run
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


def play(act: Coroutine[Any, Any, T]) -> T:
    """The result, within the time that a test may take."""

    async def main() -> T:
        async with asyncio.timeout(PATIENCE_SECONDS * 2):
            return await act

    return asyncio.run(main())


@asynccontextmanager
async def scheduling(
    server: ApiServer, directory: Path, *flags: str, tls: bool = False
) -> AsyncIterator[Run]:
    """The server, and a scheduler of it. Over TLS it shows its token, otherwise it does not."""
    trusted = base64.b64encode(authority("cluster").certificate).decode()
    cluster = {"certificate-authority-data": trusted} if tls else {}
    async with serving(server, server_tls() if tls else None):
        access = kubeconfig(directory, server.access.server, **cluster)
        async with started(f"--kubeconfig={access}", *flags) as run:
            yield run


def bound(store: MemoryStore) -> dict[str, str]:
    """The node of every pod that has one."""
    return {pod.name: pod.spec.node_name for pod in store.list(Pod) if pod.spec.node_name}


async def until(true: Callable[[], bool], run: Run) -> None:
    """Waits for something to come true, as long as the scheduler runs."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not true():
                assert run.process.returncode is None, run.log
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"it did not happen\n{run.log}") from None
