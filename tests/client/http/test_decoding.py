"""What the API server writes becomes records; what cannot be read takes nothing else with it."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from bayplan.api.cluster_api import Change
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.node import Namespace, Node, NodeStatus
from bayplan.api.pod import Pod
from bayplan.api.reading import Unreadable
from bayplan.api.storage import CSINode
from bayplan.client.decoding import decode_frames, decode_object, decode_page
from bayplan.errors import APIError, ForbiddenError, GoneError, ServerError

NULLS: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "x", "resourceVersion": "5", "labels": None},
    "spec": {"containers": None, "tolerations": [None]},
    "status": {"conditions": [{"type": "Ready", "lastProbeTime": None}]},
}
WRONG: dict[str, Any] = {
    "metadata": {"name": "wrong", "namespace": "x", "resourceVersion": "7"},
    "spec": {"priority": "high"},
}
NAMELESS: dict[str, Any] = {"metadata": 5}


def fine(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "x", "resourceVersion": "3", "managedFields": [{}]}}


def page(kind: type[Object], content: Any) -> tuple[list[str], str, str]:
    """Names, version and continue token."""
    decoded = decode_page(kind, json.dumps(content).encode())
    return [item.name for item in decoded.items], decoded.resource_version, decoded.continue_


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(
            {"metadata": {"resourceVersion": "9"}, "items": [fine("a"), fine("b")]},
            (["a", "b"], "9", ""),
            id="a whole list",
        ),
        pytest.param(
            {"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [fine("a")]},
            (["a"], "9", "t"),
            id="a part of one",
        ),
        pytest.param(
            {"metadata": {"resourceVersion": "9"}, "items": None}, ([], "9", ""), id="null for empty"
        ),
        pytest.param(
            {"metadata": {"resourceVersion": "9"}, "items": [fine("b"), NULLS]},
            (["b", "a"], "9", ""),
            id="nulls where there is nothing",
        ),
        pytest.param(
            {"metadata": {"resourceVersion": "9"}, "items": [WRONG, fine("b"), NAMELESS]},
            (["wrong", "b"], "9", ""),
            id="objects that can be read only in part; what has no name is left out",
        ),
    ],
)
def test_a_page_of_a_list(content: Any, expected: tuple[list[str], str, str]) -> None:
    assert page(Pod, content) == expected


def test_what_cannot_be_read_replaces_the_object() -> None:
    [item] = decode_page(Pod, json.dumps({"items": [WRONG]}).encode()).items
    assert isinstance(item, Unreadable)
    assert (item.key, item.fields, item.problem) == (
        "x/wrong",
        ("spec.priority",),
        "Expected `int | null`, got `str`",
    )


def test_what_has_no_name_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        page(Pod, {"items": [NAMELESS, 7]})
    assert caplog.messages == [
        "ignoring a Pod without a name: metadata: Expected `object`, got `int`",
        "ignoring something that is not a Pod: Expected `object`, got `int`",
    ]


def test_an_object_without_a_name_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """It can be read, but a node without a name is none that a pod could be bound to."""
    nameless = {"metadata": {"resourceVersion": "4"}, "spec": {}}
    lines = [
        {"type": "ADDED", "object": nameless},
        {"type": "MODIFIED", "object": fine("a")},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
    ]
    with caplog.at_level(logging.ERROR):
        assert page(Node, {"items": [nameless, fine("a")]})[0] == ["a"]
        frames = decode_frames(Node, b"\n".join(json.dumps(line).encode() for line in lines))
    events = [(event.change, event.resource_version) for event in frames.events]
    assert events == [(Change.MODIFIED, "3"), (Change.BOOKMARK, "9")]
    assert caplog.messages[:2] == ["ignoring a Node without a name"] * 2


def test_a_list_that_go_writes_with_nulls_is_whole() -> None:
    raw = {"metadata": {"name": "n"}, "spec": {"drivers": None}}
    assert decode_object(CSINode, json.dumps(raw).encode()) == CSINode(metadata=ObjectMeta(name="n"))


def test_fields_that_are_null_count_as_absent() -> None:
    pod = decode_object(Pod, json.dumps(NULLS).encode())
    assert (pod.labels, pod.spec.containers, pod.spec.tolerations) == ({}, (), ())
    assert [condition.type for condition in pod.status.conditions] == ["Ready"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"<html>", "the response is not JSON", id="not JSON"),
        pytest.param(b'{"spec": 5}', "the response is not a Pod: spec: Expected `object`", id="not a pod"),
    ],
)
def test_what_is_no_object_is_an_error(data: bytes, problem: str) -> None:
    with pytest.raises(APIError, match=problem):
        decode_object(Pod, data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"<html>", "the response is not JSON", id="not JSON"),
        pytest.param(b'{"items": 5}', "the response is not a list of Pod", id="not a list"),
        pytest.param(
            b'{"items": [{"spec": 5}, {"metadata": {"name": "\\ud800"}}]}',
            "the response is not JSON",
            id="broken behind an object that does not fit",
        ),
    ],
)
def test_what_is_no_list_is_an_error(data: bytes, problem: str) -> None:
    with pytest.raises(APIError, match=problem):
        decode_page(Pod, data)


def frame(change: str, raw: Any) -> bytes:
    return json.dumps({"type": change, "object": raw}).encode() + b"\n"


def error_frame(code: int, reason: str) -> bytes:
    return frame(
        "ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "reason", "status": "Failure"}
    )


BOOKMARK = frame(
    "BOOKMARK",
    {"metadata": {"resourceVersion": "12", "creationTimestamp": None}, "spec": {"containers": None}},
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            frame("ADDED", fine("a")) + frame("DELETED", fine("b")),
            [("ADDED", "a", "3"), ("DELETED", "b", "3")],
            id="changes",
        ),
        pytest.param(BOOKMARK, [("BOOKMARK", "", "12")], id="a bookmark as Go writes it"),
        pytest.param(
            frame("ADDED", fine("a")) + BOOKMARK, [("ADDED", "a", "3"), ("BOOKMARK", "", "12")], id="both"
        ),
        pytest.param(b"\n" + frame("ADDED", NULLS), [("ADDED", "a", "5")], id="nulls and an empty line"),
        pytest.param(
            frame("ADDED", WRONG) + frame("ADDED", fine("a")),
            [("ADDED", "wrong", "7"), ("ADDED", "a", "3")],
            id="what can be read only in part",
        ),
        pytest.param(
            frame("DELETED", WRONG),
            [("DELETED", "wrong", "7")],
            id="a deleted object is deleted all the same",
        ),
        pytest.param(
            frame("RENAMED", fine("a")) + frame("ADDED", fine("b")), [("ADDED", "b", "3")], id="news"
        ),
        pytest.param(
            frame("ADDED", NAMELESS) + frame("ADDED", fine("a")),
            [("ADDED", "a", "3")],
            id="what is no object at all is left out",
        ),
        pytest.param(
            frame("ADDED", {"metadata": {"name": "b"}}) + frame("ADDED", fine("a")),
            [("ADDED", "a", "3")],
            id="an event without a version is left out: no watch could continue from it",
        ),
    ],
)
def test_frames_of_a_watch(lines: bytes, expected: list[tuple[str, str | None, str]]) -> None:
    events, error = decode_frames(Pod, lines)
    found = [
        (event.change.value, None if event.object is None else event.object.name, event.resource_version)
        for event in events
    ]
    assert (found, error) == (expected, None)


@pytest.mark.parametrize("kind", [Pod, Node, Namespace])
@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        pytest.param(410, "Expired", GoneError, id="too old"),
        pytest.param(410, "Gone", GoneError, id="gone"),
        pytest.param(500, "InternalError", ServerError, id="trouble"),
        pytest.param(403, "Forbidden", ForbiddenError, id="not allowed"),
    ],
)
def test_an_error_ends_a_watch_after_what_came_before_it(
    kind: type[Object], code: int, reason: str, expected: type[APIError]
) -> None:
    events, error = decode_frames(kind, frame("ADDED", fine("a")) + error_frame(code, reason))
    assert [event.change for event in events] == [Change.ADDED]
    assert (type(error), str(error), getattr(error, "code", None)) == (expected, "reason", code)


def test_broken_json_ends_a_watch_after_what_came_before_it() -> None:
    events, error = decode_frames(Pod, frame("ADDED", fine("a")) + b'{"type":"ADD\n')
    assert ([event.change for event in events], type(error)) == ([Change.ADDED], APIError)


def test_what_scheduling_does_not_read_is_skipped() -> None:
    raw = {"metadata": {"name": "n"}, "status": {"nodeInfo": {"x": [1]}, "capacity": {"cpu": "1"}}}
    node = decode_object(Node, json.dumps(raw).encode())
    assert node == Node(metadata=ObjectMeta(name="n"), status=NodeStatus(capacity={"cpu": "1"}))


def test_what_is_nested_too_deeply_is_an_error_of_the_server() -> None:
    """And neither ends the process nor the informer."""
    deep = b"[" * 100_000 + b"]" * 100_000
    pod = b'{"metadata":{"name":"a","resourceVersion":"1"},"unknown":%b}' % deep
    with pytest.raises(APIError, match="the response is not JSON"):
        decode_object(Pod, pod)
    with pytest.raises(APIError, match="the response is not JSON"):
        decode_page(Pod, b'{"metadata":{},"items":[%b]}' % pod)
    frames = decode_frames(Pod, b'{"type":"ADDED","object":%b}\n' % pod)
    assert frames.events == []
    assert isinstance(frames.error, APIError)
