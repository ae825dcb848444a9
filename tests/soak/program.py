"""`bayplan up` as a process that can be killed and started again with everything that it kept."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bayplan.client.access import Access
from bayplan.client.kubeconfig import load_access

START_SECONDS: Final = 300.0
"""For a cluster of thousands of nodes on a busy machine."""


class Program:
    """One cluster, over all its lives. Everything it prints goes to one log."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self.log = directory / "log"
        self._kubeconfig = directory / "kubeconfig"
        self._command = [
            sys.executable, "-m", "bayplan.cli.main", "up", "--nodes", str(nodes),
            "--data-dir", str(directory / "data"), "--kubeconfig", str(self._kubeconfig),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> float:
        """Starts it, and returns how many seconds it took until it could be used."""
        self._kubeconfig.unlink(missing_ok=True)
        began = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        while not self._kubeconfig.exists():
            if self._process.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"the cluster does not start:\n{self.last_words()}")
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    def access(self) -> Access:
        return load_access(str(self._kubeconfig))

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    async def stop(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        await asyncio.to_thread(self._process.wait, 60)

    def kill(self) -> None:
        """Whatever happens, nothing is left running."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def memory_bytes(self) -> int:
        assert self._process is not None
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the process has no memory any more")

    def cpu_seconds(self) -> float:
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]
