"""Writes the Grafana dashboard and the Prometheus rules of `deploy/monitoring/`.

    python tools/monitoring.py [--check]

Both use metrics that kube-scheduler has under the same names, so they also fit a kube-scheduler; the
exceptions begin with `bayplan_`. `docs/runbook.md` says what each alert means and which command to run. Tests
compare: every metric exists in the output of a running scheduler, every alert has its section.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

MONITORING: Final = Path(__file__).parents[1] / "deploy" / "monitoring"
RUNBOOK: Final = "docs/runbook.md"


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule: if the expression has a value for so long, somebody should look."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart: lines by legend."""

    title: str
    lines: tuple[tuple[str, str], ...]
    """Expressions, and how each line is called."""
    unit: str = "short"
    note: str = ""
    height: int = 8
    width: int = 12


def quantile(of: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({of}, sum by ({labels}) (rate({metric}_bucket{{$scope}}[5m])))"


ALERTS: Final = (
    Alert(
        "SchedulerHasNoLeader",
        # Without series nothing is 0: replicas that are gone have none.
        "(max by (name) (max_over_time(leader_election_master_status{$scope}[1h]))"
        " unless max by (name) (leader_election_master_status{$scope}) == 1)"
        " or absent(leader_election_master_status{$scope})",
        "2m",
        "critical",
        "No replica holds the lease{{ with $labels.name }} {{ . }}{{ end }}, so no pod is scheduled",
    ),
    Alert(
        "SchedulerAttemptsFail",
        'sum by (profile) (rate(scheduler_schedule_attempts_total{$scope, result="error"}[5m])) > 0.05',
        "10m",
        "warning",
        "Scheduling attempts of profile {{ $labels.profile }} end in errors",
    ),
    Alert(
        "SchedulerBacklog",
        'sum(scheduler_pending_pods{$scope, queue="active"}) > 500',
        "10m",
        "warning",
        "{{ $value }} pods wait for their next attempt: the scheduler does not keep up",
    ),
    Alert(
        "SchedulerPodsUnschedulable",
        'sum(scheduler_pending_pods{$scope, queue="unschedulable"}) > 0',
        "30m",
        "info",
        "{{ $value }} pods fit on no node",
    ),
    Alert(
        "SchedulerSlowDecisions",
        quantile(0.99, "scheduler_scheduling_algorithm_duration_seconds") + " > 0.5",
        "10m",
        "warning",
        "One decision in a hundred takes longer than {{ $value | humanizeDuration }}",
    ),
    Alert(
        "SchedulerSlowPlugin",
        quantile(0.99, "scheduler_plugin_execution_duration_seconds", "plugin, extension_point") + " > 0.1",
        "10m",
        "warning",
        "{{ $labels.plugin }} takes {{ $value | humanizeDuration }} at {{ $labels.extension_point }}",
    ),
    Alert(
        "SchedulerPodsWaitLong",
        quantile(0.9, "scheduler_pod_scheduling_sli_duration_seconds") + " > 60",
        "15m",
        "warning",
        "One pod in ten waits longer than {{ $value | humanizeDuration }} for its node",
    ),
    Alert(
        "SchedulerApiErrors",
        'sum by (code) (rate(rest_client_requests_total{$scope, code=~"5..|429|<error>"}[5m])) > 0.1',
        "10m",
        "warning",
        "The API server answers requests of the scheduler with {{ $labels.code }}",
    ),
    Alert(
        "SchedulerThrottled",
        quantile(0.99, "rest_client_rate_limiter_duration_seconds") + " > 1",
        "10m",
        "warning",
        "Requests to the API server wait {{ $value | humanizeDuration }} for clientConnection.qps",
    ),
    Alert(
        "SchedulerUnreadableObjects",
        "sum by (kind) (bayplan_unreadable_objects{$scope}) > 0",
        "5m",
        "warning",
        "{{ $value }} objects of kind {{ $labels.kind }} cannot be read and are ignored",
    ),
)

ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Pods",
        (
            Panel(
                "Attempts",
                (("sum by (result) (rate(scheduler_schedule_attempts_total{$scope}[5m]))", "{{result}}"),),
                "ops",
                "scheduled: bound; unschedulable: no node fits; error: the attempt failed",
            ),
            Panel(
                "Pending pods",
                (("sum by (queue) (scheduler_pending_pods{$scope})", "{{queue}}"),),
                note="active: waits for an attempt; unschedulable: waits for a change; gated: held by a gate",
            ),
            Panel(
                "Time until a pod has its node",
                tuple(
                    (quantile(of, "scheduler_pod_scheduling_sli_duration_seconds"), f"p{100 * of:g}")
                    for of in (0.5, 0.9, 0.99)
                ),
                "s",
                "From the first attempt to the binding",
            ),
            Panel(
                "Unschedulable pods by plugin",
                (("sum by (plugin) (scheduler_unschedulable_pods{$scope})", "{{plugin}}"),),
                note="The plugins that rejected them; `bayplan explain pod` says why",
            ),
        ),
    ),
    (
        "Decisions",
        (
            Panel(
                "Time of a decision",
                tuple(
                    (quantile(of, "scheduler_scheduling_algorithm_duration_seconds"), f"p{100 * of:g}")
                    for of in (0.5, 0.9, 0.99)
                ),
                "s",
            ),
            Panel(
                "Time of an attempt, binding included",
                (
                    (
                        quantile(0.99, "scheduler_scheduling_attempt_duration_seconds", "result"),
                        "p99 {{result}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Time by extension point (p99)",
                (
                    (
                        quantile(
                            0.99, "scheduler_framework_extension_point_duration_seconds", "extension_point"
                        ),
                        "{{extension_point}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Time by plugin (p99)",
                ((quantile(0.99, "scheduler_plugin_execution_duration_seconds", "plugin"), "{{plugin}}"),),
                "s",
            ),
        ),
    ),
    (
        "Preemption and queue",
        (
            Panel(
                "Preemption",
                (
                    ("sum(rate(scheduler_preemption_attempts_total{$scope}[5m]))", "attempts"),
                    ("sum(rate(scheduler_preemption_victims_sum{$scope}[5m]))", "victims"),
                ),
                "ops",
            ),
            Panel(
                "Pods added to a queue, by event",
                (
                    (
                        "sum by (queue, event) (rate(scheduler_queue_incoming_pods_total{$scope}[5m]))",
                        "{{queue}} {{event}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "Wait at Permit (p99)",
                ((quantile(0.99, "scheduler_permit_wait_duration_seconds", "result"), "{{result}}"),),
                "s",
            ),
            Panel("Cache", (("sum by (type) (scheduler_cache_size{$scope})", "{{type}}"),)),
        ),
    ),
    (
        "Process",
        (
            Panel(
                "Requests to the API server",
                (
                    (
                        "sum by (method, code) (rate(rest_client_requests_total{$scope}[5m]))",
                        "{{method}} {{code}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "CPU",
                (("rate(process_cpu_seconds_total{$scope}[5m])", "{{instance}}"),),
                note="In cores; the scheduler uses one",
            ),
            Panel("Memory", (("process_resident_memory_bytes{$scope}", "{{instance}}"),), "bytes"),
            Panel(
                "Leader",
                (("leader_election_master_status{$scope}", "{{instance}}"),),
                note="1: this replica schedules",
            ),
        ),
    ),
)

RULE_SCOPE: Final = 'job=~".*(bayplan|kube-scheduler).*"'
DASHBOARD_SCOPE: Final = 'job=~"$job", instance=~"$instance"'


def scoped(expression: str, scope: str) -> str:
    return expression.replace("$scope", scope)


def rules() -> str:
    """Rules as a file of Prometheus; the chart and docs say how to load it."""
    group = {
        "name": "bayplan",
        "rules": [
            {
                "alert": alert.name,
                "expr": scoped(alert.expression, RULE_SCOPE),
                "for": alert.lasts,
                "labels": {"severity": alert.severity},
                "annotations": {"summary": alert.summary, "runbook": f"{RUNBOOK}#{alert.name.lower()}"},
            }
            for alert in ALERTS
        ],
    }
    head = (
        "# Written by tools/monitoring.py. For Prometheus: rule_files; docs/runbook.md explains each alert.\n"
    )
    return head + yaml.safe_dump({"groups": [group]}, sort_keys=False, width=110)


def dashboard() -> str:
    """A dashboard to be imported into Grafana, which asks for the data source."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, charts in ROWS:
        panels.append(
            {"type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": []}
        )
        top += 1
        for number, panel in enumerate(charts):
            left = (number % 2) * 12
            panels.append(_chart(panel, left, top + (number // 2) * panel.height))
        top += ((len(charts) + 1) // 2) * charts[0].height
    for number, drawn in enumerate(panels, start=1):
        drawn["id"] = number
    made = {
        "title": "bayplan",
        "uid": "bayplan",
        "tags": ["kubernetes", "scheduler"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
                _variable("job", "scheduler_pending_pods", "Job"),
                _variable("instance", 'scheduler_pending_pods{job=~"$job"}', "Instance"),
            ]
        },
        "panels": panels,
    }
    return json.dumps(made, indent=1) + "\n"


def _variable(name: str, metric: str, label: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values({metric}, {name})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _chart(panel: Panel, left: int, top: int) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.note,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"]}
        },
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "expr": scoped(expression, DASHBOARD_SCOPE),
                "legendFormat": legend,
            }
            for number, (expression, legend) in enumerate(panel.lines)
        ],
    }


def metric_names() -> frozenset[str]:
    """Every metric that the rules and the dashboard read."""
    expressions = [alert.expression for alert in ALERTS]
    expressions += [line for _, panels in ROWS for panel in panels for line, _ in panel.lines]
    found = {name for expression in expressions for name in re.findall(r"(\w+)\{", expression)}
    return frozenset(re.sub(r"_(bucket|sum)$", "", name) for name in found)


def files() -> dict[Path, str]:
    return {MONITORING / "dashboard.json": dashboard(), MONITORING / "rules.yaml": rules()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write deploy/monitoring.")
    parser.add_argument("--check", action="store_true", help="only say which files are not up to date")
    check = parser.parse_args().check
    stale = {path: text for path, text in files().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(f"{'not up to date' if check else 'written'}: {path.relative_to(MONITORING.parents[1])}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
