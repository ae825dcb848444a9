"""Services get the first address that is free, without a search of all others."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bayplan.embedded.server.documents import Document, DocumentStore
from bayplan.embedded.server.kinds import NAMESPACES, SERVICES
from bayplan.embedded.server.objects import ObjectAPI


@pytest.fixture
def api() -> ObjectAPI:
    api = ObjectAPI(DocumentStore(history=10), clock=time.time)
    api.create(NAMESPACES, {"metadata": {"name": "default"}})
    return api


def create(api: ObjectAPI, name: str, **spec: Any) -> str:
    content = {"metadata": {"name": name}, "spec": {"ports": [{"port": 1}], **spec}}
    address: str = api.create(SERVICES, content, "default")["spec"].get("clusterIP", "")
    return address


def test_the_first_free_address(api: ObjectAPI) -> None:
    assert [create(api, name) for name in "abc"] == ["10.96.0.1", "10.96.0.2", "10.96.0.3"]
    api.delete(SERVICES, "b", "default")
    assert [create(api, name) for name in "de"] == ["10.96.0.2", "10.96.0.4"]


def test_addresses_that_services_request(api: ObjectAPI) -> None:
    assert create(api, "requests", clusterIP="10.96.0.2") == "10.96.0.2"
    assert create(api, "headless", clusterIP="None") == "None"
    assert create(api, "external", type="ExternalName", externalName="example.com") == ""
    assert create(api, "elsewhere", clusterIP="192.0.2.1") == "192.0.2.1"
    assert [create(api, name) for name in "ab"] == ["10.96.0.1", "10.96.0.3"]


def test_a_dry_run_takes_no_address(api: ObjectAPI) -> None:
    content = {"metadata": {"name": "dry"}, "spec": {"ports": [{"port": 1}]}}
    api.create(SERVICES, content, "default", dry_run=True)
    assert create(api, "a") == "10.96.0.1"


def test_after_more_changes_than_the_history_holds(api: ObjectAPI) -> None:
    create(api, "a")
    for number in range(50):
        create(api, f"s{number}", clusterIP=f"10.96.0.{number + 2}")
    api.delete(SERVICES, "s3", "default")
    assert [create(api, name) for name in "bc"] == ["10.96.0.5", "10.96.0.52"]


def test_a_service_is_not_read_for_every_other_one(api: ObjectAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = 0
    parse = Document.parse

    def counted(document: Document) -> dict[str, Any]:
        nonlocal parsed
        parsed += document.key.startswith("default/s")
        return parse(document)

    monkeypatch.setattr(Document, "parse", counted)
    api = ObjectAPI(DocumentStore(), clock=time.time)
    api.create(NAMESPACES, {"metadata": {"name": "default"}})
    for number in range(200):
        create(api, f"s{number}")
    assert parsed < 1000


def test_a_status_can_be_emptied_but_not_removed(api: ObjectAPI) -> None:
    """It is a struct in Go, and controllers rely on it."""
    create(api, "a")
    emptied = api.patch(SERVICES, "a", "default", {"status": None}, subresource="status")
    assert emptied["status"] == {}
