"""A scrape has kube-scheduler's names, types, labels and buckets."""

from __future__ import annotations

import random
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bayplan.config import build_profiles, default_config
from bayplan.metrics import SchedulerMetrics
from bayplan.metrics.text import escaped, go_float

from .scrape import Shape, live_shapes, shapes, values


def full_scrape() -> str:
    """A scrape in which every family has a series."""
    metrics = SchedulerMetrics(random.Random(1))
    for family in metrics.families.all():
        family[tuple(f"a {label}" for label in family.spec.labels)]
    return metrics.exposition().decode()


FULL = full_scrape()
SHAPES = shapes(FULL)

FAST = "0.0001 0.0002 0.0004 0.0008 0.0016 0.0032 0.0064 0.0128 0.0256 0.0512 0.1024 0.2048"
SLOW = "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192 16.384"
LONG = (
    "0.01 0.02 0.04 0.08 0.16 0.32 0.64 1.28 2.56 5.12 10.24 20.48 40.96 81.92 163.84 327.68 655.36 1310.72 "
    "2621.44 5242.88"
)
PLUGIN = (
    "1e-05 1.5000000000000002e-05 2.2500000000000005e-05 3.375000000000001e-05 5.062500000000001e-05 "
    "7.593750000000002e-05 0.00011390625000000003 0.00017085937500000006 0.0002562890625000001 "
    "0.00038443359375000017 0.0005766503906250003 0.0008649755859375004 0.0012974633789062506 "
    "0.0019461950683593758 0.0029192926025390638 0.004378938903808595 0.006568408355712893 "
    "0.009852612533569338 0.014778918800354007 0.02216837820053101"
)
HINT = "1e-05 2e-05 4e-05 8e-05 0.00016 0.00032 0.00064 0.00128 0.00256 0.00512 0.01024 0.02048"
DEVICES = "0.1 0.2 0.4 0.8 1.6 3.2 6.4 12.8 25.6 51.2 102.4 204.8 409.6 819.2"

SCHEDULER = [
    ("schedule_attempts_total", "counter", "STABLE", "result profile", ""),
    ("scheduling_attempt_duration_seconds", "histogram", "STABLE", "result profile", SLOW),
    ("scheduling_algorithm_duration_seconds", "histogram", "ALPHA", "", SLOW),
    ("pod_scheduling_sli_duration_seconds", "histogram", "BETA", "attempts", LONG),
    ("pod_scheduling_attempts", "histogram", "STABLE", "", "1 2 4 8 16"),
    ("pod_scheduled_after_flush_total", "counter", "ALPHA", "", ""),
    ("preemption_victims", "histogram", "STABLE", "", "1 2 4 8 16 32 64"),
    ("preemption_attempts_total", "counter", "STABLE", "", ""),
    ("pending_pods", "gauge", "STABLE", "queue", ""),
    ("queue_incoming_pods_total", "counter", "STABLE", "queue event", ""),
    ("unschedulable_pods", "gauge", "BETA", "plugin profile", ""),
    (
        "framework_extension_point_duration_seconds",
        "histogram",
        "STABLE",
        "extension_point status profile",
        FAST,
    ),
    ("plugin_execution_duration_seconds", "histogram", "ALPHA", "plugin extension_point status", PLUGIN),
    ("plugin_evaluation_total", "counter", "BETA", "plugin extension_point profile", ""),
    ("permit_wait_duration_seconds", "histogram", "BETA", "result", SLOW),
    ("event_handling_duration_seconds", "histogram", "ALPHA", "event", FAST),
    ("queueing_hint_execution_duration_seconds", "histogram", "ALPHA", "plugin event hint", PLUGIN),
    ("inflight_events", "gauge", "ALPHA", "event", ""),
    ("goroutines", "gauge", "BETA", "operation", ""),
    ("cache_size", "gauge", "ALPHA", "type", ""),
    ("preemption_goroutines_duration_seconds", "histogram", "ALPHA", "result", LONG),
    ("preemption_goroutines_execution_total", "counter", "ALPHA", "result", ""),
    ("batch_attempts_total", "counter", "ALPHA", "profile result", ""),
    ("batch_cache_flushed_total", "counter", "ALPHA", "profile reason", ""),
    ("get_node_hint_duration_seconds", "histogram", "ALPHA", "hinted profile", HINT),
    ("store_schedule_results_duration_seconds", "histogram", "ALPHA", "profile", HINT),
    ("resourceclaim_creates_total", "counter", "ALPHA", "status", ""),
    ("dra_bindingconditions_allocations_total", "counter", "ALPHA", "profile driver status", ""),
    ("dra_bindingconditions_wait_duration_seconds", "histogram", "ALPHA", "profile driver status", DEVICES),
    ("volume_binder_cache_requests_total", "counter", "ALPHA", "operation", ""),
    ("volume_scheduling_stage_error_total", "counter", "ALPHA", "operation", ""),
]


@pytest.mark.parametrize(
    ("name", "kind", "level", "labels", "bounds"), SCHEDULER, ids=[r[0] for r in SCHEDULER]
)
def test_the_scheduler_s_metrics_are_as_specified(
    name: str, kind: str, level: str, labels: str, bounds: str
) -> None:
    name = f"scheduler_{name}"
    bucket_texts = (*bounds.split(), "+Inf") if bounds else ()
    (help_text,) = re.findall(rf"^# HELP {name} (\S+) ", FULL, re.MULTILINE)
    assert (SHAPES[name], help_text) == (
        Shape(kind, frozenset(labels.split()), bucket_texts),
        f"[{level}]",
    )


def test_there_are_no_other_metrics_of_the_scheduler() -> None:
    listed = {f"scheduler_{row[0]}" for row in SCHEDULER}
    assert {name for name in SHAPES if name.startswith("scheduler_")} == listed


@pytest.mark.parametrize(("name", "shape"), live_shapes().items(), ids=list(live_shapes()))
def test_every_metric_of_a_live_kube_scheduler_is_there_in_the_same_form(name: str, shape: Shape) -> None:
    assert SHAPES.get(name) == shape


def test_all_but_the_operating_system_s_say_how_stable_they_are() -> None:
    helps = re.findall(r"^# HELP (\S+) (.*)", FULL, re.MULTILINE)
    unclear = [name for name, text in helps if not re.match(r"\[(ALPHA|BETA|STABLE)\] [A-Z]", text)]
    assert unclear == [name for name, _ in helps if name.startswith("process_")]


def test_families_come_by_name() -> None:
    names = re.findall(r"^# TYPE (\S+)", FULL, re.MULTILINE)
    assert names == sorted(names)


def idle() -> SchedulerMetrics:
    metrics = SchedulerMetrics(random.Random(1))
    (plan,) = build_profiles(default_config())
    metrics.declare_profile(plan.scheduler_name, plan.plugins)
    return metrics


def test_an_idle_scheduler_shows_what_has_no_labels_and_what_it_could_count() -> None:
    """Families that others fill (the client, the elector, watches) show nothing before they do."""
    filled_later = {
        *("kubernetes_build_info", "kubernetes_feature_enabled", "version_info"),
        *(
            "leader_election_master_status",
            "scheduler_cache_size",
            "scheduler_event_handling_duration_seconds",
        ),
    }
    live = {
        name
        for name, shape in live_shapes().items()
        if name not in filled_later and not (shape.labels and name.startswith(("rest_client", "workqueue")))
    }
    batching = {
        *("scheduler_batch_attempts_total", "scheduler_batch_cache_flushed_total"),
        *("scheduler_get_node_hint_duration_seconds", "scheduler_store_schedule_results_duration_seconds"),
    }
    assert shapes(idle().exposition().decode()).keys() == live | batching


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "scheduler_pending_pods",
            {("active",): 0.0, ("backoff",): 0.0, ("gated",): 0.0, ("unschedulable",): 0.0},
        ),
        ("scheduler_pod_scheduled_after_flush_total", {(): 0.0}),
        ("scheduler_preemption_attempts_total", {(): 0.0}),
        ("scheduler_pod_scheduling_attempts_count", {(): 0.0}),
        ("rest_client_exec_plugin_ttl_seconds", {(): float("inf")}),
    ],
)
def test_series_that_are_there_from_the_start(name: str, expected: dict[tuple[str, ...], float]) -> None:
    assert values(idle().exposition().decode(), name) == expected


def test_every_plugin_has_a_series_at_each_of_its_points_from_the_start() -> None:
    (plan,) = build_profiles(default_config())
    expected = {
        (str(point), plugin, "default-scheduler"): 0.0
        for point, plugins in plan.plugins.items()
        if point in ("PreFilter", "Filter", "PreScore", "Score")
        for plugin in plugins
    }
    assert values(idle().exposition().decode(), "scheduler_plugin_evaluation_total") == expected


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (0.1, "0.1"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (262144.0, "262144"),
        (999999.5, "999999.5"),
        (1000000.0, "1e+06"),
        (1048576.0, "1.048576e+06"),
        (-2592000.0, "-2.592e+06"),
        (1234567.25, "1.23456725e+06"),
        (124416000.0, "1.24416e+08"),
        (2.0**64, "1.8446744073709552e+19"),
    ],
)
def test_numbers_are_written_as_go_writes_them(number: float, text: str) -> None:
    assert go_float(number) == text


def test_label_values_survive_quotes_line_ends_and_backslashes() -> None:
    value = 'a "b"\n\\n'
    (family,) = text_string_to_metric_families(f'x{{y="{escaped(value)}"}} 1\n')
    assert family.samples[0].labels == {"y": value}
