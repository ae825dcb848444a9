"""Tables for `kubectl get`: the content of each cell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.embedded.server import kinds
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import BUILT_IN, Resource
from bayplan.embedded.server.tables.pod_rows import pod_status
from bayplan.embedded.server.tables.printer import Printer
from bayplan.embedded.server.tables.rows import at_path, human_duration

NOON = 1_800_000_000.0
CREATED = "2027-01-15T07:55:00Z"


def row(resource: Resource, *, wide: bool = False, **content: Any) -> dict[str, Any]:
    """The cells of an object by the names of their columns."""
    meta = {"name": "x", "namespace": "default", "creationTimestamp": CREATED, **content.pop("metadata", {})}
    body = msgspec.json.encode({"metadata": meta, **content})
    table = Printer(lambda: NOON).table(resource, [Document("default/x", 7, body)], "None")
    (only,) = table["rows"]
    columns = table["columnDefinitions"]
    assert len(columns) == len(only["cells"])
    return {
        column["name"]: cell
        for column, cell in zip(columns, only["cells"], strict=True)
        if wide or not column["priority"]
    }


@pytest.mark.parametrize("resource", BUILT_IN, ids=lambda resource: resource.full_name)
def test_every_kind_has_a_row(resource: Resource) -> None:
    """Even of an object with only a name."""
    cells = row(resource, wide=True)
    assert cells["Name"] == "x"


def test_a_selector_that_is_invalid_is_shown_as_such() -> None:
    """Selectors of stored kinds are not checked, and a list must not fail because of one."""
    expression = {"key": "a", "operator": "Near", "values": ["b"]}
    spec = {"podSelector": {"matchExpressions": [expression]}}
    policies = next(each for each in BUILT_IN if each.kind == "NetworkPolicy")
    assert row(policies, spec=spec)["Pod-Selector"] == "<error>"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (365 * 86400, "365d"),
        (730 * 86400, "2y"),
        (800 * 86400, "2y70d"),
        (3000 * 86400, "8y"),
    ],
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def waiting(reason: str) -> dict[str, Any]:
    return {"name": "c", "state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(
    ("pod", "shown"),
    [
        pytest.param({"status": {"phase": "Pending"}}, "Pending", id="its phase"),
        pytest.param(
            {
                "status": {
                    "phase": "Pending",
                    "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
                }
            },
            "SchedulingGated",
            id="that it is gated",
        ),
        pytest.param(
            {"metadata": {"deletionTimestamp": CREATED}, "status": {"phase": "Running"}},
            "Terminating",
            id="terminating",
        ),
        pytest.param(
            {"status": {"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff")]}},
            "CrashLoopBackOff",
            id="the reason that a container waits",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Succeeded",
                    "containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}],
                }
            },
            "ExitCode:0",
            id="how a container ended",
        ),
        pytest.param(
            {"status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted", id="the reason of the failure"
        ),
        pytest.param(
            {
                "spec": {"initContainers": [{"name": "i"}, {"name": "j"}]},
                "status": {
                    "phase": "Pending",
                    "initContainerStatuses": [{"name": "i", "state": {"running": {}}}],
                },
            },
            "Init:0/2",
            id="how far its initialisation is",
        ),
    ],
)
def test_the_status_of_a_pod_is_the_most_specific_reason(pod: dict[str, Any], shown: str) -> None:
    assert pod_status({"metadata": {}, **pod}) == shown


def test_a_pod_that_runs() -> None:
    ready = {"name": "c", "ready": True, "restartCount": 2, "state": {"running": {}}}
    status = {"phase": "Running", "podIPs": [{"ip": "10.1.0.1"}], "containerStatuses": [ready]}
    assert row(
        kinds.PODS, wide=True, spec={"containers": [{"name": "c"}], "nodeName": "n1"}, status=status
    ) == {
        "Name": "x",
        "Ready": "1/1",
        "Status": "Running",
        "Restarts": "2",
        "Age": "5m",
        "IP": "10.1.0.1",
        "Node": "n1",
        "Nominated Node": "<none>",
        "Readiness Gates": "<none>",
    }


def test_a_node_that_is_cordoned() -> None:
    labels = {"labels": {"node-role.kubernetes.io/control-plane": ""}}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.4"}}
    assert row(kinds.NODES, metadata=labels, spec={"unschedulable": True}, status=status) == {
        "Name": "x",
        "Status": "Ready,SchedulingDisabled",
        "Roles": "control-plane",
        "Age": "5m",
        "Version": "v1.36.4",
    }


def test_a_deployment() -> None:
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}}
    cells = row(kinds.DEPLOYMENTS, wide=True, spec=spec, status={"readyReplicas": 2, "updatedReplicas": 3})
    assert (cells["Ready"], cells["Up-to-date"], cells["Selector"]) == ("2/3", "3", "app=web")


def test_an_event_is_as_old_as_it_was_last_seen() -> None:
    event = {
        "involvedObject": {"kind": "Pod", "name": "p"},
        "eventTime": "2027-01-15T07:00:00.000000Z",
        "series": {"count": 4, "lastObservedTime": "2027-01-15T07:59:50.000000Z"},
        "reason": "FailedScheduling",
        "type": "Warning",
        "message": "no room",
        "reportingComponent": "default-scheduler",
    }
    cells = row(kinds.EVENTS, wide=True, **event)
    assert (cells["Last Seen"], cells["First Seen"], cells["Count"]) == ("10s", "60m", "4")
    assert (cells["Object"], cells["Source"]) == ("pod/p", "default-scheduler")


def test_custom_resources_bring_their_columns() -> None:
    resource = Resource(
        "gangs",
        "Gang",
        group="x.io",
        schema={},
        columns=(
            {"name": "Members", "type": "integer", "jsonPath": ".spec.minMember"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Missing", "type": "string", "jsonPath": ".spec.nothing"},
        ),
    )
    conditions = [{"type": "A", "status": "1"}, {"type": "Ready", "status": "True"}]
    cells = row(resource, spec={"minMember": 3}, status={"conditions": conditions})
    assert cells == {"Name": "x", "Members": 3, "Ready": "True", "Age": "5m", "Missing": None}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", 1),
        (".l[1]", "y"),
        (".l[-1]", "y"),
        (".l[*]", "x"),
        (".l[7]", None),
        (".a.nothing.more", None),
        (".c['d.e']", 2),
        (r".c.d\.e", 2),
    ],
)
def test_paths_of_columns(path: str, found: Any) -> None:
    assert at_path({"a": {"b": 1}, "l": ["x", "y"], "c": {"d.e": 2}}, path) == found
