"""Coscheduling: all of a group or none, quickly given back, and no deadlock. A whole scheduler is at work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.pod_group import POD_GROUP_LABEL, PodGroup, PodGroupSpec
from bayplan.cluster_api import PodStatusPatch
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.errors import APIError, ConfigError, ServerError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.state import CycleState
from bayplan.framework.status import SKIP, Status, failure
from bayplan.memory_api.cluster import MemoryCluster, MemoryStore
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.coscheduling import (
    BACKS_OFF,
    INCOMPLETE,
    MAX_BACKOFF_SECONDS,
    NOT_FOUND,
    Coscheduling,
)
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import PODS_BETWEEN_YIELDS, Scheduler
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.simulator.virtual_time import current_loop, quiescent, run_virtual
from bayplan.testing.builders import make_node, make_pod, make_toleration


def make_group(name: str = "g", wanted: int = 3, timeout: int | None = None) -> PodGroup:
    spec = PodGroupSpec(min_member=wanted, schedule_timeout_seconds=timeout)
    return PodGroup(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


def make_member(number: int, group: str = "g", **fields: Any) -> Pod:
    """Takes a whole cpu; four of them fill a node."""
    fields.setdefault("cpu", "1")
    return make_pod(f"{group}-{number}", labels={POD_GROUP_LABEL: group}, **fields)


def make_members(count: int, group: str = "g", **fields: Any) -> list[Pod]:
    return [make_member(number, group, **fields) for number in range(count)]


class Breaks(Plugin):
    """Breaks when a pod of one of these names has been given a node."""

    names: ClassVar[set[str]] = set()

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return failure("broken") if pod.name in self.names else SKIP

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None


@pytest.fixture(autouse=True)
def nothing_breaks() -> None:
    Breaks.names.clear()


class Gangs(MemoryCluster):
    """The cluster, and the scheduler that is at work on it."""

    def __init__(self, *objects: Object, config: KubeSchedulerConfiguration | None = None) -> None:
        super().__init__(MemoryStore(clock=current_loop().wall_time))
        self.refusals: list[APIError] = []
        """Answers to the first bindings."""
        self.announcing: dict[str, float] = {}
        """How many seconds it takes to write a pod's status, by name."""
        self.attempts = 0
        self.on_attempt: dict[str, Callable[[], None]] = {}
        """What happens when it is first decided about a pod."""
        self.add(*objects)
        self.scheduler = Scheduler(self, config, plugins=[Breaks, Coscheduling], on_decision=self._decided)

    def _decided(self, decision: Decision) -> None:
        self.attempts += 1
        self.on_attempt.pop(decision.pod.name, lambda: None)()

    def add(self, *objects: Object) -> None:
        for item in objects:
            self.store.create(item)

    def remove(self, name: str) -> None:
        self.store.delete(Pod, name, "default")

    async def bind(self, pod: Pod, node_name: str) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        await super().bind(pod, node_name)

    async def patch_pod_status(self, pod: Pod, patch: PodStatusPatch) -> None:
        # No API server answers at once.
        await asyncio.sleep(self.announcing.get(pod.name, 0))
        await super().patch_pod_status(pod, patch)

    def pod(self, name: str) -> Pod:
        return self.store.get(Pod, name, "default")

    def bound(self, group: str = "g") -> int:
        """How many pods of the group are on a node."""
        return sum(
            pod.labels.get(POD_GROUP_LABEL) == group and bool(pod.spec.node_name)
            for pod in self.store.list(Pod)
        )

    @property
    def held(self) -> int:
        """Places that are taken by pods which are not bound."""
        return self.scheduler.context.cache.assumed_count

    def reason(self, name: str) -> str:
        """Why the pod waits, as people are told."""
        return next((c.message for c in self.pod(name).status.conditions if c.type == "PodScheduled"), "")


@asynccontextmanager
async def gangs(*objects: Object, config: KubeSchedulerConfiguration | None = None) -> AsyncIterator[Gangs]:
    cluster = Gangs(*objects, config=config)
    running = asyncio.ensure_future(cluster.scheduler.run())
    await quiescent()
    try:
        yield cluster
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await quiescent()


Test = Callable[[], Coroutine[Any, Any, None]]


def virtual(test: Test) -> Callable[[], None]:
    """Runs a test in virtual time."""

    def run() -> None:
        run_virtual(test())

    run.__doc__ = test.__doc__
    run.__name__ = test.__name__
    return run


# All or none


@pytest.mark.parametrize(
    ("wanted", "pods", "room", "bound", "of_others"),
    [
        pytest.param(3, 3, 4, 3, 1, id="all are bound when all fit"),
        pytest.param(3, 2, 4, 0, 1, id="none is tried while members are missing"),
        pytest.param(3, 3, 2, 0, 1, id="none is bound when not all fit, and the room is given back"),
        pytest.param(2, 4, 3, 3, 0, id="more than are needed are bound as they fit"),
        pytest.param(2, 4, 2, 2, 0, id="the least number is enough"),
        pytest.param(0, 1, 4, 1, 1, id="a group without a number asks for nothing"),
    ],
)
def test_all_or_none(wanted: int, pods: int, room: int, bound: int, of_others: int) -> None:
    """The other pod is created last and of lower priority: it gets what the group leaves."""

    async def main() -> None:
        async with gangs(make_node("n", cpu=room), make_group(wanted=wanted)) as cluster:
            cluster.add(*make_members(pods, priority=1), make_pod("other", cpu="1"))
            await quiescent()
            assert (cluster.bound(), cluster.held) == (bound, 0)
            assert bool(cluster.pod("other").spec.node_name) == bool(of_others)

    run_virtual(main())


@virtual
async def test_pods_without_a_group_are_left_alone() -> None:
    async with gangs(make_node("n"), make_pod("p")) as cluster:
        assert cluster.pod("p").spec.node_name == "n"


@virtual
async def test_groups_of_other_namespaces_are_others() -> None:
    elsewhere = replace(make_group(wanted=1), metadata=ObjectMeta(name="g", namespace="elsewhere"))
    async with gangs(make_node("n"), elsewhere, make_member(0)) as cluster:
        assert cluster.bound() == 0


# What a group waits for


@virtual
async def test_a_pod_waits_for_its_group_to_be_made() -> None:
    async with gangs(make_node("n"), *make_members(3)) as cluster:
        assert (cluster.bound(), cluster.attempts) == (0, 0)
        cluster.add(make_group())
        await quiescent()
        assert cluster.bound() == 3


@virtual
async def test_the_last_member_brings_the_others_in() -> None:
    """They have not cost a single attempt until then."""
    async with gangs(make_node("n"), make_group(), *make_members(2)) as cluster:
        assert cluster.attempts == 0
        cluster.add(make_member(2))
        await quiescent()
        assert (cluster.bound(), cluster.attempts) == (3, 3)


@virtual
async def test_a_gated_member_does_not_count_before_its_gate_is_gone() -> None:
    gated = make_member(2, gates=["quota"])
    async with gangs(make_node("n"), make_group(), *make_members(2), gated) as cluster:
        assert cluster.attempts == 0
        pod = cluster.pod("g-2")
        cluster.store.update(replace(pod, spec=replace(pod.spec, scheduling_gates=())))
        await quiescent()
        assert cluster.bound() == 3


@virtual
async def test_a_pod_of_another_scheduler_counts_once_it_is_on_a_node() -> None:
    foreign = make_member(2, scheduler_name="other")
    async with gangs(make_node("n"), make_group(wanted=2), make_member(0), foreign) as cluster:
        assert cluster.attempts == 0
        cluster.store.bind("g-2", "default", "n")
        cluster.add(make_member(1))
        await quiescent()
        assert (cluster.bound(), cluster.attempts) == (3, 2)


def bound_by_others(cluster: Gangs) -> None:
    cluster.store.bind("g-1", "default", "n")


def put_on_a_node(cluster: Gangs) -> None:
    cluster.add(make_member(2, node="n"))


def given_the_label(cluster: Gangs) -> None:
    pod = cluster.pod("runs")
    labelled = replace(pod.metadata, labels={POD_GROUP_LABEL: "g"})
    cluster.store.update(replace(pod, metadata=labelled))


@pytest.mark.parametrize(
    "completed",
    [
        pytest.param(bound_by_others, id="another scheduler binds one"),
        pytest.param(put_on_a_node, id="one is created on a node"),
        pytest.param(given_the_label, id="one that runs joins the group"),
    ],
)
def test_a_group_that_is_completed_by_others_is_tried_soon(completed: Callable[[Gangs], None]) -> None:
    async def main() -> None:
        foreign = make_member(1, scheduler_name="other")
        runs = make_pod("runs", cpu="1", node="n")
        async with gangs(make_node("n"), make_group(wanted=2), make_member(0), foreign, runs) as cluster:
            await after(60)
            assert cluster.attempts == 0
            completed(cluster)
            await after(MAX_BACKOFF_SECONDS)
            assert cluster.bound() == 2

    run_virtual(main())


@virtual
async def test_a_group_that_asks_for_less_is_tried_again() -> None:
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        assert cluster.bound() == 0
        cluster.store.update(make_group(wanted=2))
        await after(2)
        assert cluster.bound() == 2


@virtual
async def test_members_on_nodes_count_after_a_restart() -> None:
    """A scheduler that died while it bound a group left two of three behind. They are listed last."""
    on_node = [make_member(number, node="n") for number in (1, 2)]
    async with gangs(make_node("n"), make_group(), make_member(0), *on_node) as cluster:
        assert cluster.bound() == 3


@virtual
async def test_a_replacement_joins_a_running_group() -> None:
    async with gangs(make_node("n"), make_group(), *make_members(3)) as cluster:
        cluster.remove("g-0")
        cluster.add(make_member(3))
        await quiescent()
        assert cluster.bound() == 3


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param([], NOT_FOUND.format(name="g"), id="no such group"),
        pytest.param([make_group(wanted=1)], "", id="nothing"),
    ],
)
def test_a_core_that_only_decides(objects: list[Object], reason: str) -> None:
    """It knows no waiting pods, and so cannot say that members are missing."""
    core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, Coscheduling])
    core.load([make_node("n"), *objects])
    assert reason in core.decide(make_member(0)).message


@virtual
async def test_what_people_are_told() -> None:
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        told = {cluster.reason(f"g-{number}").split(": ", 1)[1] for number in range(3)}
        assert 'pod group "g" cannot be completed now' in "".join(told)
        assert "Insufficient cpu" in "".join(told)


@virtual
async def test_a_member_that_is_gone_when_its_turn_comes() -> None:
    """PreFilter asks again: the group was complete when the pods entered the queue."""
    async with gangs(make_group(), *make_members(3)) as cluster:
        cluster.remove("g-0")
        cluster.add(make_node("n"))
        await quiescent()
        assert cluster.reason("g-1").startswith("no nodes available")
        await after(15)
        assert (cluster.bound(), cluster.held) == (0, 0)
        assert INCOMPLETE.format(name="g", count=2, wanted=3) in cluster.reason("g-1")


# Giving back


def make_absent_minded(number: int) -> Pod:
    """A member that is refused in a way which this plugin does not get to know of: its claim is missing."""
    return make_member(number, claims=["nowhere"])


@virtual
async def test_a_group_that_cannot_be_completed_gives_back_at_once() -> None:
    """Not a moment passes between the refusal of one and the release of the others."""
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        assert (current_loop().time(), cluster.held) == (0, 0)


@virtual
async def test_members_that_come_too_late_are_not_tried_at_all() -> None:
    """Three of five are needed, and one fits. After the third refusal the last one is not looked at."""
    async with gangs(make_node("n", cpu=1), make_group(), *make_members(5)) as cluster:
        told = [cluster.reason(f"g-{number}") for number in range(5)]
        assert [BACKS_OFF.format(name="g") in text for text in told] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("in_group", "seconds"),
    [
        pytest.param(7, 7, id="as long as the group says"),
        pytest.param(None, 60, id="as long as the arguments say"),
    ],
)
def test_waiting_ends(in_group: int | None, seconds: int) -> None:
    async def main() -> None:
        group = make_group(timeout=in_group)
        async with gangs(make_node("n"), group, *make_members(2), make_absent_minded(2)) as cluster:
            await after(seconds - 0.1)
            assert cluster.held == 2
            await after(0.1)
            assert cluster.held == 0

    run_virtual(main())


@virtual
async def test_one_that_has_waited_too_long_does_not_count_until_it_is_tried_again() -> None:
    """Its place is announced so slowly that it still has it when the others come for the second time."""
    async with gangs(make_node("n", cpu=5), make_group(timeout=3)) as cluster:
        cluster.announcing = {"g-0": 4, "g-1": 20}
        cluster.add(*make_members(2), make_absent_minded(2))
        await after(5)
        cluster.remove("g-2")
        cluster.announcing.clear()
        cluster.add(make_member(3))
        await after(10)
        assert cluster.bound() == 0
        await after(20)
        assert (cluster.bound(), cluster.held) == (3, 0)


@virtual
async def test_one_that_has_waited_too_long_is_tried_again_in_a_complete_group() -> None:
    """Two of three are enough: when they are bound the first has lost its turn, but not left its node.

    Both status writes of the first take 20 seconds, and its binding waits for them.
    """
    async with gangs(make_node("n"), make_group(wanted=2, timeout=3)) as cluster:
        cluster.announcing = {"g-0": 20}
        cluster.add(make_member(0), make_absent_minded(1))
        await after(5)
        cluster.add(make_member(2), make_member(3))
        await after(5)
        assert cluster.bound() == 2
        await after(35)
        assert (cluster.bound(), cluster.held) == (3, 0)


@virtual
async def test_one_that_is_deleted_releases_the_others() -> None:
    async with gangs(make_node("n"), make_group(), *make_members(2), make_absent_minded(2)) as cluster:
        assert cluster.held == 2
        cluster.remove("g-0")
        await quiescent()
        assert cluster.held == 0


@virtual
async def test_one_that_is_preempted_releases_the_others() -> None:
    """They are not bound, so nobody has to be evicted; the group comes back when there is room."""
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(2), make_absent_minded(2)) as cluster:
        assert cluster.held == 2
        cluster.add(make_pod("urgent", cpu="1", priority=10))
        await quiescent()
        assert (cluster.pod("urgent").spec.node_name, cluster.held) == ("n", 0)
        cluster.add(make_node("m"), make_member(3), make_member(4))
        await after(MAX_BACKOFF_SECONDS)
        assert cluster.bound() == 4


@virtual
async def test_a_failed_binding_is_repeated_alone() -> None:
    """The group had been allowed: the others stay, and the one comes back."""
    async with gangs(make_node("n"), make_group()) as cluster:
        cluster.refusals.append(ServerError("not now"))
        cluster.add(*make_members(3))
        await quiescent()
        assert (cluster.bound(), cluster.held) == (2, 0)
        await after(5)
        assert cluster.bound() == 3


@virtual
async def test_a_group_is_tried_again_when_room_appears() -> None:
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        await after(300)
        cluster.add(make_node("m"))
        await after(2 * MAX_BACKOFF_SECONDS)
        assert cluster.bound() == 3


@virtual
async def test_a_group_that_does_not_fit_is_not_tried_all_the_time() -> None:
    """Its own giving back looks like room to the member that was refused."""
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        await after(600)
        assert cluster.attempts < 150


@virtual
async def test_members_that_were_sent_back_are_tried_once_the_group_is_complete() -> None:
    """One is enough. When its room is taken, the second is refused and the third not looked at."""
    async with gangs(make_node("n", cpu=1), make_group(wanted=1), *make_members(3)) as cluster:
        cluster.remove("g-0")
        cluster.add(make_pod("urgent", cpu="1", priority=5))
        await quiescent()
        assert BACKS_OFF.format(name="g") in cluster.reason("g-2")
        cluster.add(make_node("m"))
        await after(5)
        assert cluster.bound() == 2


@virtual
async def test_members_that_were_sent_back_do_not_depend_on_the_one_that_failed() -> None:
    """The first breaks after it got its node, and is then deleted: nobody has been refused a node."""
    async with gangs(make_node("n"), make_group(wanted=2)) as cluster:
        Breaks.names.add("g-0")
        cluster.add(*make_members(3))
        await quiescent()
        cluster.remove("g-0")
        await after(5)
        assert cluster.bound() == 2


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(1, id="the only one that was refused"),
        pytest.param(2, id="one of two that were refused, and the group can do without the other"),
    ],
)
def test_members_that_were_sent_back_when_others_bind_one_that_was_refused(refused: int) -> None:
    async def main() -> None:
        tolerant = make_member(9, tolerations=[make_toleration("k")])
        async with gangs(make_node("m", taints=["k:NoSchedule"]), make_group(wanted=2)) as cluster:
            cluster.add(*make_members(refused), tolerant)
            await after(60)
            assert (BACKS_OFF.format(name="g") in cluster.reason("g-9"), cluster.bound()) == (True, 0)
            cluster.store.bind("g-0", "default", "m")
            await after(2 * MAX_BACKOFF_SECONDS)
            assert (cluster.bound(), cluster.pod("g-9").spec.node_name) == (2, "m")

    run_virtual(main())


@virtual
async def test_a_member_that_was_refused_and_sent_back_is_tried_again() -> None:
    """Room comes up for it just before another is refused, who would not fit there."""
    async with gangs(
        make_node("n", cpu=1), make_pod("full", cpu="1", priority=3), make_group(wanted=1)
    ) as cluster:
        cluster.on_attempt["g-0"] = lambda: cluster.remove("full")
        between = [make_pod(f"p{number}", cpu="64", priority=1) for number in range(PODS_BETWEEN_YIELDS)]
        cluster.add(make_member(0, priority=2), *between, make_member(1, cpu="2"))
        await quiescent()
        assert BACKS_OFF.format(name="g") in cluster.reason("g-0")
        await after(MAX_BACKOFF_SECONDS)
        assert cluster.bound() == 1


# Groups among each other


@virtual
async def test_two_groups_that_hold_half_each() -> None:
    """Their pods take turns, so that both get three of the six places: the older one is completed first."""
    async with gangs(make_node("n", cpu=6), make_group("old", 4)) as cluster:
        await after(1)
        cluster.add(make_group("young", 4))
        for number in range(4):
            cluster.add(make_member(number, "old"), make_member(number, "young"))
        await quiescent()
        assert (cluster.bound("old"), cluster.bound("young"), cluster.held) == (4, 0, 0)
        cluster.add(make_node("m"))
        await after(2 * MAX_BACKOFF_SECONDS)
        assert cluster.bound("young") == 4


@virtual
async def test_the_older_group_waits_for_the_younger_one_to_leave() -> None:
    """Where nodes are announced slowly, places that were given back are not free at once."""
    async with gangs(make_node("n", cpu=6), make_group("old", 5)) as cluster:
        await after(1)
        cluster.add(make_group("young", 4))
        cluster.announcing = {f"young-{number}": 10 for number in range(4)}
        for number in range(5):
            cluster.add(make_member(number, "old"), make_member(number, "young"))
        await after(9)
        assert (cluster.bound("old"), cluster.bound("young"), cluster.held) == (0, 0, 6)
        await after(2)
        assert (cluster.bound("old"), cluster.bound("young")) == (5, 0)


@virtual
async def test_priority_comes_before_age() -> None:
    async with gangs(make_node("n", cpu=6), make_group("old", 4)) as cluster:
        await after(1)
        cluster.add(make_group("urgent", 4))
        members = [make_members(4, "old", priority=1), make_members(4, "urgent", priority=2)]
        cluster.add(*(pod for both in zip(*members, strict=True) for pod in both))
        await quiescent()
        assert (cluster.bound("old"), cluster.bound("urgent")) == (0, 4)


@virtual
async def test_a_large_old_group_does_not_starve_a_small_young_one() -> None:
    async with gangs(make_node("n", cpu=6), make_group("old", 8)) as cluster:
        await after(1)
        cluster.add(make_group("young", 4))
        for number in range(8):
            cluster.add(make_member(number, "old"))
            if number < 4:
                cluster.add(make_member(number, "young"))
        await after(5)
        assert (cluster.bound("old"), cluster.bound("young")) == (0, 4)


@virtual
async def test_many_groups_in_little_room() -> None:
    """Twenty groups of five, room for four at a time: all get their turn as others end."""
    async with gangs(make_node("n", cpu=20, pods=200)) as cluster:
        for number in range(20):
            cluster.add(make_group(f"g{number}", 5))
        for number in range(5):
            cluster.add(*(make_member(number, f"g{group}") for group in range(20)))
        await quiescent()
        ended = set()
        for _ in range(20):
            for group in range(20):
                bound = cluster.bound(f"g{group}")
                assert bound in (0, 5)
                if bound:
                    ended.add(group)
                    for number in range(5):
                        cluster.remove(f"g{group}-{number}")
            await after(40)
        assert len(ended) == 20


@virtual
async def test_groups_that_fit_cost_an_attempt_a_pod() -> None:
    async with gangs(*(make_node(f"n{i}", cpu=64, pods=200) for i in range(10))) as cluster:
        cluster.add(*(make_group(f"g{number}", 50) for number in range(10)))
        cluster.add(*(pod for number in range(10) for pod in make_members(50, f"g{number}")))
        await quiescent()
        assert cluster.attempts == 500
        assert all(pod.spec.node_name for pod in cluster.store.list(Pod))
        assert len(cluster.store.list(Node)) == 10


# Configuration


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: Coscheduling
    args:
      permitWaitingTimeSeconds: {seconds}
"""


def make_config(seconds: int) -> KubeSchedulerConfiguration:
    return parse_config(CONFIG.format(seconds=seconds), catalog=catalog_with([Coscheduling]))


def test_an_argument_out_of_range() -> None:
    with pytest.raises(ConfigError, match="permitWaitingTimeSeconds: Invalid value: 0: must be greater"):
        SchedulingCore(make_config(0), plugins=[*BUILTIN_PLUGINS, Coscheduling])


@virtual
async def test_an_argument_takes_effect() -> None:
    waiting = [*make_members(2), make_absent_minded(2)]
    async with gangs(make_node("n"), make_group(), *waiting, config=make_config(5)) as cluster:
        assert cluster.held == 2
        await after(5)
        assert cluster.held == 0


def test_the_example_of_the_docs_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "coscheduling.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(compile(example, "docs/coscheduling.md", "exec"), {"__name__": "documentation"})
