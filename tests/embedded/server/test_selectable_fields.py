"""Field selectors: a field that an object leaves out has the zero of its type, as on a real server."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bayplan.embedded.server import kinds
from bayplan.embedded.server.documents import field_texts
from bayplan.embedded.server.kinds import BUILT_IN, Resource
from bayplan.embedded.server.selecting import parse_selection
from bayplan.embedded.server.statuses import StatusError


@pytest.mark.parametrize(
    ("resource", "path", "text"),
    [
        (kinds.NODES, "spec.unschedulable", "false"),
        (kinds.PODS, "spec.hostNetwork", "false"),
        (kinds.PODS, "spec.nodeName", ""),
        (kinds.PODS, "status.podIPs", ""),
        (kinds.REPLICATION_CONTROLLERS, "status.replicas", "0"),
        (kinds.JOBS, "status.successful", "0"),
        (kinds.EVENTS, "source", ""),
        (kinds.RESOURCE_SLICES, "spec.nodeName", ""),
    ],
)
def test_absent_fields(resource: Resource, path: str, text: str) -> None:
    assert field_texts(resource, {"metadata": {"name": "x"}})[path] == text


@pytest.mark.parametrize(
    ("resource", "content", "path", "text"),
    [
        (kinds.NODES, {"spec": {"unschedulable": True}}, "spec.unschedulable", "true"),
        (kinds.NODES, {"spec": {"unschedulable": False}}, "spec.unschedulable", "false"),
        (kinds.JOBS, {"status": {"succeeded": 3}}, "status.successful", "3"),
        (kinds.EVENTS, {"source": {"component": "kubelet"}}, "source", "kubelet"),
        (kinds.EVENTS, {"source": {}, "reportingComponent": "sched"}, "source", "sched"),
        (kinds.SERVICES, {"spec": {"type": "NodePort"}}, "spec.type", "NodePort"),
        (kinds.PODS, {"spec": "nonsense"}, "spec.nodeName", ""),
    ],
)
def test_present_fields(resource: Resource, content: dict[str, Any], path: str, text: str) -> None:
    assert field_texts(resource, {"metadata": {}, **content})[path] == text


@pytest.mark.parametrize(
    "resource", [each for each in BUILT_IN if each.selectable], ids=lambda each: each.full_name
)
def test_every_selectable_field_can_be_selected(resource: Resource) -> None:
    """Also of an object that has none of them."""
    texts = field_texts(resource, {"metadata": {}})
    for path in resource.selectable:
        selection = parse_selection(resource, "", f"{path}=x", "")
        assert all(stored in texts for stored, _, _ in selection.fields)


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (kinds.PODS, "field label not supported: spec.colour"),
        (
            kinds.CONFIG_MAPS,
            '"spec.colour" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
def test_other_fields_are_rejected(resource: Resource, message: str) -> None:
    with pytest.raises(StatusError, match=re.escape(message)):
        parse_selection(resource, "", "spec.colour=red", "")
