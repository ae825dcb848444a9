"""Patches: JSON, merge and strategic merge, and applying on the server's side."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.patching.apply import applying_patch
from bayplan.embedded.server.patching.patches import json_patch, strategic_merge_patch
from bayplan.embedded.server.schema.types import type_of
from bayplan.embedded.server.statuses import ClashError, StatusError
from bayplan.embedded.server.steps import atomic

apply_patch = atomic(applying_patch)


@pytest.mark.parametrize(
    ("operations", "outcome"),
    [
        pytest.param([{"op": "add", "path": "/b", "value": 1}], {"a": [1, 2], "b": 1}, id="a field is added"),
        pytest.param([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}, id="into a list"),
        pytest.param([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}, id="at its end"),
        pytest.param([{"op": "remove", "path": "/a/0"}], {"a": [2]}, id="an entry is removed"),
        pytest.param([{"op": "replace", "path": "/a", "value": []}], {"a": []}, id="a field is replaced"),
        pytest.param([{"op": "move", "from": "/a", "path": "/b~1c"}], {"b/c": [1, 2]}, id="moved; / is ~1"),
        pytest.param([{"op": "copy", "from": "/a/0", "path": "/b"}], {"a": [1, 2], "b": 1}, id="copied"),
        pytest.param([{"op": "test", "path": "/a/0", "value": 1}], {"a": [1, 2]}, id="a test that holds"),
        pytest.param([{"op": "test", "path": "/a/0", "value": 2}], None, id="a test that fails"),
        pytest.param([{"op": "test", "path": "/a/0", "value": True}], None, id="1 is not true"),
        pytest.param([{"op": "move", "from": {}, "path": "/b"}], None, id="a pointer that is no text"),
        pytest.param([{"op": "copy", "path": "/b"}], None, id="no pointer"),
        pytest.param([{"op": "remove", "path": "/x"}], None, id="what is not there cannot be removed"),
        pytest.param([{"op": "replace", "path": "/x", "value": 1}], None, id="nor replaced"),
        pytest.param([{"op": "add", "path": "/a/7", "value": 1}], None, id="no holes in lists"),
        pytest.param([{"op": "add", "path": "/a/-1", "value": 9}], {"a": [1, 2, 9]}, id="-1 adds at the end"),
        pytest.param([{"op": "add", "path": "/a/-2", "value": 9}], {"a": [1, 9, 2]}, id="-2 before the last"),
        pytest.param([{"op": "add", "path": "/a/-4", "value": 9}], None, id="too far from the end"),
        pytest.param([{"op": "remove", "path": "/a/-2"}], {"a": [2]}, id="removed, from the end"),
        pytest.param([{"op": "remove", "path": "/a/-3"}], None, id="nothing there to remove"),
        pytest.param([{"op": "replace", "path": "/a/-1", "value": 9}], {"a": [1, 9]}, id="replaced"),
        pytest.param([{"op": "add", "path": "/a/1_0", "value": 1}], None, id="only digits make an index"),
        pytest.param([{"op": "add", "path": "/a/ 1", "value": 1}], None, id="without spaces"),
        pytest.param([{"op": "add", "path": "/a/\u0661", "value": 1}], None, id="of ASCII"),
        pytest.param([{"op": "jump", "path": "/a"}], None, id="no such operation"),
    ],
)
def test_json_patch(operations: list[Content], outcome: Content | None) -> None:
    """All operations take effect, or 422 and none."""
    before = {"a": [1, 2]}
    patch = json_patch(operations)
    if outcome is None:
        with pytest.raises(StatusError) as caught:
            patch(before)
        assert caught.value.code == 422
    else:
        assert patch(before) == outcome
    assert before == {"a": [1, 2]}


def spec(*names: str) -> Content:
    return {"containers": [{"name": name, "image": name} for name in names]}


@pytest.mark.parametrize(
    ("patch", "outcome"),
    [
        pytest.param(
            {"containers": [{"name": "b", "image": "new"}]},
            {"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "new"}]},
            id="an entry with the same key is merged",
        ),
        pytest.param(
            {"containers": [{"name": "c", "image": "c"}]}, spec("c", "a", "b"), id="a new one comes first"
        ),
        pytest.param({"containers": [{"name": "a", "$patch": "delete"}]}, spec("b"), id="one is deleted"),
        pytest.param(
            {"containers": [{"name": "c", "image": "c"}, {"$patch": "replace"}]},
            spec("c"),
            id="all are replaced",
        ),
        pytest.param(
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
            spec("b", "a"),
            id="reordered",
        ),
        pytest.param({"$patch": "replace", "nodeName": "n"}, {"nodeName": "n"}, id="a map is replaced"),
        pytest.param(
            {"tolerations": [{"key": "y"}]},
            {**spec("a", "b"), "tolerations": [{"key": "y"}]},
            id="a list without a key is replaced",
        ),
        pytest.param({"containers": None}, {}, id="null removes a list"),
    ],
)
def test_strategic_merge_patch(patch: Content, outcome: Content) -> None:
    """Lists that are maps by a key are merged entry by entry."""
    apply = strategic_merge_patch({"spec": patch}, type_of(PODS))
    assert apply({"spec": spec("a", "b")}) == {"spec": outcome}


def test_strategic_merge_takes_values_from_plain_lists() -> None:
    """Finalizers are a set: those of a patch are added, others can be taken away by name."""
    of = type_of(PODS)
    before = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic_merge_patch({"metadata": {"finalizers": ["c"]}}, of)(before) == {
        "metadata": {"finalizers": ["a", "b", "c"]}
    }
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_merge_patch(gone, of)(before) == {"metadata": {"finalizers": ["b"]}}


@pytest.mark.parametrize("directive", ["$retainKeys", "$setElementOrder/x", "$deleteFromPrimitiveList/x"])
def test_directives_are_lists(directive: str) -> None:
    with pytest.raises(StatusError, match="is not a list"):
        strategic_merge_patch({"spec": {directive: 1}}, type_of(PODS))({"spec": spec("a")})


def test_a_list_with_a_key_needs_it() -> None:
    with pytest.raises(StatusError, match="does not contain declared merge key: name"):
        strategic_merge_patch({"spec": {"containers": [{"image": "x"}]}}, type_of(PODS))({"spec": spec("a")})


# Applying


def applied(api: ObjectAPI, manager: str, *, force: bool = False, **data: str) -> Content:
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    content, _ = apply_patch(api, CONFIG_MAPS, "c", "default", wanted, manager=manager, force=force)
    return content


def make_api() -> ObjectAPI:
    return open_api(clock=lambda: 1.8e9, seed=1)


def test_fields_that_a_manager_no_longer_applies_are_removed() -> None:
    """And those of another manager stay."""
    api = make_api()
    applied(api, "one", a="1", b="2")
    applied(api, "two", b="2", c="3")
    assert applied(api, "one", a="1")["data"] == {"a": "1", "b": "2", "c": "3"}
    assert applied(api, "two", c="3")["data"] == {"a": "1", "c": "3"}


def test_another_clients_field_is_a_conflict() -> None:
    """Unless the manager insists; then the field is its own."""
    api = make_api()
    applied(api, "one", a="1")
    with pytest.raises(ClashError, match=r'Apply failed with 1 conflict: conflict with "one": \.data\.a'):
        applied(api, "two", a="2")
    assert applied(api, "two", force=True, a="2")["data"] == {"a": "2"}
    with pytest.raises(ClashError, match='conflict with "two"'):
        applied(api, "one", a="1")


def test_the_same_again_is_no_write() -> None:
    api = make_api()
    first = applied(api, "one", a="1")
    assert applied(api, "one", a="1") == first


def test_an_update_takes_fields_over() -> None:
    """As `kubectl scale` does with replicas that were applied."""
    api = make_api()
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    wanted = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    apply_patch(api, DEPLOYMENTS, "web", "default", wanted, manager="me")
    api.patch(DEPLOYMENTS, "web", "default", {"spec": {"replicas": 5}}, manager="scaler")
    with pytest.raises(ClashError, match=r'conflict with "scaler" using apps/v1: \.spec\.replicas'):
        apply_patch(api, DEPLOYMENTS, "web", "default", wanted, manager="me")


def test_containers_and_ports_are_distinguished_by_their_keys() -> None:
    """A port without a protocol is a TCP port, so applying again adds none."""
    api = make_api()
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}]}
    wanted = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [container]},
    }
    first, created = apply_patch(api, PODS, "p", "default", wanted, manager="me")
    again, created_again = apply_patch(api, PODS, "p", "default", wanted, manager="me")
    assert (created, created_again) == (True, False)
    assert again["spec"]["containers"] == first["spec"]["containers"]


def test_fields_from_before_have_an_owner() -> None:
    """An object that was not applied is not taken over without a conflict."""
    api = make_api()
    api.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}}, "default")
    with pytest.raises(ClashError, match=r'conflict with "before-first-apply" using v1: \.data\.a'):
        applied(api, "one", a="2")
    assert applied(api, "one", a="1", b="2")["data"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize("fields", [None, {"f:metadata": {}}, {"f:metadata": {"f:name": {}}}])
def test_no_manager_owns_the_metadata_as_a_whole(fields: Content | None) -> None:
    """Neither by applying empty metadata nor by claiming it in managedFields."""
    api = make_api()
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    meta: Content = {"name": "c"}
    if fields is not None:
        entry = {"manager": "me", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
        meta["managedFields"] = [{**entry, "time": "2027-01-01T00:00:00Z", "fieldsV1": fields}]
    api.create(CONFIG_MAPS, {"metadata": meta, "data": {"a": "1"}}, "default")
    for metadata in ({}, {"name": "c"}, {"name": "c", "labels": {"a": "b"}}):
        wanted = {**head, "metadata": metadata}
        content, _ = apply_patch(api, CONFIG_MAPS, "c", "default", wanted, manager="me", force=True)
    assert content["metadata"]["name"] == "c"
    assert content["metadata"]["labels"] == {"a": "b"}


# Limits


def test_copies_are_limited_in_all() -> None:
    """22 copies of a list into itself would make four million lists of it."""
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"} for _ in range(22)]
    with pytest.raises(StatusError) as caught:
        json_patch(doubling)({"a": ["x" * 1000]})
    assert caught.value.code == 422
    assert json_patch(doubling[:10])({"a": ["x" * 1000]})["a"][0] == "x" * 1000


def test_operations_are_limited_in_number() -> None:
    operation = {"op": "test", "path": "/a", "value": 1}
    assert json_patch([operation] * 10_000)({"a": 1}) == {"a": 1}
    with pytest.raises(StatusError, match="maximum operations in a JSON patch is 10000, got 10001") as caught:
        json_patch([operation] * 10_001)
    assert caught.value.code == 413


def test_insertions_into_long_lists_are_limited() -> None:
    operations = [{"op": "add", "path": "/a/0", "value": 1}] * 10_000
    with pytest.raises(StatusError) as caught:
        json_patch(operations)({"a": [0] * 100_000})
    assert caught.value.code == 422


def test_a_patch_cannot_nest_without_end() -> None:
    operations = []
    for depth in range(5):
        value: Any = {}
        for _ in range(100):
            value = {"a": value}
        operations.append({"op": "add", "path": "/a" * (100 * depth + 1), "value": value})
    with pytest.raises(StatusError) as caught:
        json_patch(operations)({})
    assert caught.value.code == 422


class Compared(str):
    """A text that counts how often it is compared with others."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    "make_patch",
    [
        pytest.param(lambda keys: {"containers": [{"name": key, "tty": True} for key in keys]}, id="merged"),
        pytest.param(
            lambda keys: {"$setElementOrder/containers": [{"name": key} for key in reversed(keys)]},
            id="ordered",
        ),
        pytest.param(
            lambda keys: {"containers": [{"name": key, "$patch": "delete"} for key in keys]}, id="deleted"
        ),
        pytest.param(
            lambda keys: {"containers": [{"name": f"new-{key}"} for key in keys]}, id="added to others"
        ),
    ],
)
def test_work_grows_with_the_length_of_lists_and_not_with_its_square(
    make_patch: Callable[[list[str]], Content],
) -> None:
    keys = [Compared(f"c{number}") for number in range(2000)]
    patch = {"spec": make_patch(list(map(Compared, keys)))}
    before = {"spec": {"containers": [{"name": key} for key in keys]}}
    Compared.comparisons = 0
    strategic_merge_patch(patch, type_of(PODS))(before)
    assert Compared.comparisons < 20 * len(keys)


@pytest.mark.parametrize("patch", [{"finalizers": ["c"]}, {"$deleteFromPrimitiveList/finalizers": ["b"]}])
def test_lists_of_plain_values_are_compared_by_hash(patch: Content) -> None:
    names = [Compared(f"f{number}") for number in range(2000)]
    patch = {name: [Compared(f"f{number}") for number in range(1000, 3000)] for name in patch}
    Compared.comparisons = 0
    strategic_merge_patch({"metadata": patch}, type_of(PODS))({"metadata": {"finalizers": names}})
    assert Compared.comparisons < 20 * len(names)


def test_applying_long_lists_takes_linear_time() -> None:
    """Adding, keeping and removing 5,000 entries by their keys, and of a set."""
    api = make_api()

    def wanted(numbers: range) -> Content:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s", "finalizers": [f"example.com/f{number}" for number in numbers]},
            "spec": {"ports": [{"name": f"p{n}", "port": n + 1, "protocol": "TCP"} for n in numbers]},
        }

    for numbers in (range(2000), range(1000, 3000)):
        calls = _calls(
            lambda numbers=numbers: apply_patch(  # type: ignore[misc]  # bound now
                api, SERVICES, "s", "default", wanted(numbers), manager="me"
            )
        )
        assert calls < 1000 * len(numbers)
    found = api.get(SERVICES, "s", "default")
    assert sorted(port["port"] for port in found["spec"]["ports"]) == list(range(1001, 3001))
    assert len(found["metadata"]["finalizers"]) == 2000


def _calls(function: Callable[[], object]) -> int:
    """How many calls of functions it takes: a measure of work that does not depend on the machine."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
