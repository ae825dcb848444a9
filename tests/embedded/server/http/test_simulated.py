"""What needs a running container: the response is that there is none, not that the path is unknown."""

from __future__ import annotations

import pytest

from .serving import PODS, Caller, Reply, pod, serve

SIMULATED = "bayplan's containers are simulated:"


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", f"{PODS}/web/log", f"{SIMULATED} they write no logs"),
        ("GET", f"{PODS}/web/log?follow=true&container=c", f"{SIMULATED} they write no logs"),
        ("POST", f"{PODS}/web/exec?command=ls", f"{SIMULATED} no command can be run in them"),
        ("GET", f"{PODS}/web/exec?command=ls", f"{SIMULATED} no command can be run in them"),
        ("POST", f"{PODS}/web/attach", f"{SIMULATED} there is no process to attach to"),
        ("POST", f"{PODS}/web/portforward", f"{SIMULATED} they listen on no port"),
        ("GET", f"{PODS}/web/proxy/healthz/deep", f"{SIMULATED} they listen on no port"),
        ("PATCH", f"{PODS}/web/ephemeralcontainers", f"{SIMULATED} none can be added to a pod"),
        (
            "GET",
            "/api/v1/namespaces/default/services/kubernetes/proxy/",
            f"{SIMULATED} nothing answers for a service",
        ),
        (
            "GET",
            "/apis/metrics.k8s.io/v1beta1/nodes",
            f"{SIMULATED} they take no CPU and no memory that could be measured",
        ),
        (
            "GET",
            "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/web",
            f"{SIMULATED} they take no CPU and no memory that could be measured",
        ),
    ],
)
def test_the_response_has_the_reason(method: str, path: str, message: str) -> None:
    async def scenario(call: Caller) -> Reply:
        await call("POST", PODS, pod("web"))
        return await call(method, path)

    reply = serve(scenario)
    assert (reply.status, reply.reason, reply.message) == (501, "NotImplemented", message)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", f"{PODS}/absent/log", 404, id="no such pod"),
        pytest.param("POST", f"{PODS}/web/log", 405, id="no such verb"),
        pytest.param("GET", f"{PODS}/web/nothing", 404, id="no such part"),
        pytest.param("GET", f"{PODS}/web/log/more", 404, id="nothing below it"),
    ],
)
def test_what_is_wrong_is_still_wrong(method: str, path: str, status: int) -> None:
    async def scenario(call: Caller) -> Reply:
        await call("POST", PODS, pod("web"))
        return await call(method, path)

    assert serve(scenario).status == status
