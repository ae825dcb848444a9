"""`mode: surge`: replacements first, so that a service with one replica never stops.

descheduler#786 and #1558 ask for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.answers.whatif import Cluster
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.workloads import Deployment, ReplicaSet
from bayplan.client.kubeconfig import load_access
from bayplan.config import DescheduleConfiguration, Mode
from bayplan.deschedule.eviction import Answer
from bayplan.deschedule.executing import Outcome, Step
from bayplan.deschedule.process import RunOptions, run_descheduler
from bayplan.deschedule.surge import LOWEST_COST, Surging, allows_surge, deployment_of
from bayplan.deschedule.times import Times
from bayplan.embedded.server.kinds import DEPLOYMENTS, PODS
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.errors import ServerError
from bayplan.framework.args import Duration
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_node, make_owner, make_pod
from tests.deschedule.situations import descheduler
from tests.deschedule.test_companion import WEB, nodes_of, taint


def ready(api: ObjectAPI) -> int:
    def is_ready(pod: Any) -> bool:
        conditions = pod["status"].get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    return sum(
        is_ready(one) for one in api.list(PODS, "default") if "deletionTimestamp" not in one["metadata"]
    )


def moved(tmp_path: Path, mode: Mode) -> tuple[list[Step], int, dict[str, str], int]:
    """The steps of a cycle after the node of the only pod got a taint; the fewest ready pods meanwhile; the
    nodes of pods afterwards; and the replicas of the Deployment afterwards."""
    kubeconfig, steps = tmp_path / "kubeconfig", list[Step]()

    async def scenario() -> tuple[int, dict[str, str], int]:
        async with LocalCluster(LocalSettings(nodes=3), Outcomes()) as cluster:
            cluster.server.write_kubeconfig(kubeconfig)
            api, counts = cluster.server.api, [1]
            api.create(DEPLOYMENTS, {**WEB, "spec": {**WEB["spec"], "replicas": 1}}, "default")
            while not ready(api):
                await asyncio.sleep(0.02)
            (node,) = nodes_of(api).values()
            taint(api, node)
            loaded = await asyncio.to_thread(load_cluster, SourceOptions(kubeconfig=str(kubeconfig)))
            lease = ("kube-system", "bayplan-descheduler")
            options = RunOptions(load_access(str(kubeconfig)), loaded, Times(), False, None, lease, None)
            settings = DescheduleConfiguration(
                mode=mode, evictions_per_minute=6000, replacement_timeout=Duration.of(seconds=20)
            )
            policy = descheduler({"RemovePodsViolatingNodeTaints": {}})
            running = asyncio.ensure_future(
                run_descheduler(options, policy, settings, lambda _: None, steps.append)
            )
            unsubscribe = api.store.subscribe(lambda _: counts.append(ready(api)))
            await running
            async with asyncio.timeout(20):
                while len(nodes_of(api)) != 1 or node in nodes_of(api).values():
                    await asyncio.sleep(0.02)
            unsubscribe()
            replicas = api.get(DEPLOYMENTS, "web", "default")["spec"]["replicas"]
            return min(counts), nodes_of(api), replicas

    return steps, *asyncio.run(asyncio.wait_for(scenario(), 90))


@pytest.mark.parametrize(("mode", "fewest"), [(Mode.SURGE, 1), (Mode.EVICT, 0)], ids=str)
def test_a_service_with_one_replica(tmp_path: Path, mode: Mode, fewest: int) -> None:
    """With surge it never stops; the Deployment has its number of replicas again."""
    steps, least, nodes, replicas = moved(tmp_path, mode)
    assert [one.outcome for one in steps] == [Outcome.MOVED]
    assert {*nodes.values()} == {steps[0].move.target}
    assert (least, replicas) == (fewest, 1)


def owned(strategy: dict[str, Any], *more: Any) -> tuple[Any, Cluster]:
    deployment = Deployment(metadata=ObjectMeta(name="web", namespace="default", uid="d"), spec=strategy)
    owner = make_owner("Deployment", "web", uid="d")
    sets = [
        ReplicaSet(metadata=ObjectMeta(name=name, namespace="default", uid=name, owner_references=(owner,)))
        for name in ("new", "old")
    ]
    pod = make_pod("p", node="n", owner=make_owner("ReplicaSet", "new", uid="new"))
    return pod, Cluster.from_objects([make_node("n"), deployment, *sets, pod, *more])


OLD_POD = make_pod("q", node="n", owner=make_owner("ReplicaSet", "old", uid="old"))


@pytest.mark.parametrize(
    ("spec", "more", "allowed"),
    [
        pytest.param({}, (), True, id="the defaults allow a quarter more"),
        pytest.param({"strategy": {"type": "Recreate"}}, (), False, id="Recreate"),
        pytest.param({"strategy": {"rollingUpdate": {"maxSurge": 0}}}, (), False, id="maxSurge 0"),
        pytest.param({"strategy": {"rollingUpdate": {"maxSurge": 1}}}, (), True, id="maxSurge 1"),
        pytest.param({}, (OLD_POD,), False, id="a rollout is under way"),
    ],
)
def test_where_the_owner_allows_it(spec: dict[str, Any], more: tuple[Any, ...], allowed: bool) -> None:
    pod, cluster = owned(spec, *more)
    deployment = deployment_of(pod, cluster)
    assert deployment is not None
    assert allows_surge(deployment, pod, cluster) is allowed


def test_other_owners_have_no_deployment() -> None:
    _, cluster = owned({})
    for owner in (make_owner("StatefulSet", "db"), make_owner("ReplicaSet", "alone")):
        assert deployment_of(make_pod("r", node="n", owner=owner), cluster) is None


class Scaling:
    """A Deployment and its pods. Nothing becomes ready by itself."""

    def __init__(self, cluster: Cluster, fails_at: int = 0, *, autoscaled: bool = False) -> None:
        self._cluster = cluster
        self._fails_at = fails_at
        self._autoscaled = autoscaled
        self.calls: list[str] = []

    def _called(self, text: str) -> None:
        self.calls.append(text)
        if len(self.calls) == self._fails_at:
            raise ServerError("the server is overloaded", 503)

    async def scale(self, namespace: str, name: str, expected: int, replicas: int) -> None:
        self._called(f"scale {namespace}/{name} from {expected} to {replicas}")

    async def annotate(self, pod: Pod, key: str, value: str | None) -> None:
        self._called(f"annotate {pod.key} {value}")

    async def is_autoscaled(self, namespace: str, name: str) -> bool:
        return self._autoscaled

    async def load(self) -> Cluster:
        return self._cluster

    async def objects(self) -> Sequence[Object]:
        return self._cluster.objects

    async def pods(self, namespace: str) -> Sequence[Pod]:
        return [pod for pod in self._cluster.pods if pod.namespace == namespace]

    async def evict(self, pod: Pod, reason: str, grace_period_seconds: int | None) -> Answer:
        raise AssertionError("the owner replaces the pod")


UP, DOWN = "scale default/web from 1 to 2", "scale default/web from 2 to 1"
MARKED, UNMARKED = f"annotate default/p {LOWEST_COST}", "annotate default/p None"


@pytest.mark.parametrize(
    ("fails_at", "calls", "why"),
    [
        pytest.param(
            0,
            [MARKED, UP, UNMARKED, DOWN],
            "the replacement was not ready within 3 s",
            id="the old pod stays if the new one does not start",
        ),
        pytest.param(
            2,
            [MARKED, UP],
            "the replacement cannot be created first: the server is overloaded",
            id="scaling up fails",
        ),
        pytest.param(
            4,
            [MARKED, UP, UNMARKED, DOWN],
            "Deployment default/web was scaled up to 2 and cannot be scaled back: the server is overloaded",
            id="scaling back fails",
        ),
    ],
)
def test_the_sentence_of_a_replacement_that_did_not_work(fails_at: int, calls: list[str], why: str) -> None:
    """descheduler#786, #1558: whatever fails, the old pod is still there."""
    pod, cluster = owned({"replicas": 1}, make_node("m"))
    api = Scaling(cluster, fails_at)
    assert run_virtual(Surging(api, 3.0).move(pod, "m", cluster, nominated=True)) == why
    assert api.calls == calls


@pytest.mark.parametrize(
    ("target", "autoscaled"),
    [
        pytest.param(make_node("m"), True, id="a HorizontalPodAutoscaler"),
        pytest.param(make_node("m", unschedulable=True), False, id="the target has no room beside it"),
    ],
)
def test_pods_that_cannot_be_replaced_first_are_evicted(target: Node, autoscaled: bool) -> None:
    """Nothing was written: None says that the pod is evicted as with mode evict."""
    pod, cluster = owned({"replicas": 1}, target)
    api = Scaling(cluster, autoscaled=autoscaled)
    found = run_virtual(Surging(api, 3.0).move(pod, "m", cluster, nominated=False))
    assert (found, api.calls) == (None, [])
