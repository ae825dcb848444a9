"""Rules and dashboard, read and evaluated by Prometheus' own packages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from conformance.harness.programs import obtain_promrules
from tests.deploy.manifests import DEPLOY
from tools import monitoring

MONITORING = DEPLOY / "monitoring"


@pytest.fixture(scope="module")
def promrules() -> Path:
    return obtain_promrules()


def problems(promrules: Path, *files: Path, given: str | None = None) -> str:
    ended = subprocess.run([promrules, *files], input=given, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) == (not ended.stdout), ended.stderr
    return ended.stdout


def test_the_rules_are_valid(promrules: Path) -> None:
    assert problems(promrules, MONITORING / "rules.yaml") == ""


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("for: 2m", "for: two minutes", "not a valid duration string"),
        ("(max by", "((max by", "parse error"),
        ("{{ $labels.profile }}", "{{ $labels.profile }", 'unexpected "}" in operand'),
    ],
)
def test_a_mistake_in_a_rule_is_found(
    promrules: Path, tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    text = (MONITORING / "rules.yaml").read_text()
    assert right in text
    (tmp_path / "rules.yaml").write_text(text.replace(right, wrong, 1))
    assert said in problems(promrules, tmp_path / "rules.yaml")


def test_the_expressions_of_the_dashboard_are_valid(promrules: Path) -> None:
    """Variables of Grafana are within strings, where Prometheus does not look at them."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    expressions = [one["expr"] for panel in panels for one in panel.get("targets", ())]
    assert expressions
    assert problems(promrules, given="\n".join(expressions)) == ""
    assert "parse error" in problems(promrules, given=expressions[0][:-1])


LEADER = 'leader_election_master_status{job="bayplan", name="bayplan", pod="a"}'


def counter(metric: str, each_minute: float, labels: str = "") -> str:
    return f'{metric}{{job="bayplan"{labels}}} 0+{each_minute}x60'


def durations(metric: str, seconds: float, labels: str = "") -> str:
    """A histogram of which every value is between this bound and the one before."""
    bounds = ("0.001", "0.1", "0.5", "1", "10", "60", "120", "+Inf")
    return "\n".join(
        counter(f"{metric}_bucket", 60 if float(bound) >= seconds else 0, f', le="{bound}"{labels}')
        for bound in bounds
    )


def gauge(metric: str, value: float, labels: str = "") -> str:
    return f'{metric}{{job="bayplan"{labels}}} {value}x60'


HEALTHY = {
    "leader": f"{LEADER} 1x60",
    "attempts": counter("scheduler_schedule_attempts_total", 600, ', profile="p", result="scheduled"'),
    "errors": counter("scheduler_schedule_attempts_total", 1, ', profile="p", result="error"'),
    "active": gauge("scheduler_pending_pods", 500, ', queue="active"'),
    "unschedulable": gauge("scheduler_pending_pods", 0, ', queue="unschedulable"'),
    "decisions": durations("scheduler_scheduling_algorithm_duration_seconds", 0.1),
    "plugins": durations("scheduler_plugin_execution_duration_seconds", 0.001, ', plugin="Fit"'),
    "waits": durations("scheduler_pod_scheduling_sli_duration_seconds", 10),
    "requests": counter("rest_client_requests_total", 600, ', code="201"'),
    "failures": counter("rest_client_requests_total", 1, ', code="500"'),
    "limiter": durations("rest_client_rate_limiter_duration_seconds", 0.5),
    "unreadable": gauge("bayplan_unreadable_objects", 0, ', kind="Pod"'),
}


def firing(promrules: Path, series: dict[str, str], after: str = "1h") -> list[str]:
    text = "\n".join(["load 1m", *"\n".join(series.values()).splitlines()]).replace("\n", "\n  ")
    ended = subprocess.run(
        [promrules, "-fire", after, MONITORING / "rules.yaml"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def test_no_alert_fires_for_a_healthy_scheduler(promrules: Path) -> None:
    """Just below the limits."""
    assert firing(promrules, HEALTHY) == []


@pytest.mark.parametrize(
    ("series", "fires"),
    [
        pytest.param(
            {"leader": f"{LEADER} 1x30 0x29"},
            "SchedulerHasNoLeader: No replica holds the lease bayplan, so no pod is scheduled",
            id="no replica leads",
        ),
        pytest.param(
            {
                "leader": f"{LEADER} 1x30 stale",
                "other": 'leader_election_master_status{job="kube-scheduler", name="kube-scheduler"} 1x60',
            },
            "SchedulerHasNoLeader: No replica holds the lease bayplan, so no pod is scheduled",
            id="all replicas are gone, kube-scheduler is there",
        ),
        pytest.param(
            {"leader": ""},
            "SchedulerHasNoLeader: No replica holds the lease, so no pod is scheduled",
            id="there never was a replica",
        ),
        pytest.param(
            {"errors": counter("scheduler_schedule_attempts_total", 6, ', profile="p", result="error"')},
            "SchedulerAttemptsFail: Scheduling attempts of profile p end in errors",
            id="errors",
        ),
        pytest.param(
            {"active": gauge("scheduler_pending_pods", 501, ', queue="active"')},
            "SchedulerBacklog: 501 pods wait for their next attempt: the scheduler does not keep up",
            id="backlog",
        ),
        pytest.param(
            {"unschedulable": gauge("scheduler_pending_pods", 3, ', queue="unschedulable"')},
            "SchedulerPodsUnschedulable: 3 pods fit on no node",
            id="unschedulable pods",
        ),
        pytest.param(
            {"decisions": durations("scheduler_scheduling_algorithm_duration_seconds", 1)},
            "SchedulerSlowDecisions: One decision in a hundred takes longer than 995ms",
            id="slow decisions",
        ),
        pytest.param(
            {
                "plugins": durations(
                    "scheduler_plugin_execution_duration_seconds",
                    0.5,
                    ', plugin="Mine", extension_point="Filter"',
                )
            },
            "SchedulerSlowPlugin: Mine takes 496ms at Filter",
            id="slow plugin",
        ),
        pytest.param(
            {"waits": durations("scheduler_pod_scheduling_sli_duration_seconds", 120)},
            "SchedulerPodsWaitLong: One pod in ten waits longer than 1m 54s for its node",
            id="pods wait",
        ),
        pytest.param(
            {"failures": counter("rest_client_requests_total", 12, ', code="429"')},
            "SchedulerApiErrors: The API server answers requests of the scheduler with 429",
            id="API errors",
        ),
        pytest.param(
            {"limiter": durations("rest_client_rate_limiter_duration_seconds", 10)},
            "SchedulerThrottled: Requests to the API server wait 9.91s for clientConnection.qps",
            id="throttled",
        ),
        pytest.param(
            {"unreadable": gauge("bayplan_unreadable_objects", 2, ', kind="Pod"')},
            "SchedulerUnreadableObjects: 2 objects of kind Pod cannot be read and are ignored",
            id="unreadable objects",
        ),
    ],
)
def test_an_alert_fires(promrules: Path, series: dict[str, str], fires: str) -> None:
    assert firing(promrules, HEALTHY | series) == [fires]


def test_every_alert_is_tested() -> None:
    (marker,) = (mark for mark in test_an_alert_fires.pytestmark if mark.name == "parametrize")  # type: ignore[attr-defined]
    tested = {case.values[1].partition(":")[0] for case in marker.args[1]}
    assert tested == {alert.name for alert in monitoring.ALERTS}


def test_a_short_disturbance_fires_nothing(promrules: Path) -> None:
    """A change of the leader, for example."""
    assert firing(promrules, HEALTHY | {"leader": f"{LEADER} 1x58 0x1"}) == []
