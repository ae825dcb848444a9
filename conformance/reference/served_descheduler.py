"""Recorded descheduling scenarios through the eviction API of the embedded server.

`python -m conformance.reference.served_descheduler` runs all of them whose answers an API server can give,
and counts the others by their reason. Pods and budgets of a scenario are in the server, `decision: upstream`
runs as in `bayplan deschedule run`, and each eviction is a request. What kubelets do is done at once: a pod
that is being deleted is gone before the response is sent, as in the recordings.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from bayplan.api.decode import decode_object
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.client.access import Access
from bayplan.client.requests import Connections
from bayplan.config import Decision, DescheduleConfiguration, default_config
from bayplan.deschedule.copies import ClusterCopy
from bayplan.deschedule.descheduler import Descheduler
from bayplan.deschedule.eviction import Answer, EvictionEvent
from bayplan.deschedule.live import LiveCluster
from bayplan.deschedule.policy import Policy, parse_policy
from bayplan.deschedule.running import Runner
from bayplan.deschedule.usage import MeasuredUsage
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kinds import POD_DISRUPTION_BUDGETS, PODS, Resource
from bayplan.net.tls import TLSSettings
from conformance.reference.__main__ import read_vectors
from conformance.reference.descheduler import evaluate, measured

HERE: Final = Path(__file__).parents[1] / "descheduler"
SERVED: Final = {"pods": PODS, "pdbs": POD_DISRUPTION_BUDGETS}
GIVEN: Final = {"nodes": "Node", "namespaces": "Namespace", "pvcs": "PersistentVolumeClaim"}
"""Evictions do not depend on them: they are not in the server."""
AT_ONCE: Final = DeleteOptions(grace_period_seconds=0)
PREFIX: Final = "Internal error occurred: "
"""The recordings have it before the text about several budgets, kube-apiserver does not."""
SETTINGS: Final = DescheduleConfiguration(decision=Decision.UPSTREAM, evictions_per_minute=1_000_000)


def why_not(vector: dict[str, Any]) -> str:
    """Why no API server can give the answers of a scenario, or ""."""
    options = vector["scenario"].get("options", {})
    if options.get("loadOnly") or vector["expect"].get("stage"):
        return "about reading the policy: nothing is evicted"
    if options.get("filterOnly") or options.get("nodeFitMatrix"):
        return "about checks of DefaultEvictor and NodeFit: nothing is evicted"
    if options.get("evictErrors"):
        return "the recording sets answers of single evictions: webhooks, failures, evictions in background"
    if options.get("afterEvict", "delete") != "delete":
        return "the recording keeps evicted pods in descheduler's caches"
    if any(map(_lacks_defaults, vector["scenario"]["pods"])):
        return "the recording has limits without requests, which an API server sets"
    return ""


def _lacks_defaults(pod: dict[str, Any]) -> bool:
    spec = pod["spec"]
    resources = [one.get("resources", {}) for one in (*spec["containers"], *spec.get("initContainers", ()))]
    return any(one.get("limits", {}).keys() - one.get("requests", {}).keys() for one in resources)


@dataclass(frozen=True, slots=True)
class Seen:
    """A cycle as an API server sees it: evictions with their answers, and events, in order."""

    answers: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str, str, str], ...]


def expected(vector: dict[str, Any]) -> list[Seen]:
    """What `evaluate` gives, which agrees with the recordings (`tests/deschedule/test_recorded.py`)."""
    return [
        Seen(
            tuple((one["pod"], one["result"]) for one in cycle["evictions"]),
            tuple(
                (one["pod"], one["type"], one["reason"], one["note"].replace(PREFIX, ""))
                for one in cycle["events"]
            ),
        )
        for cycle in evaluate(vector)["cycles"]
    ]


@dataclass(slots=True)
class _Listed:
    """In place of an informer: it has what a function lists."""

    kind: type[Object]
    items: Callable[[], Iterable[Any]]

    def all(self) -> list[Object]:
        return [one for item in self.items() if (one := decode_object(item)) is not None]


@dataclass(slots=True)
class _Source:
    informers: Sequence[Any]


class _Recording:
    """The eviction API of a live cluster (`executing.EvictionAPI`). It records answers."""

    def __init__(self, live: LiveCluster) -> None:
        self._live = live
        self.load, self.objects, self.pods = live.load, live.objects, live.pods
        self.answers: list[tuple[str, str]] = []
        self.events: list[EvictionEvent] = []

    async def evict(self, pod: Pod, reason: str, grace_period_seconds: int | None) -> Answer:
        answer = await self._live.evict(pod, reason, grace_period_seconds)
        self.answers.append((pod.key, str(answer.code) if answer.code else "ok"))
        return answer

    async def write_event(self, event: EvictionEvent, _: float) -> None:
        self.events.append(event)

    def seen(self) -> Seen:
        """What happened since it was asked last."""
        events = tuple((one.pod.key, one.type, one.reason, one.note) for one in self.events)
        found = Seen(tuple(self.answers), events)
        self.answers, self.events = [], []
        return found


class Served:
    """A server that plays one scenario after the other."""

    def __init__(self, server: EmbeddedServer, connections: Connections) -> None:
        self._api = server.api
        self._connections = connections
        self._terminating: set[str] = set()
        """The pods that are being deleted in the scenario already."""
        self._api.store.subscribe(self._written)

    async def play(self, vector: dict[str, Any]) -> list[Seen]:
        """What is seen of the cycles of a scenario."""
        scenario = vector["scenario"]
        options = scenario.get("options", {})
        self._put(scenario)
        classes = {one["metadata"]["name"]: one["value"] for one in scenario.get("priorityClasses", ())}
        policy = parse_policy(scenario["policy"], "policy.yaml", classes.get)
        given = [_Listed(KINDS[kind].record, partial(_given, scenario, key)) for key, kind in GIVEN.items()]
        served = [_Listed(KINDS[one.kind].record, partial(self._list, one)) for one in SERVED.values()]
        copy = ClusterCopy(default_config())
        api = _Recording(LiveCluster(self._connections, _Source([*given, *served]), copy))
        now = datetime.fromisoformat(scenario["now"]).timestamp()

        async def read_usage(usage: MeasuredUsage, _: Policy) -> None:
            found = measured(scenario, policy)
            usage.has_kubernetes_metrics, usage.queries = found.has_kubernetes_metrics, found.queries
            usage.nodes, usage.pods = found.nodes, found.pods

        runner = Runner(
            api,
            Descheduler(policy),
            SETTINGS,
            read_usage=read_usage,
            write_event=api.write_event,
            now=lambda: now,
        )
        cycles = []
        for _ in range(options.get("cycles", 1)):
            await runner.cycle()
            cycles.append(api.seen())
        return cycles

    def _put(self, scenario: dict[str, Any]) -> None:
        """Stores the objects of a scenario in place of those of the one before."""
        for key, resource in SERVED.items():
            for item in self._api.list(resource):
                self._api.delete(resource, item["metadata"]["name"], item["metadata"]["namespace"], AT_ONCE)
            for item in scenario.get(key) or ():
                meta = {name: value for name, value in item["metadata"].items() if name != "finalizers"}
                # Nobody would remove finalizers; the status of a budget is as its controller has left it.
                status = {**item.get("status", {}), **({} if key == "pods" else {"observedGeneration": 1})}
                content = {**item, "metadata": meta, "status": status}
                self._api.restore(resource, content, meta.get("namespace", ""))
        self._terminating = {one["metadata"]["uid"] for one in self._list(PODS) if _is_terminating(one)}

    def _list(self, resource: Resource) -> list[dict[str, Any]]:
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [{**head, **item} for item in self._api.list(resource)]

    def _written(self, resource: Resource) -> None:
        """What kubelets do."""
        if resource is PODS:
            for meta in [one["metadata"] for one in self._list(PODS) if _is_terminating(one)]:
                if meta["uid"] not in self._terminating:
                    self._api.delete(PODS, meta["name"], meta["namespace"], AT_ONCE)


def _given(scenario: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": GIVEN[key], **item} for item in scenario.get(key) or ()]


def _is_terminating(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    """A server with a client."""
    async with EmbeddedServer() as server:
        tls = TLSSettings(ca_file=str(server.certificates.ca))
        connections = Connections(Access(server.url, tls=tls, token=server.token))
        try:
            yield Served(server, connections)
        finally:
            await connections.close()


async def compare(vectors: Iterable[dict[str, Any]]) -> tuple[dict[str, str], Counter[str]]:
    """What is wrong, by scenario; and how many were played (reason "") or cannot be, by reason."""
    wrong: dict[str, str] = {}
    counts: Counter[str] = Counter()
    async with serving() as served:
        for vector in vectors:
            reason = why_not(vector)
            counts[reason] += 1
            if not reason and (got := await served.play(vector)) != (wanted := expected(vector)):
                wrong[vector["id"]] = f"{got} instead of {wanted}"
    return wrong, counts


def all_vectors() -> Iterator[dict[str, Any]]:
    for path in sorted(HERE.glob("*.jsonl.gz")):
        yield from read_vectors(str(path))


def main() -> int:
    wrong, counts = asyncio.run(compare(all_vectors()))
    played = counts.pop("")
    print(f"{played} played through the eviction API, {len(wrong)} wrong; {counts.total()} not played:")
    for reason, count in counts.most_common():
        print(f"  {count:>4}  {reason}")
    for name, text in wrong.items():
        print(f"{name}: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
