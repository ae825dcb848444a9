"""TargetLoadPacking and LoadVariationRiskBalancing, and the measurements they read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from aiohttp import web

from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod
from bayplan.errors import ServerError
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.state import CycleState
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.load_aware import (
    LoadVariationRiskBalancing,
    LoadVariationRiskBalancingArgs,
    TargetLoadPacking,
    TargetLoadPackingArgs,
    packing_scores,
)
from bayplan.plugins.library.load_aware.measurements import (
    PROMETHEUS,
    Load,
    MetricProvider,
    NodeMetrics,
    NodeUsage,
    Sample,
)
from bayplan.scheduler.core import CoreHandle, SchedulingCore
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, quiescent, run_virtual
from bayplan.state.cluster import Cluster
from bayplan.state.view import NodeColumns
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.calling import make_plugin
from bayplan.testing.plugin_checks import check_plugin


@pytest.mark.parametrize("plugin", [TargetLoadPacking, LoadVariationRiskBalancing])
def test_they_pass_the_checks(plugin: type[Plugin]) -> None:
    check_plugin(plugin)


def decided(plugin: type[Plugin], loads: Mapping[str, float], pod: Pod, *objects: Object) -> dict[str, int]:
    """The scores of 10-cpu nodes that use these shares of their cpu and memory."""
    plugins: list[type[Plugin]] = [*BUILTIN_PLUGINS, plugin]
    core = SchedulingCore(plugins=plugins)
    core.load([*(make_node(name, cpu="10", memory="10Gi") for name in loads), *objects])
    profile = core.frameworks["default-scheduler"].profile
    (made,) = (one for one in profile.all_plugins() if isinstance(one, plugin))
    assert isinstance(made, (TargetLoadPacking, LoadVariationRiskBalancing))
    now = core.handle.now()
    made.usage.history.add(
        {name: Sample(now, {"cpu": load, "memory": load}, are_shares=True) for name, load in loads.items()}
    )
    decision = core.decide(pod)
    assert decision.found is not None
    (step,) = (step for step in profile.scores if step.name == plugin.name)
    view = core.frameworks["default-scheduler"].begin(pod)
    nodes = NodeColumns(core.cluster, core.cluster.order)
    return dict(zip(nodes.names, step.score(view.state, pod, nodes).tolist(), strict=True))


# TargetLoadPacking


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(0, 40), (20, 70), (40, 100), (50, 33), (70, 20), (100, 0), (120, 0)],
)
def test_the_score_rises_to_the_target_and_falls_beyond(percent: float, expected: int) -> None:
    assert packing_scores(np.array([percent]), 40).tolist() == [expected]


def test_nodes_near_the_target_are_preferred() -> None:
    scores = decided(
        TargetLoadPacking, {"idle": 0.0, "near": 0.25, "full": 0.9}, make_pod("p", limits={"cpu": 1})
    )
    assert scores == {"idle": 55, "near": 93, "full": 0}


def test_a_node_without_measurements_has_the_lowest_score() -> None:
    unmeasured = make_node("unmeasured", cpu="10")
    assert decided(TargetLoadPacking, {"n": 0.2}, make_pod("p"), unmeasured)["unmeasured"] == 0


def test_what_a_pod_will_use() -> None:
    predicted = make_plugin(TargetLoadPacking).predicted
    assert predicted(make_pod("p", requests={"cpu": 1}, limits={"cpu": 3})) == 3000
    assert predicted(make_pod("p", cpu="1")) == 1500
    assert predicted(make_pod("p")) == 1000
    assert predicted(make_pod("p", limits={"cpu": 1}, overhead={"cpu": "100m"})) == 1100
    args = TargetLoadPackingArgs(default_requests={"cpu": "2"}, default_requests_multiplier="2")
    assert make_plugin(TargetLoadPacking, args).predicted(make_pod("p", cpu="1")) == 2000
    assert make_plugin(TargetLoadPacking, args).predicted(make_pod("p")) == 2000


def test_pods_assigned_since_the_measurement_are_predicted() -> None:
    plugins: list[type[Plugin]] = [*BUILTIN_PLUGINS, TargetLoadPacking]
    core = SchedulingCore(plugins=plugins)
    core.load([make_node("a", cpu="10"), make_node("b", cpu="10")])
    made = next(
        one
        for one in core.frameworks["default-scheduler"].profile.all_plugins()
        if isinstance(one, TargetLoadPacking)
    )
    made.usage.history.add({name: Sample(core.handle.now(), {"cpu": 0.1}, are_shares=True) for name in "ab"})
    nodes, now = NodeColumns(core.cluster), core.handle.now()
    made.score(CycleState(), make_pod("p"), nodes)

    def missing() -> dict[str, int]:
        made._columns.update(core.cluster, now)
        return dict(zip(nodes.names, made._recent.missing(made._columns, now).tolist(), strict=True))

    second = make_pod("second", limits={"cpu": 2})
    made.reserve(CycleState(), make_pod("first", limits={"cpu": 1}), "a")
    made.reserve(CycleState(), second, "b")
    assert missing() == {"a": 1000, "b": 2000}
    # A measurement that was taken a minute later includes them; that of b is older.
    made.usage.history.add(
        {
            "a": Sample(now + 120, {"cpu": 0.1}, are_shares=True),
            "b": Sample(now + 30, {"cpu": 0.1}, are_shares=True),
        }
    )
    assert missing() == {"a": 0, "b": 2000}
    assert len(made._recent) == 1
    made.unreserve(CycleState(), second, "b")
    assert missing() == {"a": 0, "b": 0}
    assert len(made._recent) == 0


# LoadVariationRiskBalancing


@pytest.mark.parametrize(
    ("load", "request_", "margin", "sensitivity", "expected"),
    [
        (Load(0.2, 0.2, 0.0), 0.2, 1, 1, 80),
        (Load(0.2, 0.2, 0.3), 0.2, 1, 1, 65),
        (Load(0.2, 0.2, 0.16), 0.2, 1, 2, 60),
        (Load(0.2, 0.2, 0.3), 0.2, 2, 1, 50),
        (Load(0.9, 0.9, 0.9), 0.9, 1, 1, 5),
        (Load(0.2, 0.2, 0.5), 0.0, 1, 0, 90),
    ],
)
def test_risk(load: Load, request_: float, margin: float, sensitivity: float, expected: float) -> None:
    args = LoadVariationRiskBalancingArgs(safe_variance_margin=margin, safe_variance_sensitivity=sensitivity)
    found = make_plugin(LoadVariationRiskBalancing, args).resource_score(load, np.array([request_]))
    assert found.tolist() == pytest.approx([expected])


def test_the_resource_with_the_higher_risk_counts() -> None:
    pod = make_pod("p", cpu="1", memory="5Gi")
    assert decided(LoadVariationRiskBalancing, {"a": 0.2, "b": 0.4}, pod) == {"a": 65, "b": 55}


# Measurements


def make_metrics(name: str, cpu: str, at: datetime) -> NodeMetrics:
    usage: dict[str, str | int | float] = {"cpu": cpu, "memory": "1Gi"}
    return NodeMetrics(metadata=ObjectMeta(name=name, uid=f"m-{name}"), timestamp=at, usage=usage)


def test_a_scheduler_reads_metrics_server_in_the_background() -> None:
    async def main() -> tuple[str, str]:
        store = MemoryStore(clock=current_loop().wall_time)
        for name, cpu in (("busy", "3"), ("idle", "100m")):
            store.create(make_node(name, cpu="10"))
            store.create(make_metrics(name, cpu, datetime.fromtimestamp(current_loop().wall_time(), UTC)))
        scheduler = Scheduler(MemoryCluster(store), plugins=[TargetLoadPacking])
        running = asyncio.ensure_future(scheduler.run())
        store.create(make_pod("first", limits={"cpu": "500m"}))
        await quiescent()
        await asyncio.sleep(1)
        for number in range(3):
            store.create(make_pod(f"p{number}", limits={"cpu": "100m"}))
        await quiescent()
        running.cancel()
        pods = {pod.name: pod.spec.node_name for pod in store.list(Pod)}
        return pods["p0"], pods["p1"]

    assert run_virtual(main()) == ("busy", "busy")


def test_a_source_that_fails_or_hangs_delays_nothing(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0

    async def fetch() -> Mapping[str, Sample]:
        nonlocal calls
        calls += 1
        if calls > 2:
            await asyncio.sleep(10_000)
        raise ServerError("the server is not ready")

    async def main() -> None:
        handle = CoreHandle(Cluster())
        handle.now = lambda: current_loop().time()  # type: ignore[method-assign]
        usage = NodeUsage(handle, MetricProvider(), fetch)
        for _ in range(8):
            usage.refresh()
            await asyncio.sleep(31)

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert calls == 8
    assert len(caplog.records) == 1
    assert "cannot read the usage of nodes: ServerError" in caplog.text


def test_prometheus() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer secret"
        share = "0.25" if "cpu" in request.query["query"] else "0.5"
        result = [
            {"metric": {"instance": "a:9100"}, "value": [1.0, share]},
            {"metric": {"instance": "x:1", "node": "b"}, "value": [1.0, share]},
            {"metric": {"instance": "c"}, "value": [1.0, "NaN"]},
            {"metric": {}, "value": [1.0, "1"]},
        ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    assert asyncio.run(prometheus(answer)) == {
        "a": {"cpu": 0.25, "memory": 0.5},
        "b": {"cpu": 0.25, "memory": 0.5},
    }


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (503, b"not now"),
        (200, b"no json"),
        (200, b'{"status": "error", "error": "bad query"}'),
        (200, b'{"status": "success", "data": {"result": [{"value": ["x", "y"]}]}}'),
    ],
)
def test_a_wrong_answer_of_prometheus_is_an_error(status: int, body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    with pytest.raises((ValueError, msgspec.DecodeError)):
        asyncio.run(prometheus(answer))


async def prometheus(answer: Any) -> dict[str, dict[str, float]]:
    application = web.Application()
    application.router.add_get("/api/v1/query", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        (address,) = runner.addresses
        import tempfile

        with tempfile.NamedTemporaryFile("w", suffix=".token") as token:
            token.write("secret\n")
            token.flush()
            provider = MetricProvider(
                type=PROMETHEUS, address=f"http://127.0.0.1:{address[1]}/", token_file=token.name
            )
            found = await NodeUsage(CoreHandle(Cluster()), provider)._from_prometheus()
        return {name: sample.amounts for name, sample in found.items()}
    finally:
        await runner.cleanup()


# Arguments


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (TargetLoadPackingArgs(target_utilization=0), "targetUtilization: Invalid value: 0"),
        (TargetLoadPackingArgs(default_requests_multiplier="much"), "defaultRequestsMultiplier"),
        (TargetLoadPackingArgs(metric_provider=MetricProvider(type="SignalFx")), "Unsupported value"),
        (TargetLoadPackingArgs(metric_provider=MetricProvider(type=PROMETHEUS)), "address: Required value"),
        (
            TargetLoadPackingArgs(metric_provider=MetricProvider(type=PROMETHEUS, address="prometheus:9090")),
            "must begin with http://",
        ),
        (LoadVariationRiskBalancingArgs(safe_variance_margin=-1), "safeVarianceMargin"),
        (LoadVariationRiskBalancingArgs(safe_variance_sensitivity=-1), "safeVarianceSensitivity"),
    ],
)
def test_arguments_are_validated(args: TargetLoadPackingArgs, problem: str) -> None:
    assert [problem in str(error) for error in args.validate("", frozenset())] == [True]


def test_metrics_are_decoded() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    text = b'{"metadata": {"name": "n"}, "timestamp": "2026-01-01T12:00:00Z", "usage": {"cpu": "12345678n"}}'
    found = msgspec.json.decode(text, type=NodeMetrics)
    assert (found.name, found.timestamp, found.usage) == ("n", noon, {"cpu": "12345678n"})
