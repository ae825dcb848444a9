"""Moves are made as planned, or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Condition, Object
from bayplan.api.pod import Pod
from bayplan.config import Decision, DescheduleConfiguration
from bayplan.deschedule.eviction import Answer, BackgroundRequest, BackgroundRequests, EvictionEvent
from bayplan.deschedule.executing import Executor, Outcome, Rate
from bayplan.deschedule.memory import Memory
from bayplan.deschedule.metrics import DescheduleMetrics, serve
from bayplan.deschedule.plan import Plan, read_moves
from bayplan.deschedule.planner import Planner
from bayplan.deschedule.running import Runner, is_descheduler
from bayplan.deschedule.table import EVICTION_IN_PROGRESS, REQUEST_EVICT_ONLY
from bayplan.deschedule.times import Times
from bayplan.errors import DecodeError
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_node, make_pod
from tests.deschedule.situations import NOW, descheduler, moves, replica

TAINTS: dict[str, Any] = {"RemovePodsViolatingNodeTaints": {}}
READY = Condition(type="Ready", status="True")


class SimulatedCluster:
    """A cluster whose controllers and scheduler act at once."""

    def __init__(self, objects: Sequence[Object]) -> None:
        self.stored = list(objects)
        self.evicted: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.recreates = True

    async def load(self) -> Cluster:
        return Cluster.from_objects(self.stored)

    async def objects(self) -> Sequence[Object]:
        return self.stored

    async def pods(self, namespace: str) -> Sequence[Pod]:
        return [one for one in self.stored if isinstance(one, Pod) and one.namespace == namespace]

    async def evict(self, pod: Pod, reason: str, grace_period_seconds: int | None) -> Answer:
        if pod.key in self.answers:
            return self.answers[pod.key]
        self.evicted.append(pod.key)
        cluster = Cluster.from_objects(self.stored)
        again = cluster.evict(pod.key)
        if again is not None and self.recreates:
            cluster.schedule([again])
        self.stored = [
            replace(one, status=replace(one.status, phase="Running", conditions=(READY,)))
            if isinstance(one, Pod) and one.key == pod.key
            else one
            for one in cluster.objects
            if self.recreates or one.key != pod.key or not isinstance(one, Pod)
        ]
        return Answer()

    def plan(self, memory: Memory | None = None) -> Plan:
        return Planner(Cluster.from_objects(self.stored), descheduler(TAINTS), NOW, memory or Memory()).plan()

    def nodes_of(self) -> dict[str, str]:
        return {one.name: one.spec.node_name for one in self.stored if isinstance(one, Pod)}


def world(*names: str) -> SimulatedCluster:
    """Two pods on a tainted node, and more nodes."""
    tainted = make_node("a", taints=["maintenance=true:NoSchedule"])
    pods = [replica(f"p{i}", "a", f"o{i}", conditions=[READY]) for i in range(2)]
    return SimulatedCluster([tainted, *(make_node(name) for name in names or ("b", "c")), *pods])


def execute(simulated: SimulatedCluster, plan: Plan, **settings: Any) -> list[Any]:
    memory = settings.pop("memory", Memory())
    executor = Executor(simulated, memory, Rate(6000), **settings)
    return run_virtual(executor.run(plan.moves))


def test_every_move_ends_on_the_node_of_the_plan() -> None:
    simulated = world()
    plan = simulated.plan()
    steps = execute(simulated, plan)
    assert [one.outcome for one in steps] == [Outcome.MOVED, Outcome.MOVED]
    assert [simulated.nodes_of()[pod] for pod, _, _ in moves(plan)] == [to for _, _, to in moves(plan)]


def test_evictions_are_limited_by_the_minute() -> None:
    simulated = world()
    plan = simulated.plan()

    async def timed() -> float:
        started = asyncio.get_running_loop().time()
        await Executor(simulated, Memory(), Rate(2)).run(plan.moves)
        return asyncio.get_running_loop().time() - started

    assert run_virtual(timed()) == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lambda o: [x for x in o if x.name != "p0"], "the pod is gone", id="it is gone"),
        pytest.param(
            lambda o: [replica("p0", "b", "o0", conditions=[READY]) if x.name == "p0" else x for x in o],
            "the pod is on b, not on a",
            id="it was moved by somebody else",
        ),
        pytest.param(
            lambda o: [make_node(x.name, unschedulable=True) if x.name in ("b", "c") else x for x in o],
            "its replacement fits no node",
            id="there is no room any more",
        ),
        pytest.param(
            lambda o: [*o, make_pod("x", node="b", cpu="3"), make_pod("y", node="b", cpu="500m")],
            "the scheduler would now put it on c, not on b",
            id="the scheduler would choose another node",
        ),
        pytest.param(
            lambda o: [*o, replica("p9", "c", "o0")],
            "default/p9 of the same owner is not ready",
            id="its owner is not ready",
        ),
    ],
)
def test_a_move_that_no_longer_holds_is_skipped(change: Any, why: str) -> None:
    simulated = world()
    plan = simulated.plan()
    simulated.stored = change(simulated.stored)
    (first, *_) = execute(simulated, plan, replacement_seconds=2.0)
    assert first.outcome is Outcome.SKIPPED
    assert first.why.startswith(why)
    assert "default/p0" not in simulated.evicted


def test_a_rejected_eviction_is_reported() -> None:
    simulated = world()
    plan = simulated.plan()
    simulated.answers["default/p0"] = Answer(429, "Cannot evict pod")
    steps = execute(simulated, plan)
    assert (steps[0].outcome, steps[0].why) == (Outcome.BLOCKED, "Cannot evict pod")
    assert steps[1].why == "the scheduler would now put it on b, not on c"


def test_a_missing_replacement_is_reported() -> None:
    simulated = world()
    plan = simulated.plan()
    simulated.recreates = False
    (first, *_) = execute(simulated, plan, replacement_seconds=3.0)
    assert (first.outcome, first.why) == (Outcome.WAITING, "no replacement within 3 s")


def test_a_stopped_executor_evicts_nothing() -> None:
    simulated = world()
    plan = simulated.plan()
    assert execute(simulated, plan, may_go_on=lambda: False) == []


def test_plans_survive_being_written() -> None:
    plan = world().plan()
    document = {"kind": "DeschedulePlan", **plan.as_json()}
    assert tuple(read_moves(document)) == plan.moves
    with pytest.raises(DecodeError, match="expected a document of kind DeschedulePlan"):
        read_moves({"kind": "List"})
    with pytest.raises(DecodeError, match="not a move"):
        read_moves({"kind": "DeschedulePlan", "moves": [{"pod": "a"}]})


def runner(simulated: SimulatedCluster, **fields: Any) -> Runner:
    settings = DescheduleConfiguration(
        evictions_per_minute=fields.pop("rate", 6000), decision=fields.pop("decision", "scheduler")
    )
    return Runner(simulated, descheduler(TAINTS), settings, now=lambda: NOW, **fields)


def test_cycles_move_pods_until_there_is_nothing_to_do() -> None:
    simulated = world()
    plans: list[Plan] = []
    cycles = runner(simulated, on_plan=plans.append)
    asyncio.run(cycles.cycle())
    asyncio.run(cycles.cycle())
    assert [len(one.moves) for one in plans] == [2, 0]
    assert b'descheduler_pods_evicted_total{namespace="default"' in cycles.metrics.exposition()


def test_evictions_are_reported_as_events() -> None:
    simulated = world()
    written: list[str] = []

    async def write(event: EvictionEvent, now: float) -> None:
        written.append(f"{event.type} {event.reason} {event.pod.name}: {event.note}")

    asyncio.run(runner(simulated, write_event=write).cycle())
    note = "pod eviction from a node by sigs.k8s.io/descheduler"
    assert written == [f"Normal RemovePodsViolatingNodeTaints {name}: {note}" for name in ("p0", "p1")]


def test_a_dry_run_evicts_nothing() -> None:
    simulated = world()
    asyncio.run(runner(simulated, dry_run=True).run(Times(0)))
    assert simulated.evicted == []


def test_a_paused_process_evicts_nothing() -> None:
    simulated = world()

    async def paused() -> bool:
        return True

    asyncio.run(runner(simulated, is_paused=paused).run(Times(0)))
    assert simulated.evicted == []


def test_upstream_s_decision_evicts_without_asking() -> None:
    simulated = world()
    asyncio.run(runner(simulated, decision=Decision.UPSTREAM).run(Times(0)))
    assert simulated.evicted == ["default/p0", "default/p1"]


def test_the_real_descheduler_is_recognized() -> None:
    image = "registry.example/descheduler/descheduler:v0.36.0"
    assert is_descheduler(make_pod(image=image))
    assert not is_descheduler(make_pod(image="web:1"))


def test_metrics_and_readiness_are_served() -> None:
    async def responses() -> list[bytes]:
        ready: list[bool] = []
        server = await serve(DescheduleMetrics(), lambda: bool(ready), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found = []
        for path in ("/readyz", "/healthz", "/metrics", "/other"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            found.append(await reader.read())
            writer.close()
        server.close()
        return found

    statuses = [one.split(b"\r\n", 1)[0] for one in asyncio.run(responses())]
    assert statuses == [
        b"HTTP/1.1 503 Service Unavailable",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 404 Not Found",
    ]


def test_upstreams_evictions_are_limited_by_the_minute_too() -> None:
    """descheduler#1153 wants a delay between evictions."""
    simulated, times = world(), list[float]()
    evict = simulated.evict

    async def noted(pod: Pod, reason: str, grace_period_seconds: int | None) -> Answer:
        times.append(time.monotonic())
        return await evict(pod, reason, grace_period_seconds)

    simulated.evict = noted  # type: ignore[method-assign]  # it observes
    asyncio.run(runner(simulated, decision=Decision.UPSTREAM, rate=300).run(Times()))
    first, second = times
    assert second - first >= 0.2
    assert simulated.evicted == ["default/p0", "default/p1"]


class Recorder:
    """Keeps what is reserved."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []

    def reserve(self, pod: Pod, node_name: str) -> None:
        self.calls.append(("reserve", pod.name, node_name))

    def release(self, pod: Pod) -> None:
        self.calls.append(("release", pod.name, ""))


def test_room_is_reserved_before_and_released_after() -> None:
    simulated, room = world(), Recorder()
    plan = simulated.plan()
    simulated.answers["default/p1"] = Answer(429, "no")
    execute(simulated, plan, room=room)
    assert room.calls == [
        ("reserve", "p0", plan.moves[0].target),
        ("release", "p0", ""),
        ("reserve", "p1", plan.moves[1].target),
        ("release", "p1", ""),
    ]


def test_evictions_in_background() -> None:
    """An accepted request is remembered until the pod is gone, which counts as a success."""
    annotated = replica("p0", "a", annotations={REQUEST_EVICT_ONLY: ""})
    marked = replica("p1", "a", annotations={REQUEST_EVICT_ONLY: "", EVICTION_IN_PROGRESS: ""})
    plain = replica("p1", "a", annotations={REQUEST_EVICT_ONLY: ""})
    requests = BackgroundRequests()
    requests.assume("p0", BackgroundRequest("a", "default", 0.0, "S", "P"))
    assert requests.sync([annotated, marked], 10.0) == []
    assert {*requests.requests} == {"p0", "p1"}
    assert requests.counts("a", "default") == (2, 2, 2)
    # The annotation of a running eviction is removed: it has failed.
    assert requests.sync([annotated, plain], 20.0) == []
    assert {*requests.requests} == {"p0"}
    ((uid, gone),) = requests.sync([plain], 30.0)
    assert (uid, gone.strategy, gone.profile) == ("p0", "S", "P")
    # A request that nobody carries out is forgotten after ten minutes; an annotation never is.
    requests.assume("p1", BackgroundRequest("a", "default", 30.0, "S", "P"))
    requests.sync([plain], 630.0)
    assert {*requests.requests} == {"p1"}
    requests.sync([plain], 631.0)
    assert not requests.requests
