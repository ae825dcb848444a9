"""Services get the first address that is free, without a search of all others."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server.documents import Document, DocumentStore
from bayplan.embedded.server.kinds import NAMESPACES, SERVICES
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError


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


def ports(service: Content) -> list[int]:
    return [port.get("nodePort", 0) for port in service["spec"]["ports"]]


def open_service(name: str, *node_ports: int, kind: str = "NodePort") -> Content:
    each = [{"name": f"p{i}", "port": i + 1, "nodePort": number} for i, number in enumerate(node_ports)]
    return {"metadata": {"name": name}, "spec": {"type": kind, "ports": each}}


def test_node_ports_are_allocated(api: ObjectAPI) -> None:
    assert ports(api.create(SERVICES, open_service("a", 0, 30001, 0), "default")) == [30000, 30001, 30002]
    assert ports(api.create(SERVICES, open_service("b", 0, kind="LoadBalancer"), "default")) == [30003]
    api.delete(SERVICES, "a", "default")
    assert ports(api.create(SERVICES, open_service("c", 0), "default")) == [30000]


@pytest.mark.parametrize(
    ("port", "why"), [(30000, "provided port is already allocated"), (80, "not in the valid range")]
)
def test_node_ports_that_cannot_be_had(api: ObjectAPI, port: int, why: str) -> None:
    api.create(SERVICES, open_service("a", 0), "default")
    with pytest.raises(StatusError, match=rf"spec\.ports\[0\]\.nodePort: Invalid value: {port}: .*{why}"):
        api.create(SERVICES, open_service("b", port), "default")


def test_node_ports_come_and_go_with_the_type(api: ObjectAPI) -> None:
    create(api, "a")
    patched = api.patch(SERVICES, "a", "default", {"spec": {"type": "NodePort"}})
    assert ports(patched) == [30000]
    del patched["spec"]["ports"][0]["nodePort"]
    assert ports(api.update(SERVICES, patched)) == [30000]
    assert ports(api.patch(SERVICES, "a", "default", {"spec": {"type": "ClusterIP"}})) == [0]
    assert ports(api.create(SERVICES, open_service("b", 0), "default")) == [30000]
