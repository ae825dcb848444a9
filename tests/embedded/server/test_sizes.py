"""Objects have a limited number of values, counted before anything is done with them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from bayplan.embedded.server import sizes
from bayplan.embedded.server.documents import DocumentStore
from bayplan.embedded.server.kinds import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
)
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.sizes import (
    LABELS_PER_RULE,
    MAX_CUSTOM_VALUES,
    MAX_NODE_RESOURCES,
    MAX_POD_VALUES,
    MAX_RULES,
    MAX_VALUES,
    check_json,
    check_values,
)
from bayplan.embedded.server.statuses import StatusError


@pytest.fixture
def api() -> ObjectAPI:
    api = ObjectAPI(DocumentStore(), clock=time.time)
    api.create(NAMESPACES, {"metadata": {"name": "default"}})
    return api


def labelled(count: int) -> dict[str, Any]:
    labels = {f"l{number}": "v" for number in range(count)}
    return {"metadata": {"name": "p", "labels": labels}}


@pytest.mark.parametrize(
    ("content", "count"),
    [
        ({}, 1),
        ({"a": 1, "b": "x"}, 3),
        ({"a": [1, 2, {"b": None}]}, 6),
        ({"metadata": {"name": "p", "managedFields": [{"a": "b"}]}}, 3),
    ],
)
def test_every_field_and_entry_is_a_value(
    content: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "MAX_VALUES", count)
    check_values(CONFIG_MAPS, content, status=False)
    monkeypatch.setattr(sizes, "MAX_VALUES", count - 1)
    with pytest.raises(StatusError, match="more than"):
        check_values(CONFIG_MAPS, content, status=False)


def test_an_object_with_too_many_values_is_rejected(api: ObjectAPI) -> None:
    api.create(CONFIG_MAPS, labelled(MAX_VALUES // 2), "default")
    for write in (api.create, api.update):
        with pytest.raises(StatusError, match="Request entity too large: more than 15000 values") as error:
            write(CONFIG_MAPS, labelled(MAX_VALUES), "default")
        assert error.value.code == 413
    with pytest.raises(StatusError, match="more than 15000 values"):
        api.patch(CONFIG_MAPS, "p", "default", labelled(MAX_VALUES))


def test_defaults_count(api: ObjectAPI) -> None:
    """Each of these containers has three values as it is sent, and seven as it is stored."""
    containers = [{"name": f"c{number}", "image": "i"} for number in range(MAX_POD_VALUES // 6)]
    with pytest.raises(StatusError, match="more than 5000 values in a Pod"):
        api.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": containers}}, "default")


def test_the_status_counts_by_itself(api: ObjectAPI) -> None:
    """A pod of many containers gets a status as large as its spec, and can still be labelled."""
    containers = [{"name": f"c{number}", "image": "i"} for number in range(MAX_POD_VALUES // 15)]
    api.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": containers}}, "default")
    statuses = [{"name": f"c{number}", "state": {}} for number in range(MAX_VALUES // 4)]
    api.patch(PODS, "p", "default", {"status": {"containerStatuses": statuses}}, subresource="status")
    labelled = api.patch(PODS, "p", "default", {"metadata": {"labels": {"a": "b"}}})
    assert len(labelled["status"]["containerStatuses"]) == len(statuses)
    with pytest.raises(StatusError, match="more than 15000 values in the status of a Pod"):
        api.patch(PODS, "p", "default", {"status": {"containerStatuses": statuses * 2}}, subresource="status")


TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
SPREAD = {**TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def affinity(kind: str, required: Any = None, preferred: Any = None) -> dict[str, Any]:
    both = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    return {"affinity": {kind: {name: value for name, value in both.items() if value is not None}}}


def expressions(count: int) -> list[dict[str, Any]]:
    return [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]


def resources(count: int) -> dict[str, Any]:
    limits = {f"example.com/r{number}": "1" for number in range(count)}
    return {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(lambda count: affinity("podAffinity", [TERM] * count), id="pod affinity"),
        pytest.param(
            lambda count: affinity("podAntiAffinity", None, [{"weight": 1, "podAffinityTerm": TERM}] * count),
            id="preferred pod anti-affinity",
        ),
        pytest.param(
            lambda count: {
                "topologySpreadConstraints": [
                    {**SPREAD, "topologyKey": f"z{number}"} for number in range(count)
                ]
            },
            id="spreading",
        ),
        pytest.param(
            lambda count: {"nodeSelector": {f"l{number}": "v" for number in range(count * LABELS_PER_RULE)}},
            id="node selector",
        ),
        pytest.param(
            lambda count: affinity(
                "nodeAffinity",
                {"nodeSelectorTerms": [{"matchExpressions": expressions((count - 1) * LABELS_PER_RULE)}]},
            ),
            id="expressions of node affinity",
        ),
        pytest.param(resources, id="resources"),
    ],
)
def test_a_pod_has_a_limited_number_of_rules(spec: Callable[[int], dict[str, Any]], api: ObjectAPI) -> None:
    """Each takes the scheduler much longer than another value, so they count by themselves."""
    for count, name in ((MAX_RULES, "allowed"), (MAX_RULES + 1, "rejected")):
        pod = {"containers": [{"name": "c", "image": "i"}], **spec(count)}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
        workload = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        for kind, content in ((PODS, pod), (DEPLOYMENTS, workload)):
            new = {"metadata": {"name": name}, "spec": content}
            if name == "allowed":
                api.create(kind, new, "default")
            else:
                with pytest.raises(StatusError, match=f"more than 100 rules for scheduling in a {kind.kind}"):
                    api.create(kind, new, "default")


def test_a_node_has_a_limited_number_of_resources(api: ObjectAPI) -> None:
    status = {"capacity": {f"example.com/r{number}": "1" for number in range(MAX_NODE_RESOURCES + 1)}}
    with pytest.raises(StatusError, match="more than 1000 resources of a Node"):
        api.create(NODES, {"metadata": {"name": "n"}, "status": status})
    api.create(NODES, {"metadata": {"name": "n"}})
    with pytest.raises(StatusError, match="more than 1000 resources of a Node"):
        api.patch(NODES, "n", "", {"status": status}, subresource="status")


def test_definitions_may_have_more(api: ObjectAPI) -> None:
    content = labelled(MAX_VALUES)
    check_values(CUSTOM_RESOURCE_DEFINITIONS, content, status=False)
    with pytest.raises(StatusError):
        check_values(CUSTOM_RESOURCE_DEFINITIONS, labelled(MAX_CUSTOM_VALUES), status=False)


def test_json_is_counted_before_it_is_decoded() -> None:
    with pytest.raises(StatusError, match="more than 100000 values"):
        check_json(json.dumps([0] * (MAX_CUSTOM_VALUES + 1)).encode())
    check_json(json.dumps([0] * MAX_CUSTOM_VALUES).encode())


def test_the_content_of_strings_is_no_value() -> None:
    check_json(json.dumps({"table": '1,2,"\\",[{' * MAX_CUSTOM_VALUES}).encode())
