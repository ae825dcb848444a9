"""Extenders that answer by checksum, so that recorded runs with extenders can be replayed.

Each has a name, which is its path, and a policy; all are served on one loopback port. An answer depends on
the names of extender, pod and node alone: `h(words) = crc32("/".join(words))`.

| verb | answer |
|---|---|
| filter | `Error` for one pod in `fail`; one node in `unresolvable` never; of the rest one in `refuse` not |
| prioritize | a score below 100003 |
| preempt | the victims unchanged, without one node in `spare` |
| bind | `Error` as for filter, else the pod is bound through the function that was given |

A policy that is 0 or absent does nothing. The extenders are nodeCacheCapable: they deal in names and uids.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self
from zlib import crc32

from aiohttp import web

Bind = Callable[[str, str, str, str], Awaitable[None]]
"""`bind(namespace, name, uid, node)`: creates the Binding."""

SCORES: Final = 100_003
HOST: Final = "127.0.0.1"


def checksum(*words: str) -> int:
    return crc32("/".join(words).encode())


class ChecksumExtenders:
    """The extenders of one run. As an async context manager it serves them.

    `filtered` collects the filter calls, `[name, sorted node names]` each; the code that replays the run
    clears it.
    """

    def __init__(self, policies: Mapping[str, Mapping[str, int]], bind: Bind, port: int = 0) -> None:
        self._policies = policies
        self._bind = bind
        self.port = port
        """The port; before serving, 0 means any free port."""
        self.filtered: list[list[Any]] = []
        self._runner: web.AppRunner | None = None

    def url(self, name: str) -> str:
        """urlPrefix of an extender, for the configuration."""
        return f"http://{HOST}:{self.port}/{name}"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=0)
        app.router.add_post("/{name}/{verb}", self._serve)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        policy = self._policies.get(name)
        if policy is None:
            raise web.HTTPNotFound
        args = await request.json()
        match request.match_info["verb"]:
            case "filter":
                return web.json_response(self._filter(name, policy, args))
            case "prioritize":
                return web.json_response(_prioritize(name, args))
            case "preempt":
                return web.json_response(_preempt(name, policy, args))
            case "bind":
                return web.json_response(await self._bound(name, policy, args))
            case _:
                raise web.HTTPNotFound

    def _filter(self, name: str, policy: Mapping[str, int], args: Mapping[str, Any]) -> dict[str, Any]:
        nodes: list[str] = args["NodeNames"]
        self.filtered.append([name, sorted(nodes)])
        pod: str = args["Pod"]["metadata"]["name"]
        if _chosen(policy, "fail", "fail", name, pod):
            return _failure(name)
        left: list[str] = []
        refused: dict[str, str] = {}
        never: dict[str, str] = {}
        for node in nodes:
            if _chosen(policy, "unresolvable", "never", name, pod, node):
                never[node] = f"{name} never takes it"
            elif _chosen(policy, "refuse", "refuse", name, pod, node):
                refused[node] = f"{name} refuses"
            else:
                left.append(node)
        return {"NodeNames": left, "FailedNodes": refused, "FailedAndUnresolvableNodes": never}

    async def _bound(self, name: str, policy: Mapping[str, int], args: Mapping[str, str]) -> dict[str, str]:
        if _chosen(policy, "fail", "fail", name, args["PodName"]):
            return _failure(name)
        try:
            await self._bind(args["PodNamespace"], args["PodName"], args["PodUID"], args["Node"])
        except Exception as error:  # any error is reported to the scheduler
            return {"Error": str(error)}
        return {"Error": ""}


def _prioritize(name: str, args: Mapping[str, Any]) -> list[dict[str, Any]]:
    pod: str = args["Pod"]["metadata"]["name"]
    return [
        {"Host": node, "Score": checksum("score", name, pod, node) % SCORES} for node in args["NodeNames"]
    ]


def _preempt(name: str, policy: Mapping[str, int], args: Mapping[str, Any]) -> dict[str, Any]:
    pod: str = args["Pod"]["metadata"]["name"]
    left = {
        node: victims
        for node, victims in args["NodeNameToMetaVictims"].items()
        if not _chosen(policy, "spare", "spare", name, pod, node)
    }
    return {"NodeNameToMetaVictims": left}


def _chosen(policy: Mapping[str, int], key: str, *words: str) -> bool:
    """Whether the policy selects these words: one in `policy` on average."""
    one_in = policy.get(key, 0)
    return one_in != 0 and checksum(*words) % one_in == 0


def _failure(name: str) -> dict[str, str]:
    return {"Error": f"{name} is unwell"}
