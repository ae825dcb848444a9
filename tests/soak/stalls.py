"""`python -m tests.soak.stalls`: how long single requests at the server's limits keep the event loop busy.

Starts the cluster of `bayplan up` in this process, sends it objects and lists at every limit from a thread,
and measures the CPU time of each callback of the event loop: CPU, so that other processes do not count. What
a thread does beside the loop does not count either. The longest callback of each request is printed; the
status is 1 if one took longer than the limit. The garbage collector's pauses are measured by themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import json
import ssl
import sys
import threading
import time
from asyncio.events import Handle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from bayplan.embedded.server.kinds import CONFIG_MAPS, NODES
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from tests.soak.requests_at_limits import Request, lists, many, meta, writes

MAX_MILLISECONDS: Final = 50.0
PAUSE_SECONDS: Final = 1.0
"""How long controllers and the scheduler have for what a request made them do."""


@dataclass(slots=True)
class Meter:
    """The longest callback of the event loop since the last call, without garbage collections."""

    longest: float = 0.0
    callback: str = ""
    over_limit: int = 0
    pause: float = 0.0
    """The garbage collector's longest run."""
    _collecting: float = 0.0
    _collected: float = 0.0

    def install(self) -> None:
        run: Callable[[Handle], None] = getattr(Handle, "_run")  # noqa: B009

        def measured(handle: Handle) -> None:
            name = _name(handle)
            self._collected = 0.0
            started = time.thread_time()
            run(handle)
            seconds = time.thread_time() - started - self._collected
            if not name.startswith("measure"):
                self._add(seconds, name)

        setattr(Handle, "_run", measured)  # noqa: B010
        gc.callbacks.append(self._collect)

    def _collect(self, phase: str, _: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            seconds = time.thread_time() - self._collecting
            self._collected += seconds
            self.pause = max(self.pause, seconds)

    def _add(self, seconds: float, name: str) -> None:
        if seconds > self.longest:
            self.longest, self.callback = seconds, name
        self.over_limit += seconds * 1000 > MAX_MILLISECONDS

    def take(self) -> tuple[float, str, int]:
        taken = self.longest, self.callback, self.over_limit
        self.longest, self.callback, self.over_limit = 0.0, "", 0
        return taken


def _name(handle: Handle) -> str:
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        frame: Any = owner.get_coro()
        names: list[str] = []
        while frame is not None and len(names) < 6:
            names.append(getattr(frame, "__qualname__", type(frame).__name__))
            frame = getattr(frame, "cr_await", None)
        return " > ".join(names)
    return getattr(callback, "__qualname__", repr(callback))


def send(port: int, context: ssl.SSLContext, token: str, request: Request) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=600)
    body = request.content
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Accept": request.accept}
    if body is not None:
        headers["Content-Type"] = request.media_type
    try:
        connection.request(request.method, request.path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


async def measure(only: str, nodes: int, count: int) -> int:
    meter, worst = Meter(), 0
    meter.install()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as client:
        async with LocalCluster(LocalSettings(nodes=nodes), Outcomes()) as cluster:
            server = cluster.server
            context = ssl.create_default_context(cafile=server.certificates.ca)
            for first in range(0, count, 100):
                for number in range(first, first + 100):
                    labels = {"number": str(number % 10)}
                    content = {"metadata": meta(f"m{number}", labels=labels), "data": {"a": "b" * 20}}
                    server.api.create(CONFIG_MAPS, content, "default")
                await asyncio.sleep(0)
            await asyncio.sleep(PAUSE_SECONDS)
            assert server.api.documents(NODES)
            for request in chain(many(), writes(), lists()):
                if only not in request.name:
                    continue
                meter.take()
                status, body = await loop.run_in_executor(
                    client, send, server.port, context, server.token, request
                )
                await asyncio.sleep(PAUSE_SECONDS)
                seconds, callback, number = meter.take()
                worst += number
                mark = "SLOW" if number else ""
                problem = body[:300].decode(errors="replace") if status >= 400 else ""
                print(
                    f"{1000 * seconds:7.1f} ms {mark:4} {status} {request.name}: {callback} {problem}",
                    flush=True,
                )
    print(f"{worst} callbacks over {MAX_MILLISECONDS:g} ms")
    print(f"longest garbage collection: {1000 * meter.pause:.0f} ms")
    return 1 if worst else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.stalls", description=__doc__)
    parser.add_argument("--only", default="", help="requests with this text in their name")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--objects", type=int, default=20_000)
    options = parser.parse_args()
    return asyncio.run(measure(options.only, options.nodes, options.objects))


if __name__ == "__main__":
    sys.exit(main())
