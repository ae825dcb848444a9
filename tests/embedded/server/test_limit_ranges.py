"""LimitRanges: defaults for containers without requests, and bounds for the others."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError

DEFAULTS = {
    "type": "Container",
    "min": {"cpu": "50m", "memory": "100Mi"},
    "max": {"cpu": "500m", "memory": "500Mi"},
    "default": {"cpu": "500m", "memory": "500Mi"},
    "defaultRequest": {"cpu": "100m", "memory": "200Mi"},
}


def limited(*items: Content) -> ObjectAPI:
    """A namespace with a limit range."""
    api = open_api(clock=lambda: 1.8e9, seed=1)
    api.create(LIMIT_RANGES, {"metadata": {"name": "limits"}, "spec": {"limits": list(items)}}, "default")
    return api


def container(name: str = "c", requests: Content | None = None, limits: Content | None = None) -> Content:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"name": name, "image": "web", "resources": {key: part for key, part in resources.items() if part}}


def create_pod(api: ObjectAPI, *containers: Content, **spec: Any) -> Content:
    pod = {"metadata": {"name": "web"}, "spec": {"containers": list(containers), **spec}}
    return api.create(PODS, pod, "default")


def test_a_container_without_resources_gets_the_defaults() -> None:
    pod = create_pod(limited(DEFAULTS), container())
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "200Mi"},
        "limits": {"cpu": "500m", "memory": "500Mi"},
    }
    assert pod["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container c; "
        "cpu, memory limit for container c"
    }
    assert pod["status"]["qosClass"] == "Burstable"


def test_a_limit_is_the_request_of_what_requests_nothing() -> None:
    """The default request is for containers with neither."""
    pod = create_pod(limited(DEFAULTS), container("c", {"memory": "150Mi"}, {"cpu": "300m"}))
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "300m", "memory": "150Mi"},
        "limits": {"cpu": "300m", "memory": "500Mi"},
    }


def test_init_containers_get_defaults_too() -> None:
    first = {"name": "first", "image": "web"}
    pod = create_pod(limited(DEFAULTS), container(), initContainers=[first])
    assert pod["spec"]["initContainers"][0]["resources"]["limits"] == {"cpu": "500m", "memory": "500Mi"}
    assert "for init container first" in pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"]


@pytest.mark.parametrize(
    ("item", "resources", "message"),
    [
        pytest.param(
            DEFAULTS,
            ({"cpu": "10m", "memory": "50Mi"}, {}),
            'pods "web" is forbidden: [minimum cpu usage per Container is 50m, but request is 10m, '
            "minimum memory usage per Container is 100Mi, but request is 50Mi]",
            id="too little",
        ),
        pytest.param(
            DEFAULTS,
            ({}, {"cpu": "600m"}),
            "maximum cpu usage per Container is 500m, but limit is 600m",
            id="too much",
        ),
        pytest.param(
            {"type": "Pod", "max": {"cpu": "1"}},
            ({"cpu": "100m"}, {}),
            "maximum cpu usage per Pod is 1.  No limit is specified",
            id="no limit where there has to be one",
        ),
        pytest.param(
            {"type": "Pod", "min": {"memory": "1Gi"}},
            ({}, {}),
            "minimum memory usage per Pod is 1Gi.  No request is specified",
            id="no request where there has to be one",
        ),
        pytest.param(
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            ({"cpu": "100m"}, {"cpu": "300m"}),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
            id="a limit far above the request",
        ),
        pytest.param(
            {"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}},
            ({}, {}),
            "cpu max limit to request ratio per Pod is 2, but no request is specified or request is 0",
            id="no ratio without a request",
        ),
    ],
)
def test_bounds(item: Content, resources: tuple[Content, Content], message: str) -> None:
    with pytest.raises(StatusError, match=re.escape(message)) as rejected:
        create_pod(limited(item), container("c", *resources))
    assert rejected.value.code == 403


def test_the_limit_of_a_pod_is_of_all_its_containers() -> None:
    """Of those that run together, or of the largest that starts before them."""
    api = limited({"type": "Pod", "max": {"cpu": "1"}})
    half = container("a", {}, {"cpu": "500m"})
    create_pod(api, half, {**half, "name": "b"}, initContainers=[container("i", {}, {"cpu": "1"})])
    with pytest.raises(StatusError, match="maximum cpu usage per Pod is 1, but limit is 1500m"):
        create_pod(api, half, {**half, "name": "b"}, {**half, "name": "d"})
    sidecar = {**container("i", {}, {"cpu": "600m"}), "restartPolicy": "Always"}
    with pytest.raises(StatusError, match="maximum cpu usage per Pod is 1, but limit is 1100m"):
        create_pod(api, half, initContainers=[sidecar])


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("500Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi"),
        ("1Gi", ""),
        ("3Gi", "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
    ],
)
def test_claims(storage: str, message: str) -> None:
    api = limited({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}})
    resources = {"requests": {"storage": storage}}
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources},
    }
    if not message:
        api.create(PERSISTENT_VOLUME_CLAIMS, claim, "default")
        return
    with pytest.raises(StatusError, match=re.escape(message)):
        api.create(PERSISTENT_VOLUME_CLAIMS, claim, "default")


def test_other_namespaces_have_no_limits() -> None:
    api = limited(DEFAULTS)
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [container()]}}
    created = api.create(PODS, pod, "kube-system")
    assert created["spec"]["containers"][0]["resources"] == {}


def test_a_pod_that_is_there_may_be_changed() -> None:
    """Its resources cannot change, so a bound that came later is no reason to reject a label."""
    api = open_api(clock=lambda: 1.8e9, seed=1)
    create_pod(api, container())
    spec = {"limits": [{"type": "Container", "min": {"cpu": "1"}}]}
    api.create(LIMIT_RANGES, {"metadata": {"name": "limits"}, "spec": spec}, "default")
    api.patch(PODS, "web", "default", {"metadata": {"labels": {"a": "b"}}})
