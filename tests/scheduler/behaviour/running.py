"""A scheduler at work on a cluster in this process, in virtual time, and functions to work with both.

Tests are coroutines under `@virtual`. Within `running(...)` they change the cluster through its API, as users
and controllers do, let time pass, and check what the API shows: nodes, conditions, nominations, events.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from bayplan.api.cluster_api import Change, Event, PodStatusPatch, WatchEvent
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.framework.plugin_api import Plugin
from bayplan.metrics import NULL_METRICS, Metrics
from bayplan.scheduler.context import LoopSettings
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observers import Observers
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.scheduler.recorder import EventOutput
from bayplan.scheduler.waiting import BindingProgress
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.memory.writes import Kubelet
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual

PROFILE = "default-scheduler"

P = ParamSpec("P")
T = TypeVar("T")


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a coroutine as a test in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run


class Answer(NamedTuple):
    """The response of the API server: late, or an error; `done` nevertheless, or not."""

    error: Exception | None = None
    seconds: float = 0.0
    done: bool = False


class Cluster(MemoryCluster):
    """The cluster as the scheduler sees it. It records writes, and gives the responses of a test."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.writes: list[tuple[str, str]] = []
        """Verb and pod of each requested write."""
        self._answers: dict[str, list[Answer]] = {}

    def will_answer(self, verb: str, *answers: Answer | Exception, times: int = 1) -> None:
        """The next requests of this verb (bind, patch, delete, get) are answered so, and then as usual."""
        wanted = [answer if isinstance(answer, Answer) else Answer(answer) for answer in answers]
        self._answers.setdefault(verb, []).extend(wanted * times)

    def written(self, verb: str) -> list[str]:
        """The pods of all writes of this verb."""
        return [name for known, name in self.writes if known == verb]

    async def _answer(self, verb: str, act: Callable[[], Awaitable[T]]) -> T:
        waiting = self._answers.get(verb)
        answer = waiting.pop(0) if waiting else Answer()
        if answer.done:
            result = await act()
            await _delivered(answer)
            return result
        await _delivered(answer)
        return await act()

    async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        act = functools.partial(super().get, kind, name, namespace)
        return await (self._answer("get", act) if kind is Pod else act())

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> None:
        self.writes.append(("bind", pod.name))
        await self._answer("bind", functools.partial(super().bind, pod, node_name))

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        self.writes.append(("patch", pod.name))
        await self._answer("patch", functools.partial(super().patch_pod_status, pod, patch))

    async def delete_pod(self, pod: Pod) -> None:
        self.writes.append(("delete", pod.name))
        await self._answer("delete", functools.partial(super().delete_pod, pod))


async def _delivered(answer: Answer) -> None:
    if answer.seconds:
        await asyncio.sleep(answer.seconds)
    if answer.error is not None:
        raise answer.error


class World:
    """A cluster and its scheduler, with pods called by their names (in the namespace `default`)."""

    def __init__(
        self, cluster: Cluster, scheduler: Scheduler, run: asyncio.Future[None], decisions: list[Decision]
    ) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.scheduler = scheduler
        self.context = scheduler.context
        self.run = run
        """Done when the scheduler has ended."""
        self.decisions = decisions

    # Acting on the cluster

    async def create(self, *objects: Object) -> None:
        """Creates these objects, and runs the scheduler until it is idle."""
        for item in objects:
            self.store.create(item)
        await quiescent()

    async def update(self, name: str, change: Callable[[Pod], Pod]) -> None:
        self.store.update(change(self.pod(name)))
        await quiescent()

    async def update_node(self, node: Node) -> None:
        """Updates the node."""
        known = self.store.get(Node, node.name)
        meta = msgspec.structs.replace(
            node.metadata, uid=known.uid, resource_version=known.metadata.resource_version
        )
        self.store.update(msgspec.structs.replace(node, metadata=meta))
        await quiescent()

    async def delete(self, *names: str) -> None:
        for name in names:
            self.store.delete(Pod, name, "default")
        await quiescent()

    async def delete_node(self, name: str) -> None:
        self.store.delete(Node, name)
        await quiescent()

    async def show(self, change: Change, pod: Pod) -> None:
        """The scheduler's watch shows this, whatever the cluster holds."""
        version = self.scheduler.pods.resource_version
        self.scheduler.pods.apply([WatchEvent(change, pod, version)])
        await quiescent()

    async def after(self, seconds: float) -> None:
        """Time passes."""
        await asyncio.sleep(seconds)
        await quiescent()

    # Looking at it

    def pod(self, name: str) -> Pod:
        return self.store.get(Pod, name, "default")

    def names(self) -> list[str]:
        """The pods that are there."""
        return [pod.name for pod in self.store.list(Pod)]

    def bound(self) -> set[str]:
        """The names of the pods that have a node."""
        return {pod.name for pod in self.store.list(Pod) if pod.spec.node_name}

    def rejection(self, name: str) -> str:
        """Reason and message of the condition of a pod that is not scheduled; "" if it has none."""
        condition = self.condition(name)
        return "" if condition is None or condition[0] != "False" else f"{condition[1]}: {condition[2]}"

    def node_of(self, name: str) -> str:
        return self.pod(name).spec.node_name

    def nominated(self, name: str) -> str:
        return self.pod(name).status.nominated_node_name

    def condition(self, name: str, kind: str = "PodScheduled") -> tuple[str, str, str] | None:
        """Status, reason and message."""
        for known in self.pod(name).status.conditions:
            if known.type == kind:
                return known.status, known.reason, known.message
        return None

    def message(self, name: str) -> str:
        """The message of the condition PodScheduled."""
        condition = self.condition(name)
        return "" if condition is None else condition[2]

    def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and note of the pod's events, in the order in which they were made."""
        found = sorted(self.store.list(Event), key=lambda event: int(event.metadata.resource_version))
        return [
            (event.reason, event.note)
            for event in found
            if event.regarding is not None and event.regarding.name == name
        ]

    def sub_queue(self, name: str) -> str:
        """Where in the queue the pod waits; empty if it does not."""
        info = self.context.queue.find(f"default/{name}")
        return "" if info is None or info.sub_queue is None else info.sub_queue.label

    def attempts(self, name: str) -> int:
        """The number of decisions about the pod."""
        return sum(1 for decision in self.decisions if decision.pod.name == name)

    def order(self) -> list[str]:
        """The pods that were decided about, one after the other."""
        return [decision.pod.name for decision in self.decisions]

    def counted(self, name: str) -> str:
        """The node that a pod is counted on by the scheduler."""
        return next(
            (self.context.cache.node_of(pod.uid) for pod in self.store.list(Pod) if pod.name == name), ""
        )


@asynccontextmanager
async def running(
    *objects: Object,
    plugins: Iterable[type[Plugin]] = (),
    config: KubeSchedulerConfiguration | str | None = None,
    metrics: Metrics = NULL_METRICS,
    kubelet: Kubelet | None = None,
    eager: bool = True,
    cache: bool = True,
    kind_of_cluster: type[Cluster] = Cluster,
    on_binding: Callable[[BindingProgress], None] | None = None,
    release: Release = DEFAULT_RELEASE,
) -> AsyncIterator[World]:
    """A scheduler on a cluster with these objects, which has done all that there is to do at once."""
    cluster = kind_of_cluster(MemoryStore(clock=current_loop().wall_time, kubelet=kubelet))
    for item in objects:
        cluster.store.create(item)
    plugins = tuple(plugins)
    if isinstance(config, str):
        config = configuration(config, *plugins)
    decisions: list[Decision] = []
    scheduler = Scheduler(
        cluster,
        config,
        plugins=plugins,
        metrics=metrics,
        settings=LoopSettings(eager=eager, cache=cache),
        observers=Observers(decided=decisions.append, progressed=on_binding),
        events=EventOutput(hostname="here"),
        release=release,
    )
    working = asyncio.ensure_future(scheduler.run())
    world = World(cluster, scheduler, working, decisions)
    await quiescent()
    try:
        yield world
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working  # raises what ended it


def configuration(text: str, *plugins: type[Plugin]) -> KubeSchedulerConfiguration:
    """A configuration from its profiles and whatever else there is below the first two lines."""
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    return parse_config(head + text, catalog=catalog_with(plugins))


def plugin(name: str, base: type[Plugin] = Plugin, *, built_in: bool = False, **methods: Any) -> type[Plugin]:
    """A plugin class of a few functions, each with `self` left out; `built_in`: as if it were bayplan's."""
    made = {method: _without_self(call) if callable(call) else call for method, call in methods.items()}
    if built_in:
        made["__module__"] = "bayplan.plugins.x"
    return type(name, (base,), made)


def _without_self(call: Callable[..., Any]) -> Callable[..., Any]:
    if asyncio.iscoroutinefunction(call):

        async def wait_for(self: Plugin, *args: Any) -> Any:
            return await call(*args)

        return wait_for

    def answer(self: Plugin, *args: Any) -> Any:
        return call(*args)

    return answer
