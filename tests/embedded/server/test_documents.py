"""The store of documents: what it keeps of versions that are no more."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.embedded.server import documents
from bayplan.embedded.server.documents import RECENT, Document, DocumentStore
from bayplan.embedded.server.kinds import CONFIG_MAPS, NAMESPACES, PODS, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError
from bayplan.errors import GoneError


def content(name: str) -> Content:
    metadata = {"name": name, "namespace": "default", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}


def put(store: DocumentStore, name: str) -> Document:
    """Writes a pod that is read and selected, as the scheduler and its watchers do."""
    document = store.put(PODS, f"default/{name}", content(name))
    document.record(Pod)
    document.facts(PODS)
    return document


def is_derived(document: Document) -> bool:
    return document._record is not None or document._facts is not None


def test_replaced_versions_are_kept_as_bodies_only() -> None:
    """The history of 10,000 to 20,000 changes would keep the records of all of them otherwise."""
    store = DocumentStore()
    documents = [put(store, "a") for _ in range(3 * RECENT)]
    derived = [document.version for document in documents if is_derived(document)]
    assert derived == list(range(2 * RECENT, 3 * RECENT + 1))
    assert len(store.table(PODS).history.read(0) or ()) == 3 * RECENT, "no change is dropped"


def test_deleted_objects_are_kept_as_bodies_only() -> None:
    store = DocumentStore()
    alive = put(store, "a")
    deleted = [store.remove(PODS, put(store, "b").key, content("b")) for _ in range(2)]
    for document in deleted:
        document.record(Pod)
    for _ in range(RECENT):
        put(store, "c")
    assert [is_derived(document) for document in deleted] == [False, False]
    assert is_derived(alive), "what exists is read often"


def test_what_was_dropped_is_created_again() -> None:
    document = put(DocumentStore(), "a")
    before, facts = document.record(Pod), document.facts(PODS)
    document.forget_derived()
    assert document.record(Pod) == before
    assert document.record(Pod) is document.record(Pod)
    assert document.facts(PODS) == facts


def test_a_body_takes_no_more_memory_than_its_bytes() -> None:
    """Encoders return their buffer, which is larger than what is in it."""
    store = DocumentStore()
    large = content("a")
    large["metadata"]["annotations"] = {str(number): "x" * 40 for number in range(2000)}
    store.put(PODS, "default/b", content("b"))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        body = store.put(PODS, "default/a", large).body
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(body) > 80_000
    assert taken < len(body) + 10_000


def test_a_full_store_rejects_new_objects_but_can_be_emptied() -> None:
    store = DocumentStore(max_bytes=16_000)
    api = ObjectAPI(store, clock=lambda: 0.0, seed=1)
    api.create(NAMESPACES, {"metadata": {"name": "default"}})

    def fill(**metadata: Any) -> int:
        """How many config maps can be created."""
        for count in range(100):
            meta = {"generateName": "c-", "namespace": "default", **metadata}
            try:
                api.create(CONFIG_MAPS, {"metadata": meta, "data": {"a": 300 * "x"}})
            except StatusError as error:
                if (error.code, str(error)[:17]) == (403, "the store is full"):
                    return count
                raise
        raise AssertionError("the store is never full")

    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    owned = fill(ownerReferences=[owner])
    assert (owned, fill()) == (10, 3)
    largest = next(iter(store.table(CONFIG_MAPS))).parse()
    with pytest.raises(StatusError, match="the store is full"):
        api.update(CONFIG_MAPS, {**largest, "data": {"a": 9000 * "x"}})
    api.update(CONFIG_MAPS, {**largest, "data": {}})
    for document in list(store.table(CONFIG_MAPS)):
        api.delete(CONFIG_MAPS, document.parse()["metadata"]["name"], "default")
    assert fill(ownerReferences=[owner]) == owned


def test_existing_objects_may_double_in_a_store_that_is_full_of_them() -> None:
    """As pods do when they are bound and run: the last one is not left without a node."""
    store = DocumentStore(max_bytes=64_000)
    api = ObjectAPI(store, clock=lambda: 0.0, seed=1)
    api.create(NAMESPACES, {"metadata": {"name": "default"}})

    def fill() -> None:
        for number in range(1000):
            meta = {"name": f"c-{number}", "namespace": "default"}
            api.create(CONFIG_MAPS, {"metadata": meta, "data": {"a": "x"}})

    with pytest.raises(StatusError, match="the store is full"):
        fill()
    created = [document.parse() for document in store.table(CONFIG_MAPS)]
    for content in created:
        size = len(documents.encode(content))
        api.update(CONFIG_MAPS, {**content, "data": {"a": (size - 20) * "x"}})
    assert len(created) > 100


def test_all_histories_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest ones lose their oldest changes."""
    monkeypatch.setattr(documents, "MAX_HISTORIES_BYTES", 100_000)
    store = DocumentStore()
    resources = [Resource(f"kinds{number}", "Kind", group="example.com") for number in range(20)]
    store.put(resources[0], "default/small", {"metadata": {"name": "small"}})
    for number in range(400):
        store.put(resources[1 + number % 19], "default/x", {"metadata": {"name": "x"}, "text": "x" * 2000})
    assert sum(store.table(resource).history.bytes for resource in resources) <= 100_000
    assert store.position(resources[0], 0) == 0
    with pytest.raises(GoneError):
        store.position(resources[1], 1)
