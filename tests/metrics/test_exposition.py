"""A scrape has kube-scheduler's names, types, labels and buckets."""

from __future__ import annotations

import random
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bayplan.api.releases import RELEASES, V1_36, V1_37, Release
from bayplan.config import build_profiles, default_config
from bayplan.metrics import SchedulerMetrics
from bayplan.metrics.instruments import escaped, go_float

from .scrape import levels, listed, shapes, values


def full_scrape(release: Release, *, show_hidden: bool = False) -> str:
    """A scrape in which every family has a series."""
    metrics = SchedulerMetrics(random.Random(1), release=release, show_hidden=show_hidden)
    for family in metrics.families.all():
        family[tuple(f"a {label}" for label in family.spec.labels)]
    return metrics.exposition().decode()


by_release = pytest.mark.parametrize("release", RELEASES.values(), ids=str)


@by_release
def test_the_metrics_are_those_of_the_release(release: Release) -> None:
    """None is missing, none is extra, and types, labels, buckets and stability levels are the same."""
    text = full_scrape(release)
    stability = levels(text)
    shown = {name: (shape, stability[name]) for name, shape in shapes(text).items()}
    for name in [name for name in shown if name.startswith(("bayplan_", "yunikorn_", "volcano_"))]:
        del shown[name]
    assert shown == {name: (metric.shape, metric.level) for name, metric in listed(release).items()}


def test_a_deprecated_metric_is_shown_on_request() -> None:
    name = "scheduler_preemption_goroutines_duration_seconds"
    text = full_scrape(V1_37, show_hidden=True)
    assert f"# HELP {name} [ALPHA] (Deprecated since 1.37.0) " in text
    assert shapes(text).keys() - shapes(full_scrape(V1_37)).keys() == {name}
    assert shapes(text)[name] == listed(V1_36)[name].shape
    assert shapes(full_scrape(V1_36, show_hidden=True)) == shapes(full_scrape(V1_36))


def test_families_come_by_name() -> None:
    names = re.findall(r"^# TYPE (\S+)", full_scrape(V1_37), re.MULTILINE)
    assert names == sorted(names)


def idle(release: Release = V1_37) -> SchedulerMetrics:
    metrics = SchedulerMetrics(random.Random(1), release=release)
    (plan,) = build_profiles(default_config(release=release))
    metrics.declare_profile(plan.scheduler_name, plan.plugins)
    return metrics


@by_release
def test_an_idle_scheduler_shows_what_has_no_labels_and_what_it_could_count(release: Release) -> None:
    """Families that others fill (the client, the elector, watches) show nothing before they do."""
    filled_later = {
        *("kubernetes_build_info", "kubernetes_feature_enabled", "version_info"),
        *(
            "leader_election_master_status",
            "scheduler_cache_size",
            "scheduler_event_handling_duration_seconds",
        ),
    }
    others = ("rest_client", "workqueue", "informer")
    live = {
        name
        for name, metric in listed(release).items()
        if metric.is_idle
        and name not in filled_later
        and not (metric.shape.labels - {"result"} and name.startswith(others))
    }
    batching = {
        name
        for name in listed(release)
        if "_batch_" in name or "_node_hint_" in name or "_schedule_results_" in name
    }
    assert shapes(idle(release).exposition().decode()).keys() == live | batching


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
        ("rest_client_transport_create_calls_total", {("hit",): 0.0, ("miss",): 0.0}),
    ],
)
def test_series_that_are_there_from_the_start(name: str, expected: dict[tuple[str, ...], float]) -> None:
    assert values(idle().exposition().decode(), name) == expected


def test_every_plugin_has_a_series_at_each_of_its_points_from_the_start() -> None:
    (plan,) = build_profiles(default_config(release=V1_37))
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
