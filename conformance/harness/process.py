"""A child process: its log in a file, its cost from /proc; it ends with this process at the latest."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

STOP_SECONDS: Final = 20.0
"""For a program to end after SIGTERM; then it is killed."""

PORTS: Final = range(12000, 32000)

_PR_SET_PDEATHSIG: Final = 1
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_libc = ctypes.CDLL(None)


class EndedError(Exception):
    """A program has ended though it should run."""


class Process:
    """A program. Leaving the `with` block stops it; the kernel kills it if we die before that.

    To the kernel «we» are the thread that starts it, so that has to be one that stays.

    Args:
        name: for messages.
        command: program and arguments.
        log: file for its output; appended to, so that it contains the logs of several starts.
        environment: variables besides our own.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.started = time.monotonic()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                preexec_fn=_die_with_parent,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raises: EndedError: it has ended; with the end of its log."""
        code = self.exit_code
        if code is not None:
            raise EndedError(f"{self.name} has ended with status {code}:\n{self.last_words()}")

    def last_words(self, characters: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-characters:]

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Its exit status, once it has ended by itself.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """
        return self._process.wait(seconds)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal. SIGSTOP returns when all threads have stopped."""
        self._process.send_signal(number)
        if number is signal.SIGSTOP:
            wait_until(self._has_stopped, "all threads have stopped")

    def _has_stopped(self) -> bool:
        tasks = Path(f"/proc/{self.pid}/task").glob("*/stat")
        return all(task.read_text().rpartition(")")[2].split()[0] in "Tt" for task in tasks)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Sends SIGTERM, later SIGKILL. Returns its exit status."""
        if self.exit_code is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.wait()

    # What it costs

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_bytes(self, field: str = "VmHWM") -> int:
        """Resident memory: the peak, or the current value (VmRSS)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise EndedError(f"{self.name} has no memory any more")


def wait_until(
    condition: Callable[[], bool], what: str, *, seconds: float = 60.0, every: float = 0.05
) -> None:
    """Polls until a condition is true.

    Raises:
        TimeoutError: it is not true in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(every)


def free_ports(count: int) -> list[int]:
    """Free ports on loopback, all different.

    They are below those that Linux gives to connections, and each process that runs tests starts at another
    one, so that nothing else takes a port before the program that it is for does.
    """
    found: list[int] = []
    while len(found) < count:
        port = next(_ports)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        found.append(port)
    return found


def _port_numbers() -> Iterator[int]:
    first = random.SystemRandom().randrange(len(PORTS))
    while True:
        yield from PORTS[first:]
        yield from PORTS[:first]


_ports: Final = _port_numbers()


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
