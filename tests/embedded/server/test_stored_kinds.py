"""Kinds that nothing here acts on: manifests of real software apply as a whole, and are shown well."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.documents import read_documents
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import AUTOSCALERS, OLD_AUTOSCALERS, STORED_ONLY, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError
from bayplan.embedded.server.tables.printer import Printer
from bayplan.embedded.up.manifests import apply, read_manifests

CHART = Path(__file__).parent / "manifests" / "chart.yaml"
SECOND_SCHEDULER = Path(__file__).parents[3] / "deploy" / "second-scheduler"
NOON = 1.8e9
ANNOTATION = "autoscaling.alpha.kubernetes.io/metrics"


@pytest.fixture
def api() -> ObjectAPI:
    return open_api(clock=lambda: NOON, seed=1)


@pytest.fixture
def chart(api: ObjectAPI) -> ObjectAPI:
    (documents,) = read_manifests([str(CHART)])
    apply(api, documents)
    return api


def find(api: ObjectAPI, kind: str, name: str) -> tuple[Resource, Document]:
    """The object of a kind in the stored form."""
    for resource in api.catalog:
        if resource.kind == kind and resource.stored_as is None:
            for document in api.documents(resource):
                if document.key.rpartition("/")[2] == name:
                    return resource, document
    raise AssertionError(f"there is no {kind} {name}")


def test_a_chart_has_one_of_each_kind() -> None:
    """So that the other tests cover all of them."""
    described = {document.content["kind"] for document in read_documents(CHART)}
    not_tested = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}  # as their validating siblings
    assert {resource.kind for resource in STORED_ONLY} - not_tested <= described


def test_a_chart_that_is_applied_again_changes_nothing(chart: ObjectAPI) -> None:
    before = chart.store.version
    (documents,) = read_manifests([str(CHART)])
    apply(chart, [each for each in documents if each.content["kind"] != "Secret"])
    assert chart.store.version == before


def test_the_manifests_of_a_second_scheduler_can_be_applied(api: ObjectAPI) -> None:
    files = sorted(SECOND_SCHEDULER.glob("*.yaml"))
    for documents in read_manifests([str(file) for file in files]):
        apply(api, documents)
    find(api, "ClusterRoleBinding", "bayplan")


@pytest.mark.parametrize(
    ("kind", "name", "cells"),
    [
        ("Ingress", "shop", ["shop", "nginx", "shop.example.com", "", "80, 443", "0s"]),
        ("IngressClass", "nginx", ["nginx", "k8s.io/ingress-nginx", "<none>", "0s"]),
        ("NetworkPolicy", "shop", ["shop", "app.kubernetes.io/name=shop", "0s"]),
        ("Role", "shop", ["shop", "2027-01-15T08:00:00Z"]),
        (
            "ClusterRoleBinding",
            "shop:reader",
            ["shop:reader", "ClusterRole/shop:reader", "0s", "anna", "shopkeepers", "shop/shop"],
        ),
        (
            "HorizontalPodAutoscaler",
            "shop",
            [
                "shop", "Deployment/shop", "cpu: <unknown>/70%, memory: <unknown>/200Mi",
                "2", 6, 0, "0s",
            ],
        ),
        ("ValidatingWebhookConfiguration", "shop", ["shop", 1, "0s"]),
        ("ValidatingAdmissionPolicy", "few-replicas", ["few-replicas", 1, "<unset>", "0s"]),
        ("ValidatingAdmissionPolicyBinding", "few-replicas",
         ["few-replicas", "few-replicas", "<unset>", "0s"]),
        ("APIService", "v1beta1.metrics.k8s.io",
         ["v1beta1.metrics.k8s.io", "kube-system/metrics-server", "<unknown>", "0s"]),
        ("CertificateSigningRequest", "shop", ["shop", "0s", "example.com/shop", "", "<none>", "Pending"]),
        ("CronJob", "backup",
         ["backup", "17 3 * * *", "<none>", "False", 0, "<none>", "0s", "backup", "backup", "<none>"]),
        ("EndpointSlice", "outside", ["outside", "IPv4", "5432", "192.0.2.7", "0s"]),
        ("Endpoints", "outside", ["outside", "192.0.2.7:5432", "0s"]),
        ("FlowSchema", "shop", ["shop", "shop", 1000, "ByUser", "0s", "?"]),
        ("PriorityLevelConfiguration", "shop", ["shop", "Limited", 5, "<none>", "<none>", "<none>", "0s"]),
        ("LimitRange", "shop", ["shop", "2027-01-15T08:00:00Z"]),
        ("PodTemplate", "worker", ["worker", "worker", "worker", "app=worker"]),
        ("RuntimeClass", "sandboxed", ["sandboxed", "runsc", "0s"]),
        ("VolumeAttributesClass", "gold", ["gold", "disks.example.com", "0s"]),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)  # fmt: skip
def test_rows(chart: ObjectAPI, kind: str, name: str, cells: list[Any]) -> None:
    resource, document = find(chart, kind, name)
    table = Printer(lambda: NOON).table(resource, [document], "None")
    assert table["rows"][0]["cells"] == cells


@pytest.mark.parametrize(
    ("kind", "name", "path", "default"),
    [
        ("RoleBinding", "shop", "roleRef.apiGroup", "rbac.authorization.k8s.io"),
        ("CronJob", "backup", "spec.concurrencyPolicy", "Allow"),
        ("CronJob", "backup", "spec.jobTemplate.spec.template.spec.dnsPolicy", "ClusterFirst"),
        ("NetworkPolicy", "shop", "spec.policyTypes", ["Ingress", "Egress"]),
        ("ValidatingWebhookConfiguration", "shop", "webhooks.0.timeoutSeconds", 10),
        ("ValidatingWebhookConfiguration", "shop", "webhooks.0.clientConfig.service.port", 443),
        ("MutatingWebhookConfiguration", "shop", "webhooks.0.reinvocationPolicy", "Never"),
        ("ValidatingAdmissionPolicy", "few-replicas", "spec.matchConstraints.matchPolicy", "Equivalent"),
        ("EndpointSlice", "outside", "ports.0.protocol", "TCP"),
        ("PodTemplate", "worker", "template.spec.restartPolicy", "Always"),
        ("APIService", "v1beta1.metrics.k8s.io", "spec.service.port", 443),
        ("LimitRange", "shop", "spec.limits.0.default.memory", "256Mi"),
        ("LimitRange", "shop", "spec.limits.0.defaultRequest.memory", "256Mi"),
        ("LimitRange", "shop", "spec.limits.0.defaultRequest.cpu", "100m"),
    ],
)
def test_defaults(chart: ObjectAPI, kind: str, name: str, path: str, default: Any) -> None:
    found: Any = find(chart, kind, name)[1].parse()
    for step in path.split("."):
        found = found[int(step)] if step.isdecimal() else found[step]
    assert found == default


def test_an_autoscaler_of_version_1_is_one_of_version_2(chart: ObjectAPI) -> None:
    found = chart.get(AUTOSCALERS, "shop-old", "shop")
    assert found["apiVersion"] == "autoscaling/v2"
    target = {"type": "Utilization", "averageUtilization": 60}
    assert found["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def test_fields_that_version_1_of_an_autoscaler_does_not_have_survive_an_update(chart: ObjectAPI) -> None:
    before = chart.get(AUTOSCALERS, "shop", "shop")
    old = chart.get(OLD_AUTOSCALERS, "shop", "shop")
    assert old["spec"]["targetCPUUtilizationPercentage"] == 70
    assert "memory" in old["metadata"]["annotations"][ANNOTATION]
    old["spec"]["maxReplicas"] = 9
    chart.update(OLD_AUTOSCALERS, old, "shop")
    after = chart.get(AUTOSCALERS, "shop", "shop")
    assert after["spec"]["maxReplicas"] == 9
    assert ANNOTATION not in (after["metadata"].get("annotations") or {})
    by_name = lambda metric: metric["resource"]["name"]  # noqa: E731
    assert sorted(after["spec"]["metrics"], key=by_name) == sorted(before["spec"]["metrics"], key=by_name)


@pytest.mark.parametrize(("name", "problem"), [("a/b", "may not contain '/'"), ("..", "may not be '..'")])
def test_a_role_has_a_name_that_fits_into_a_path(api: ObjectAPI, name: str, problem: str) -> None:
    """And need not be a DNS name: `shop:reader` of the chart is not."""
    roles = api.catalog.of_kind("rbac.authorization.k8s.io/v1", "ClusterRole")
    with pytest.raises(StatusError, match=re.escape(problem)):
        api.create(roles, {"metadata": {"name": name}})


def test_a_signing_request_can_be_approved(chart: ObjectAPI) -> None:
    resource, _ = find(chart, "CertificateSigningRequest", "shop")
    approved = {"status": {"conditions": [{"type": "Approved", "status": "True"}]}}
    chart.patch(resource, "shop", "", approved, subresource="approval")
    table = Printer(lambda: NOON).table(resource, [chart.document(resource, "shop")], "None")
    assert table["rows"][0]["cells"][-1] == "Approved"
