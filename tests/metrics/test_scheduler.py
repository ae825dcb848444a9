"""What the scheduler reports is what a scrape shows."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable

import pytest

from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.framework.points import Point
from bayplan.framework.status import Code
from bayplan.metrics import NULL_METRICS, Metrics, SchedulerMetrics
from bayplan.metrics.instruments import MAX_PENDING, Histogram
from bayplan.metrics.scheduler import PAUSES_BETWEEN_FLUSHES

from .scrape import values

DEFAULT = "default-scheduler"
Report = Callable[[Metrics], object]


def scrape(metrics: SchedulerMetrics, name: str) -> dict[tuple[str, ...], float]:
    """The series of one name that are not 0."""
    prefix = "" if name.startswith("dynamic_") else "scheduler_"
    found = values(metrics.exposition().decode(), prefix + name)
    return {labels: value for labels, value in found.items() if value}


@pytest.mark.parametrize(
    ("report", "name", "expected"),
    [
        pytest.param(
            lambda m: m.attempt("unschedulable", DEFAULT, 0.003),
            "schedule_attempts_total",
            {(DEFAULT, "unschedulable"): 1},
            id="an attempt is counted by its result",
        ),
        pytest.param(
            lambda m: m.pod_scheduled(DEFAULT, 0.003, 1, 2.0),
            "schedule_attempts_total",
            {(DEFAULT, "scheduled"): 1},
            id="one that ended with a binding, too",
        ),
        pytest.param(
            lambda m: m.attempt("error", DEFAULT, 0.003),
            "scheduling_attempt_duration_seconds_sum",
            {(DEFAULT, "error"): 0.003},
            id="an attempt's duration is labelled with its result",
        ),
        pytest.param(
            lambda m: m.algorithm(0.5),
            "scheduling_algorithm_duration_seconds_sum",
            {(): 0.5},
            id="choosing a node has no labels",
        ),
        pytest.param(
            lambda m: m.pod_scheduled(DEFAULT, 0.003, 14, 2.0),
            "pod_scheduling_sli_duration_seconds_sum",
            {("14",): 2.0},
            id="fourteen attempts have their own bucket",
        ),
        pytest.param(
            lambda m: m.pod_scheduled(DEFAULT, 0.003, 15, 2.0),
            "pod_scheduling_sli_duration_seconds_sum",
            {("15+",): 2.0},
            id="fifteen attempts and more are not",
        ),
        pytest.param(
            lambda m: m.pod_scheduled(DEFAULT, 0.003, 300, 2.0),
            "pod_scheduling_attempts_sum",
            {(): 300},
            id="the number of attempts is exact in its own metric",
        ),
        pytest.param(
            lambda m: m.preemption_attempt("Success", 0.5),
            "preemption_attempts_total",
            {(): 1},
            id="a preemption is counted when it is tried",
        ),
        pytest.param(
            lambda m: m.preemption(3), "preemption_victims_sum", {(): 3}, id="its victims are counted"
        ),
        pytest.param(
            lambda m: m.preemption_task_ended("pod", "error", 0.5),
            "preemption_goroutines_execution_total",
            {("error",): 1},
            id="a task that evicts is counted by its result",
        ),
        pytest.param(
            lambda m: m.queue_incoming("backoff", "NodeAdd", as_decided=True),
            "queue_incoming_pods_total",
            {("NodeAdd", "backoff"): 1},
            id="a pod is added to a queue by an event",
        ),
        pytest.param(
            lambda m: [
                m.queue_incoming("active", "NodeAdd", as_decided=as_decided) for as_decided in (True, False)
            ],
            "queue_incoming_entities_total",
            {("NodeAdd", "active", "pod"): 1},
            id="an entity counts where it is not in the queue that was decided on",
        ),
        pytest.param(
            lambda m: m.queued_entities_from(lambda: {("active", "pod"): 0, ("gated", "podgroup"): 2}),
            "queued_entities",
            {("gated", "podgroup"): 2},
            id="an entity has a series when it is in a queue",
        ),
        pytest.param(
            lambda m: [m.unschedulable_pods("NodeName", DEFAULT, delta) for delta in (2, -1)],
            "unschedulable_pods",
            {("NodeName", DEFAULT): 1},
            id="rejected pods are added and removed",
        ),
        pytest.param(
            lambda m: m.event_handled("NodeAdd", 0.25),
            "event_handling_duration_seconds_sum",
            {("NodeAdd",): 0.25},
            id="an event by its label",
        ),
        pytest.param(
            lambda m: m.hint("NodeName", "NodeAdd", "QueueSkip", 0.25),
            "queueing_hint_execution_duration_seconds_sum",
            {("NodeAdd", "QueueSkip", "NodeName"): 0.25},
            id="a hint by plugin, event and verdict",
        ),
        pytest.param(
            lambda m: m.extension_point(DEFAULT, Point.RESERVE, Code.UNRESOLVABLE)(0.25),
            "framework_extension_point_duration_seconds_sum",
            {("Reserve", DEFAULT, "UnschedulableAndUnresolvable"): 0.25},
            id="a point carries the code's name",
        ),
        pytest.param(
            lambda m: m.extension_point(DEFAULT, "PreBindPreFlight", Code.SKIP)(0.25),
            "framework_extension_point_duration_seconds_sum",
            {("PreBindPreFlight", DEFAULT, "Skip"): 0.25},
            id="a point may be a text",
        ),
        pytest.param(
            lambda m: m.plugin_duration("NodeName", Point.FILTER, Code.SUCCESS)(0.25),
            "plugin_execution_duration_seconds_sum",
            {("Filter", "NodeName", "Success"): 0.25},
            id="one plugin at one point",
        ),
        pytest.param(
            lambda m: m.permit_wait(Code.UNSCHEDULABLE, 12.0),
            "permit_wait_duration_seconds_sum",
            {("Unschedulable",): 12.0},
            id="a wait at Permit by what ended it",
        ),
        pytest.param(
            lambda m: m.running_from(lambda: {"binding": 3}),
            "goroutines",
            {("binding",): 3},
            id="and tasks under way",
        ),
        pytest.param(
            lambda m: m.claim_created("failure"),
            "dynamic_resource_allocation_resourceclaim_creates_total",
            {("false", "", "Pod", "failure"): 1},
            id="claims for extended resources",
        ),
        pytest.param(
            lambda m: m.binding_conditions(DEFAULT, "gpu.example.com", "timeout", 600.0),
            "dra_bindingconditions_wait_duration_seconds_sum",
            {("gpu.example.com", DEFAULT, "timeout"): 600.0},
            id="conditions of devices",
        ),
        pytest.param(
            lambda m: m.volume_error("bind"),
            "volume_scheduling_stage_error_total",
            {("bind",): 1},
            id="errors of volumes by stage",
        ),
        pytest.param(
            lambda m: m.pending_pods_from(lambda: {"active": 7, "gated": 2}),
            "pending_pods",
            {("active",): 7, ("gated",): 2},
            id="waiting pods are counted on scrape",
        ),
        pytest.param(
            lambda m: m.cache_size_from(lambda: {"nodes": 5, "pods": 3, "assumed_pods": 1}),
            "cache_size",
            {("nodes",): 5, ("pods",): 3, ("assumed_pods",): 1},
            id="and so is the cache",
        ),
        pytest.param(
            lambda m: m.inflight_events_from(lambda: {"PodPopped": 1}),
            "inflight_events",
            {("PodPopped",): 1},
            id="and what is in flight",
        ),
    ],
)
def test_what_is_reported_is_shown(report: Report, name: str, expected: dict[tuple[str, ...], float]) -> None:
    metrics = SchedulerMetrics(random.Random(1), release=V1_37)
    report(metrics)
    assert scrape(metrics, name) == expected


@pytest.mark.parametrize(
    ("release", "counted"), [(V1_36, {("success",): 1}), (V1_37, {("error",): 1})], ids=str
)
def test_v1_36_counts_the_tasks_that_evict_when_they_start(
    release: Release, counted: dict[tuple[str, ...], float]
) -> None:
    metrics = SchedulerMetrics(random.Random(1), release=release)
    metrics.preemption_task_started()
    metrics.preemption_task_ended("pod", "error", 0.5)
    assert scrape(metrics, "preemption_goroutines_execution_total") == counted


def test_what_a_release_has_no_metric_for_is_not_shown() -> None:
    metrics = SchedulerMetrics(random.Random(1), release=V1_36)
    metrics.claim_created("success")
    metrics.queue_incoming("active", "NodeAdd", as_decided=False)
    metrics.declare_informer("apps", "v1", "ReplicaSet", lambda: "7")(0.1)
    assert scrape(metrics, "resourceclaim_creates_total") == {("success",): 1}
    text = metrics.exposition().decode()
    assert not any(word in text for word in ("entities", "informer", "dynamic_resource"))


@pytest.mark.parametrize(
    ("version", "shown"), [("", 0), ("41", 41), ("12345678901234567", 345678901234567), ("none", 0)]
)
def test_an_informer_shows_its_version_and_the_time_to_handle_changes(version: str, shown: float) -> None:
    metrics = SchedulerMetrics(random.Random(1), release=V1_37)
    observe = metrics.declare_informer("storage.k8s.io", "v1", "StorageClass", lambda: version)
    observe(0.25)
    text = metrics.exposition().decode()
    labels = ("storage.k8s.io", "kube-scheduler", "storageclasss", "v1")
    assert values(text, "informer_store_resource_version") == {labels: shown}
    assert values(text, "informer_queued_items") == {labels: 0}
    assert values(text, "informer_processing_latency_seconds_sum") == {labels: 0.25}


def test_a_value_on_a_bound_falls_into_the_bucket_of_that_bound() -> None:
    metrics = SchedulerMetrics(random.Random(1))
    for victims in (1, 2, 3, 64, 65):
        metrics.preemption(victims)
    counts = [1, 2, 3, 3, 3, 3, 4, 5]
    shown = values(metrics.exposition().decode(), "scheduler_preemption_victims_bucket")
    assert list(shown.values()) == counts


def test_one_addition_counts_all_evaluated_plugins() -> None:
    metrics = SchedulerMetrics(random.Random(1))
    identical = metrics.evaluations(
        DEFAULT, {Point.FILTER: ("NodeName", "NodePorts"), Point.SCORE: ["NodePorts"]}
    )
    identical.inc()
    identical.inc()
    metrics.exposition()
    identical.inc()
    metrics.evaluations(DEFAULT, {Point.FILTER: ("NodeName",)}).inc()
    assert scrape(metrics, "plugin_evaluation_total") == {
        ("Filter", "NodeName", DEFAULT): 4,
        ("Filter", "NodePorts", DEFAULT): 3,
        ("Score", "NodePorts", DEFAULT): 3,
    }


def test_the_same_plugins_share_one_counter() -> None:
    metrics = SchedulerMetrics(random.Random(1))
    first = metrics.evaluations(DEFAULT, {Point.FILTER: ("a", "b")})
    assert metrics.evaluations(DEFAULT, {Point.FILTER: ["b", "a"]}) is first


def test_a_queue_that_is_no_longer_reported_is_empty() -> None:
    lengths = {"active": 7}
    metrics = SchedulerMetrics(random.Random(1))
    metrics.inflight_events_from(lambda: lengths)
    metrics.exposition()
    del lengths["active"]
    assert values(metrics.exposition().decode(), "scheduler_inflight_events") == {("active",): 0}


def test_a_reset_zeroes_counters_and_leaves_gauges() -> None:
    metrics = SchedulerMetrics(random.Random(1))
    identical = metrics.evaluations(DEFAULT, {Point.FILTER: ("NodeName",)})
    identical.inc()
    metrics.attempt("unschedulable", DEFAULT, 0.5)
    metrics.unschedulable_pods("NodeName", DEFAULT, 1)
    metrics.reset()
    identical.inc()
    metrics.unschedulable_pods("NodeName", DEFAULT, -1)
    metrics.attempt("error", DEFAULT, 0.5)
    assert (
        scrape(metrics, "schedule_attempts_total"),
        scrape(metrics, "scheduling_attempt_duration_seconds_sum"),
        scrape(metrics, "plugin_evaluation_total"),
        scrape(metrics, "unschedulable_pods"),
    ) == (
        {(DEFAULT, "error"): 1},
        {(DEFAULT, "error"): 0.5},
        {("Filter", "NodeName", DEFAULT): 1},
        {},
    )


@pytest.mark.parametrize(
    ("drawn", "cycles"),
    [
        pytest.param(0.0999, 0, id="below a tenth: the next"),
        pytest.param(0.1001, 1, id="above: the one after it"),
        pytest.param(0.99, 43, id="seldom it takes long"),
    ],
)
def test_one_cycle_in_ten_is_sampled(drawn: float, cycles: int) -> None:
    class Fixed(random.Random):
        def random(self) -> float:
            return drawn

    assert SchedulerMetrics(Fixed()).cycles_before_sample() == cycles


def test_pending_observations_are_counted_without_a_scrape() -> None:
    """A histogram that only collected them would fill the memory."""
    metrics = SchedulerMetrics(random.Random(1))
    note = metrics.extension_point(DEFAULT, Point.SCORE, Code.SUCCESS)
    (histogram,) = (f for f in metrics.families.all() if f.spec.name.endswith("algorithm_duration_seconds"))
    for _ in range(PAUSES_BETWEEN_FLUSHES):
        metrics.algorithm(0.5)
        note(1.0)
        metrics.flush()
    (point,) = (f for f in metrics.families.all() if f.spec.name.endswith("extension_point_duration_seconds"))
    assert (histogram[()].sum, point["Score", "Success", DEFAULT].sum) == (32.0, 64.0)


def test_observations_are_counted_in_a_process_that_schedules_nothing() -> None:
    histogram = Histogram((1.0,))
    for _ in range(MAX_PENDING):
        histogram.observe(0.5)
    assert histogram.counts == [MAX_PENDING, 0]


def test_a_code_and_its_text_are_one_series() -> None:
    metrics = SchedulerMetrics(random.Random(1))
    metrics.permit_wait(Code.SUCCESS, 1.0)
    metrics.permit_wait("Success", 2.0)
    assert scrape(metrics, "permit_wait_duration_seconds_sum") == {("Success",): 3.0}


def test_series_with_the_wrong_number_of_labels_are_rejected() -> None:
    from bayplan.metrics.families import QUEUE_INCOMING

    with pytest.raises(ValueError, match="scheduler_queue_incoming_pods_total has labels"):
        SchedulerMetrics(random.Random(1)).families[QUEUE_INCOMING][("active",)]


def test_scheduler_metrics_implement_every_method() -> None:
    methods = {
        name for name, _ in inspect.getmembers(Metrics, inspect.isfunction) if not name.startswith("_")
    }
    assert {name for name in methods if name not in SchedulerMetrics.__dict__} == set()


def test_the_default_records_nothing() -> None:
    NULL_METRICS.evaluations(DEFAULT, {Point.FILTER: ("NodeName",)}).inc()
    NULL_METRICS.extension_point(DEFAULT, Point.FILTER, Code.SUCCESS)(0.5)
    assert (NULL_METRICS.enabled, SchedulerMetrics.enabled) == (False, True)
