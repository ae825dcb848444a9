"""HTTP for the page: the API below /ui/api/v1/, the stream of changes, and the files of the page.

docs/ui-api.md describes the API. Every request is checked by `access.py` first. Only `writing.py` writes to a
cluster, and only with --allow-writes. Answers that take long are computed in a thread, one at a time, on a
state that never changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web

from bayplan import __version__
from bayplan.api.meta import OWN_API_VERSION
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import RELEASES
from bayplan.config import completed, to_yaml
from bayplan.errors import BayplanError, InputError
from bayplan.garbage import no_garbage_collection
from bayplan.net.listening import BoundedServer, Limits, read_body
from bayplan.process.history import Attempt
from bayplan.ui.access import POLICY, Access
from bayplan.ui.hub import Hub, attempt_report
from bayplan.ui.questions import Questions, Subject, decision_state
from bayplan.ui.queue import Place, derived_places, queue_report, workload_of
from bayplan.ui.responses import ProblemError, body_of, file_response, json_response
from bayplan.ui.shared import capacity_queues, group_report, pod_groups
from bayplan.ui.writing import ACTIONS, Writer, WriteRejectedError

ROOT: Final = "/ui/"
API: Final = "/ui/api/v1/"
MAX_BODY_BYTES: Final = 2 * 1024 * 1024
BODY_SECONDS: Final = 30.0
HEARTBEAT_SECONDS: Final = 15.0
RETRY_MILLISECONDS: Final = 1000
MAX_FOUND: Final = 20
MAX_NODES_WITH_PODS: Final = 100
"""With more nodes a node is a cell, and its pods are shown when it is selected."""
MAX_DECISIONS: Final = 200
MAX_STATES: Final = 3
"""States for which the loaded cluster is kept, so that the next question about one is quick."""

T = TypeVar("T")
Places = Callable[[], list[Place]]


class Page:
    """Serves one subject."""

    def __init__(
        self,
        subject: Subject,
        hub: Hub,
        access: Access,
        *,
        places: Places | None = None,
        writer: Writer | None = None,
    ) -> None:
        self.subject = subject
        self.hub = hub
        self.access = access
        self._places = places
        self._writer = writer
        self._asking = asyncio.Lock()
        self._states: dict[int, Questions] = {}
        self._streams: set[asyncio.Task[Any] | None] = set()

    def server(self, limits: Limits) -> BoundedServer:
        """For aiohttp's runners."""
        return BoundedServer(self.handle, limits, max_body_bytes=MAX_BODY_BYTES)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handles a request."""
        try:
            response = await self._handle(request)
        except ProblemError as problem:
            response = json_response({"error": problem.message}, problem.status)
        except WriteRejectedError as error:
            response = json_response({"error": error.message}, error.status)
        except InputError as error:
            response = json_response({"error": str(error)}, 404 if error.object_key else 400)
        except BayplanError as error:
            response = json_response({"error": str(error)}, 400)
        if not response.prepared:
            response.headers.update(POLICY)
        return response

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, access = request.path, self.access
        if problem := access.origin_problem(request.headers, request.method):
            raise ProblemError(403, problem)
        if path in ("/", "/ui"):
            return web.Response(status=307, headers={"Location": ROOT})
        if not path.startswith(ROOT):
            raise ProblemError(404, "there is nothing at this path")
        if path == f"{ROOT}login":
            return self._log_in(request)
        if path.startswith(f"{ROOT}static/"):
            return file_response(path.removeprefix(f"{ROOT}static/"))
        if not access.is_logged_in(request.headers):
            if path.startswith(API):
                raise ProblemError(401, "not logged in: open the link that bayplan printed")
            return file_response("login.html", 401)
        if path == f"{ROOT}logout" and request.method == "POST":
            cookie = access.log_out(request.headers)
            return json_response({}, headers={"Set-Cookie": cookie})
        if path.startswith(API):
            return await self._api(request, path.removeprefix(API))
        if path == ROOT:
            return file_response("index.html")
        raise ProblemError(404, "there is nothing at this path")

    def _log_in(self, request: web.BaseRequest) -> web.Response:
        cookie = self.access.log_in(request.query.get("token", ""))
        if cookie is None:
            return file_response("login.html", 401)
        # A page, not a redirect: a strict cookie is not sent after a redirect from another site.
        response = file_response("entered.html")
        response.headers["Set-Cookie"] = cookie
        return response

    # The API

    async def _api(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        steps = path.split("/")
        if request.method == "POST":
            return await self._post(request, steps)
        if request.method != "GET":
            raise ProblemError(405, "only GET and POST are allowed")
        if steps == ["events"]:
            return await self._stream(request)
        async with self.hub.viewing():
            return json_response(await self._get(request.query, steps))

    async def _get(self, query: Mapping[str, str], steps: list[str]) -> dict[str, Any]:
        hub, seq = self.hub, _number(query, "at")
        match steps:
            case ["info"]:
                return self._info()
            case ["cluster"]:
                return self._cluster(seq)
            case ["changes"]:
                return hub.batch_between(_number(query, "from") or 0, self._target(query))
            case ["nodes", name]:
                found = await self._ask(seq, lambda ask: ask.node(name))
                return found | {"attempts": self._attempts(seq, lambda one: one.node == name, 20)}
            case ["pods", namespace, name]:
                key = f"{namespace}/{name}"
                found = await self._ask(seq, lambda ask: self._pod(ask, key))
                return found | {"attempts": self._attempts(seq, lambda one: one.pod == key, 100)}
            case ["groups", namespace, name]:
                return await self._ask(seq, lambda ask: group_report(ask.loaded, namespace, name))
            case ["fit"]:
                key = query.get("pod", "")
                return await self._ask(seq, lambda ask: ask.fit(key))
            case ["queue"]:
                return await self._queue(seq)
            case ["decisions"]:
                return self._decisions(query)
            case ["decisions", number] if number.isdecimal():
                return await self._decision(int(number))
            case ["timeline"]:
                return self._timeline()
            case ["search"]:
                return self._search(query.get("q", ""), seq)
            case ["workloads"]:
                return await self._ask(seq, _workloads)
            case ["configuration"]:
                return {"yaml": to_yaml(completed(self.subject.settings))}
        raise ProblemError(404, "there is nothing at this path")

    async def _post(self, request: web.BaseRequest, steps: list[str]) -> web.Response:
        if request.content_type != "application/json":
            raise ProblemError(415, "the body has to be application/json")
        try:
            body = msgspec.json.decode(
                await read_body(request, max_bytes=MAX_BODY_BYTES, seconds=BODY_SECONDS), type=dict[str, Any]
            )
        except msgspec.MsgspecError as error:
            raise ProblemError(400, f"the body is not a JSON object: {error}") from None
        seq = body.get("at")
        if seq is not None and not isinstance(seq, int):
            raise ProblemError(400, "at is the number of a state")
        if steps == ["writes"]:
            if self._writer is None:
                raise ProblemError(403, "the page may not write: it was started without --allow-writes")
            return json_response(await self._writer.write(body))
        async with self.hub.viewing():
            match steps:
                case ["whatif"]:
                    resources = self.hub.overview_at(seq).resources()
                    changes = _list(body, "changes")
                    return json_response(
                        await self._ask(seq, lambda ask: ask.what_if(changes, resources))
                        | {"resources": resources}
                    )
                case ["compare"]:
                    variants, scratch = _list(body, "variants"), bool(body.get("fromScratch"))
                    if len(variants) != 2:
                        raise ProblemError(400, "two variants are compared")
                    return json_response(
                        await self._ask(seq, lambda ask: ask.compare(variants, scratch=scratch))
                    )
        raise ProblemError(404, "there is nothing at this path")

    def _info(self) -> dict[str, Any]:
        subject, history = self.subject, self.hub.history
        profile = subject.settings.profiles[0]
        scoring = [one for one in profile.plugins.multi_point.enabled if one.weight]
        scoring += [one for one in profile.plugins.score.enabled if one.name not in {s.name for s in scoring}]
        return {
            "apiVersion": OWN_API_VERSION,
            "kind": "Page",
            "bayplan": __version__,
            "name": subject.name,
            "source": subject.kind,
            "writes": [] if self._writer is None else list(ACTIONS),
            "live": subject.kind in ("cluster", "live"),
            "schedules": subject.kind in ("cluster", "simulation", "recording"),
            "release": subject.release.version,
            "releases": list(RELEASES),
            "serverVersion": subject.server_version,
            "warnings": [one.as_json() for one in subject.warnings],
            "weights": {one.name: one.weight or 1 for one in scoring},
            "problem": self.hub.problem,
            "seq": history.last,
            "firstSeq": history.dropped,
            "time": history.time_of(history.last),
            "firstTime": history.time_of(history.dropped),
            "viewers": self.hub.viewers,
        }

    def _target(self, query: Mapping[str, str]) -> int:
        """The number that a request means: `to`, the last one up to `time`, or the decision before or after
        `from`."""
        history, origin = self.hub.history, _number(query, "from") or 0
        if query.get("step") == "next":
            later = (one.seq for one in history.entries(origin) if isinstance(one, Attempt))
            return next(later, history.last)
        if query.get("step") == "previous":
            return next((one.seq for one in history.attempts() if one.seq < origin), history.dropped)
        if time := query.get("time"):
            try:
                return history.seq_at(float(time))
            except ValueError:
                raise ProblemError(400, "time is a number of seconds") from None
        return history.clamp(_number(query, "to"))

    def _cluster(self, seq: int | None) -> dict[str, Any]:
        """All nodes in columns; with few nodes also their pods, to be drawn to size."""
        overview = self.hub.overview_at(seq)
        report = overview.cluster()
        if len(report["nodes"]["name"]) > MAX_NODES_WITH_PODS:
            return report
        history, requests = self.hub.history, self.subject.release.accounting.assigned_requests
        objects = history.objects if overview.seq == history.last else history.objects_at(overview.seq)
        pods: dict[str, list[Any]] = {name: [] for name in report["nodes"]["name"]}
        for item in objects.values():
            if isinstance(item, Pod) and item.spec.node_name in pods and not item.is_finished:
                amounts = requests(item)
                sizes = [1 if one == "pods" else amounts.get(one, 0) for one in report["resources"]]
                pods[item.spec.node_name].append([item.key, sizes, item.priority, item.is_terminating])
        return report | {"pods": pods}

    async def _ask(self, seq: int | None, question: Callable[[Questions], T]) -> T:
        """Asks about a state, in a thread."""
        async with self._asking:
            history = self.hub.history
            number = history.clamp(seq)
            known = self._states.get(number)
            if known is None:
                while len(self._states) >= MAX_STATES:
                    del self._states[next(iter(self._states))]
                known = self._states[number] = Questions(self.subject, history.state_at(number))
            return await asyncio.to_thread(_without_garbage, question, known)

    def _pod(self, ask: Questions, key: str) -> dict[str, Any]:
        report = ask.pod(key)
        pod = ask.pods.pod(key)
        created = pod.metadata.creation_timestamp
        return report | {
            "workload": workload_of(pod, ask.objects),
            "uid": pod.uid,
            "created": None if created is None else created.timestamp(),
        }

    def _attempts(
        self, seq: int | None, matches: Callable[[Attempt], bool], most: int
    ) -> list[dict[str, Any]]:
        found = []
        for one in self.hub.history.attempts():
            if (seq is None or one.seq <= seq) and matches(one):
                found.append(attempt_report(one))
                if len(found) == most:
                    break
        return found

    async def _queue(self, seq: int | None) -> dict[str, Any]:
        history = self.hub.history
        number = history.clamp(seq)
        latest: dict[str, Attempt] = {}
        for entry in history.entries(history.dropped, number):
            if isinstance(entry, Attempt):
                latest[entry.uid] = entry
        is_now = number == history.last
        if self._places is not None and seq is None:
            places = self._places()
        else:
            places = list(derived_places(history.objects if is_now else history.objects_at(number), latest))
        report = await self._ask(
            seq,
            lambda ask: (
                ask.forecast(queue_report(places, ask.objects, latest, ask.waits_for))
                | pod_groups(ask.loaded)
                | capacity_queues(ask.capacity)
            ),
        )
        now = history.now if is_now else history.time_of(number)
        return report | {"seq": number, "time": now, "exact": self._places is not None and seq is None}

    def _decisions(self, query: Mapping[str, str]) -> dict[str, Any]:
        before, result, text = _number(query, "before"), query.get("result", ""), query.get("q", "").lower()
        found: list[dict[str, Any]] = []
        more = False
        for one in self.hub.history.attempts():
            if before is not None and one.seq >= before:
                continue
            if result and one.result != result:
                continue
            if text and not any(text in part.lower() for part in (one.pod, one.node, one.message)):
                continue
            if len(found) == MAX_DECISIONS:
                more = True
                break
            found.append(attempt_report(one))
        return {"decisions": found, "more": more}

    async def _decision(self, seq: int) -> dict[str, Any]:
        """A decision on the state that its scheduler saw."""
        history = self.hub.history
        attempt = history.entry(seq)
        if not isinstance(attempt, Attempt):
            raise ProblemError(404, "there is no decision with this number, or it is too long ago")
        objects, pod = decision_state(history, attempt)
        report: dict[str, Any] = {"attempt": attempt_report(attempt), "explanation": None}
        if pod is not None:
            found = pod
            async with self._asking:
                ask = Questions(self.subject, objects)
                report["explanation"] = await asyncio.to_thread(
                    _without_garbage, lambda one: one.decision(found), ask
                )
            report["workload"] = workload_of(pod, objects)
        return report | {"attempts": self._attempts(None, lambda one: one.uid == attempt.uid, 50)}

    def _timeline(self) -> dict[str, Any]:
        history = self.hub.history
        return {
            "firstSeq": history.dropped,
            "firstTime": history.time_of(history.dropped),
            "seq": history.last,
            "time": history.now
            if self.subject.kind in ("cluster", "live")
            else history.time_of(history.last),
            "samples": [
                {
                    "time": one.time,
                    "seq": one.seq,
                    "pending": one.pending,
                    "assigned": one.assigned,
                    "scheduled": one.scheduled,
                    "failed": one.failed,
                    "used": {name: round(share, 4) for name, share in one.used.items()},
                }
                for one in self.hub.samples.items
            ],
            "waits": self._waits(),
        }

    def _waits(self) -> list[list[float]]:
        """Time and waiting time of pods for which a node was found: at most 2,000, evenly chosen."""
        found = [
            [one.time, round(one.waited, 2)]
            for one in self.hub.history.attempts()
            if one.result == "scheduled"
        ]
        return found[:: max(1, len(found) // 2000)][::-1]

    def _search(self, text: str, seq: int | None) -> dict[str, Any]:
        wanted = text.strip().lower()
        history = self.hub.history
        objects = history.objects if seq is None else history.objects_at(history.clamp(seq))
        found: dict[str, list[str]] = {"nodes": [], "pods": []}
        if wanted:
            for kind, key in objects:
                place = found["nodes"] if kind is Node else found["pods"] if kind is Pod else None
                if place is not None and len(place) < MAX_FOUND and wanted in key.lower():
                    place.append(key)
        return found

    # The stream

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        """Server-sent events: each has the number up to which the viewer has read, to resume from there."""
        given = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        headers = {**POLICY, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        hub = self.hub
        async with hub.viewing():
            after = int(given) if given.isdecimal() and len(given) < 16 else hub.overview.seq
            await response.write(f"retry: {RETRY_MILLISECONDS}\n\n".encode())
            while self.access.is_logged_in(request.headers):
                batch = hub.batch(after)
                if batch is None:
                    after = hub.overview.seq
                    await response.write(_event("reset", after, {"seq": after}))
                elif batch["seq"] != after:
                    after = batch["seq"]
                    await response.write(_event("changes", after, batch))
                if not await hub.changed(after, HEARTBEAT_SECONDS):
                    await response.write(b": still here\n\n")
        return response


def _without_garbage(question: Callable[[Questions], T], ask: Questions) -> T:
    with no_garbage_collection():
        return question(ask)


def _workloads(ask: Questions) -> dict[str, Any]:
    """The workloads with pods, for what-if questions."""
    counts: dict[tuple[str, str], list[int]] = {}
    for item in ask.objects.values():
        if isinstance(item, Pod) and item.metadata.controller() is not None and not item.is_finished:
            kind, _, name = workload_of(item, ask.objects).partition(" ")
            if kind != "DaemonSet":
                count = counts.setdefault((f"{item.namespace}/{name}", kind), [0, 0])
                count[0] += 1
                count[1] += not item.spec.node_name
    return {
        "workloads": [
            {"workload": key, "kind": kind, "pods": count, "pending": pending}
            for (key, kind), (count, pending) in sorted(counts.items())
        ]
    }


def _event(name: str, number: int, content: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + f"\nid: {number}\ndata: ".encode() + body_of(content) + b"\n\n"


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 15:
        raise ProblemError(400, f"{name} is a number")
    return int(text)


def _list(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = body.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ProblemError(400, f"{name} is a list of objects")
    return found


def link(scheme: str, host: str, port: int, token: str) -> str:
    """The link that a user opens to log in."""
    return f"{scheme}://{host}:{port}{ROOT}login?token={quote(token)}"
