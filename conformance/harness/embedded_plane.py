"""bayplan's embedded API server as a process, in the place of a real control plane.

Without controllers, kubelets and scheduler: what tests put into it stays as it is, as on the real one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from bayplan.client.access import Access
from bayplan.client.kubeconfig import load_access
from conformance.harness.process import Process, wait_until
from conformance.harness.programs import DEFAULT_RELEASE

_SERVE: Final = """
import asyncio, sys
from pathlib import Path
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.api.releases import parse_release

async def main(directory, release):
    async with EmbeddedServer(directory / "data", release=parse_release(release)) as server:
        server.write_kubeconfig(directory / "kubeconfig")
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


class EmbeddedPlane:
    """The embedded server. To be used in a `with` block."""

    def __init__(self, directory: Path, release: str = DEFAULT_RELEASE) -> None:
        self.directory = directory
        self._release = release
        self._server: Process | None = None

    def __enter__(self) -> Self:
        command: list[str | Path] = [sys.executable, "-c", _SERVE, self.directory, self._release]
        self._server = Process("embedded server", command, self.directory / "server.log")
        wait_until(self._is_ready, "embedded server ready")
        return self

    def __exit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.stop()

    def _is_ready(self) -> bool:
        assert self._server is not None
        self._server.check()
        return self.kubeconfig().exists()

    def access(self, user: str = "") -> Access:
        """The same for every user: there is one, which may do everything."""
        return load_access(str(self.kubeconfig()))

    def kubeconfig(self, user: str = "") -> Path:
        return self.directory / "kubeconfig"

    def kubectl(self, program: Path, *arguments: str, given: str | None = None) -> str:
        """What kubectl prints.

        Raises:
            subprocess.CalledProcessError: it failed; `stderr` has the reason.
        """
        command = [str(program), "--kubeconfig", str(self.kubeconfig()), *arguments]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout
