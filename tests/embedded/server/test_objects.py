"""The verbs on the store: what a write makes of an object, and how objects are deleted."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from bayplan.api.cluster_api import Change
from bayplan.api.meta import Content
from bayplan.embedded.server import subresources
from bayplan.embedded.server.deletion import FOREGROUND, ORPHAN, DeleteOptions
from bayplan.embedded.server.documents import Entry
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError, UnavailableError
from bayplan.errors import ConflictError, NotFoundError

NOON = 1_800_000_000


def make_api() -> ObjectAPI:
    return open_api(clock=lambda: NOON, seed=1)


def new_pod(name: str = "web", labels: dict[str, str] | None = None, **spec: Any) -> Content:
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": containers, **spec}}


def new_deployment(replicas: int = 1) -> Content:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": new_pod()["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"metadata": {"name": "web"}, "spec": spec}


def watched(api: ObjectAPI, resource: Resource, since: int) -> list[tuple[str, str]]:
    history = api.store.table(resource).history
    entries: list[Entry] = list(history.read(history.position_after(since)) or ())
    return [(entry.change, entry.document.parse()["metadata"]["name"]) for entry in entries]


def running(api: ObjectAPI, name: str, labels: dict[str, str] | None = None) -> None:
    """A pod on a node, ready."""
    api.create(PODS, new_pod(name, labels), "default")
    subresources.bind(api, name, "default", "n1")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    api.patch(PODS, name, "default", {"status": status}, subresource="status")


# Creating and changing


def test_names_are_generated() -> None:
    """From a prefix and five letters that cannot be mistaken for others."""
    made = make_api().create(CONFIG_MAPS, {"metadata": {"generateName": "c-"}}, "default")
    assert re.fullmatch("c-[bcdfghjklmnpqrstvwxz2456789]{5}", made["metadata"]["name"])


def test_the_same_seed_gives_the_same_uids() -> None:
    uids = [make_api().create(NODES, {"metadata": {"name": "n"}})["metadata"]["uid"] for _ in range(2)]
    assert uids[0] == uids[1]


def test_users_do_not_write_what_is_the_servers() -> None:
    """Neither when they create an object nor when they change it."""
    api = make_api()
    meta = {"name": "c", "uid": "mine", "creationTimestamp": "1999-01-01T00:00:00Z", "generation": 9}
    made = api.create(CONFIG_MAPS, {"metadata": meta}, "default")["metadata"]
    assert made["uid"] != "mine"
    assert made["creationTimestamp"] == "2027-01-15T08:00:00Z"
    changed = {"metadata": {**made, "deletionTimestamp": "1999-01-01T00:00:00Z", "labels": {"a": "b"}}}
    assert "deletionTimestamp" not in api.update(CONFIG_MAPS, changed, "default")["metadata"]


def test_a_plain_update_leaves_the_status_alone_and_the_other_way_round() -> None:
    api = make_api()
    api.create(DEPLOYMENTS, new_deployment(), "default")
    patch = {"spec": {"replicas": 3}, "status": {"replicas": 7}}
    plain = api.patch(DEPLOYMENTS, "web", "default", patch)
    assert (plain["spec"]["replicas"], plain["status"]) == (3, {})
    patch = {"spec": {"replicas": 9}, "status": {"replicas": 7}}
    status = api.patch(DEPLOYMENTS, "web", "default", patch, subresource="status")
    assert (status["spec"]["replicas"], status["status"]) == (3, {"replicas": 7})


def test_the_generation_counts_changes_of_the_spec() -> None:
    api = make_api()
    api.create(DEPLOYMENTS, new_deployment(), "default")
    generations = [
        api.patch(DEPLOYMENTS, "web", "default", patch, subresource=sub)["metadata"]["generation"]
        for patch, sub in (
            ({"metadata": {"labels": {"x": "y"}}}, ""),
            ({"spec": {"replicas": 5}}, ""),
            ({"status": {"replicas": 5}}, "status"),
            ({"spec": {"replicas": 5}}, ""),
        )
    ]
    assert generations == [1, 2, 2, 2]


def test_nothing_new_is_no_write() -> None:
    api = make_api()
    made = api.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}}, "default")
    before = api.store.version
    assert api.update(CONFIG_MAPS, made, "default") == made
    assert api.store.version == before


def test_a_dry_run_writes_nothing() -> None:
    """But answers as if it did."""
    api = make_api()
    before = api.store.version
    made = api.create(PODS, new_pod(), "default", dry_run=True)
    assert made["status"]["phase"] == "Pending"
    assert api.store.version == before
    with pytest.raises(NotFoundError):
        api.get(PODS, "web", "default")


def test_a_patch_for_another_version_is_a_conflict() -> None:
    api = make_api()
    api.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "default")
    with pytest.raises(ConflictError, match="the object has been modified"):
        api.patch(CONFIG_MAPS, "c", "default", {"metadata": {"resourceVersion": "1"}, "data": {"a": "b"}})


def test_what_is_handed_out_belongs_to_the_caller() -> None:
    """Changing it changes nothing in the store."""
    api = make_api()
    api.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}}, "default")
    api.get(CONFIG_MAPS, "c", "default")["data"]["a"] = "changed"
    assert api.get(CONFIG_MAPS, "c", "default")["data"] == {"a": "b"}


def test_what_is_handed_in_is_not_changed() -> None:
    """A template may be used for many pods."""
    api = make_api()
    given = new_pod()
    before = copy.deepcopy(given)
    api.create(PODS, given, "default")
    api.patch(PODS, "web", "default", {"spec": given["spec"]})
    assert given == before


# Admission


@pytest.mark.parametrize(
    ("spec", "priority", "policy"),
    [
        pytest.param({}, 5, "Never", id="the default class"),
        pytest.param({"priorityClassName": "high"}, 100, "PreemptLowerPriority", id="the class it names"),
        pytest.param(
            {"priorityClassName": "system-node-critical"},
            2_000_001_000,
            "PreemptLowerPriority",
            id="a system class",
        ),
        pytest.param(
            {"priorityClassName": "high", "priority": 100}, 100, "PreemptLowerPriority", id="it agrees"
        ),
    ],
)
def test_priority_comes_from_the_class(spec: Content, priority: int, policy: str) -> None:
    api = make_api()
    api.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 100})
    default = {"metadata": {"name": "low"}, "value": 5, "globalDefault": True, "preemptionPolicy": "Never"}
    api.create(PRIORITY_CLASSES, default)
    made = api.create(PODS, new_pod(**spec), "default")["spec"]
    assert (made["priority"], made["preemptionPolicy"]) == (priority, policy)


def test_claims_get_the_newest_default_class() -> None:
    api = make_api()
    for name in ("old", "new"):
        marks = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
        api.create(STORAGE_CLASSES, {"metadata": {"name": name, **marks}, "provisioner": "p"})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = api.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "c"}, "spec": spec}, "default")
    assert made["spec"]["storageClassName"] == "new"  # as old as the other, and first by name


def test_services_get_addresses_of_their_own() -> None:
    api = make_api()
    ports = {"ports": [{"port": 80}]}
    addresses = [
        api.create(SERVICES, {"metadata": {"name": name}, "spec": dict(ports)}, "default")["spec"][
            "clusterIP"
        ]
        for name in ("a", "b")
    ]
    assert addresses == ["10.96.0.1", "10.96.0.2"]


def test_a_terminating_namespace_takes_nothing_new() -> None:
    """It is gone when its finalizers are."""
    api = make_api()
    api.create(NAMESPACES, {"metadata": {"name": "shop"}})
    going = api.delete(NAMESPACES, "shop")
    assert going["status"]["phase"] == "Terminating"
    with pytest.raises(StatusError, match="because it is being terminated") as caught:
        api.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "shop")
    assert caught.value.code == 403
    going["spec"]["finalizers"] = []
    api.update(NAMESPACES, going, subresource="finalize")
    with pytest.raises(NotFoundError):
        api.get(NAMESPACES, "shop")


# Deleting


def test_a_pod_that_runs_is_given_time() -> None:
    """Until its kubelet deletes it with none; a second deletion can only shorten the time."""
    api = make_api()
    running(api, "web")
    since = api.store.version
    marked = api.delete(PODS, "web", "default")["metadata"]
    assert (marked["deletionTimestamp"], marked["deletionGracePeriodSeconds"]) == ("2027-01-15T08:00:30Z", 30)
    shorter = api.delete(PODS, "web", "default", DeleteOptions(grace_period_seconds=5))["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    same = api.delete(PODS, "web", "default", DeleteOptions(grace_period_seconds=20))["metadata"]
    assert same["deletionGracePeriodSeconds"] == 5
    api.delete(PODS, "web", "default", DeleteOptions(grace_period_seconds=0))
    assert watched(api, PODS, since) == [
        (Change.MODIFIED, "web"),
        (Change.MODIFIED, "web"),
        (Change.DELETED, "web"),
    ]


@pytest.mark.parametrize(
    "finish",
    [
        pytest.param(lambda api: None, id="it never ran"),
        pytest.param(
            lambda api: api.patch(
                PODS, "web", "default", {"status": {"phase": "Failed"}}, subresource="status"
            ),
            id="it has ended",
        ),
    ],
)
def test_a_pod_that_does_not_run_is_deleted_at_once(finish: Any) -> None:
    api = make_api()
    api.create(PODS, new_pod(), "default")
    finish(api)
    api.delete(PODS, "web", "default")
    with pytest.raises(NotFoundError):
        api.get(PODS, "web", "default")


def test_finalizers_are_waited_for() -> None:
    """The object is deleted with the last one, and gets no new ones."""
    api = make_api()
    api.create(CONFIG_MAPS, {"metadata": {"name": "c", "finalizers": ["x.io/a", "x.io/b"]}}, "default")
    assert "deletionTimestamp" in api.delete(CONFIG_MAPS, "c", "default")["metadata"]
    with pytest.raises(StatusError, match="no new finalizers can be added"):
        api.patch(CONFIG_MAPS, "c", "default", {"metadata": {"finalizers": ["x.io/a", "x.io/c"]}})
    api.patch(CONFIG_MAPS, "c", "default", {"metadata": {"finalizers": ["x.io/b"]}})
    api.patch(CONFIG_MAPS, "c", "default", {"metadata": {"finalizers": []}})
    with pytest.raises(NotFoundError):
        api.get(CONFIG_MAPS, "c", "default")


@pytest.mark.parametrize(
    ("policy", "finalizer"),
    [
        pytest.param(FOREGROUND, "foregroundDeletion", id="dependents are deleted first"),
        pytest.param(ORPHAN, "orphan", id="dependents are left alone"),
    ],
)
def test_the_garbage_collector_is_left_word(policy: str, finalizer: str) -> None:
    api = make_api()
    api.create(DEPLOYMENTS, new_deployment(), "default")
    marked = api.delete(DEPLOYMENTS, "web", "default", DeleteOptions(propagation=policy))
    assert marked["metadata"]["finalizers"] == [finalizer]


def test_another_object_of_the_same_name_is_not_deleted() -> None:
    api = make_api()
    api.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "default")
    with pytest.raises(ConflictError, match="the UID in the precondition"):
        api.delete(CONFIG_MAPS, "c", "default", DeleteOptions(uid="other"))


# Eviction and scale


def budget(api: ObjectAPI, allowed: int) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    api.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, "default")
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed,
        "desiredHealthy": 1,
    }
    api.patch(POD_DISRUPTION_BUDGETS, "b", "default", {"status": status}, subresource="status")


def test_an_eviction_takes_from_the_budget() -> None:
    api = make_api()
    running(api, "web", {"app": "web"})
    budget(api, allowed=1)
    subresources.evict(api, "web", "default", DeleteOptions())
    status = api.get(POD_DISRUPTION_BUDGETS, "b", "default")["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["web"])
    assert "deletionTimestamp" in api.get(PODS, "web", "default")["metadata"]


def test_an_eviction_beyond_the_budget_is_rejected() -> None:
    """429, without a time: clients would repeat the request, and kubectl drain show no reason."""
    api = make_api()
    running(api, "web", {"app": "web"})
    budget(api, allowed=0)
    with pytest.raises(UnavailableError, match="would violate the pod's disruption budget") as caught:
        subresources.evict(api, "web", "default", DeleteOptions())
    assert (caught.value.code, caught.value.retry_after_seconds) == (429, None)
    (cause,) = (caught.value.details or {})["causes"]
    assert cause["message"] == "The disruption budget b needs 1 healthy pods and has 1 currently"


def test_an_eviction_is_tried_again_once_the_budget_was_processed() -> None:
    api = make_api()
    running(api, "web", {"app": "web"})
    budget(api, allowed=1)
    changed = api.get(POD_DISRUPTION_BUDGETS, "b", "default")
    changed["spec"]["minAvailable"] = 0
    api.update(POD_DISRUPTION_BUDGETS, changed)
    with pytest.raises(UnavailableError) as caught:
        subresources.evict(api, "web", "default", DeleteOptions())
    assert (caught.value.code, caught.value.retry_after_seconds) == (429, 10)


def test_a_pod_that_does_not_run_is_evicted_anyway() -> None:
    api = make_api()
    api.create(PODS, new_pod("web", {"app": "web"}), "default")
    budget(api, allowed=0)
    subresources.evict(api, "web", "default", DeleteOptions())
    with pytest.raises(NotFoundError):
        api.get(PODS, "web", "default")


def test_scale_reads_and_writes_replicas() -> None:
    api = make_api()
    api.create(DEPLOYMENTS, new_deployment(2), "default")
    found = subresources.get_scale(api, DEPLOYMENTS, "web", "default")
    assert (found["spec"], found["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "a=b"})
    found["spec"]["replicas"] = 4
    subresources.update_scale(api, DEPLOYMENTS, found, "default")
    assert api.get(DEPLOYMENTS, "web", "default")["spec"]["replicas"] == 4
    with pytest.raises(ConflictError):
        subresources.update_scale(api, DEPLOYMENTS, found, "default")


# Custom resources


def definition() -> Content:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"minMember": {"type": "integer"}}}},
    }
    names = {"plural": "podgroups", "kind": "PodGroup", "shortNames": ["pg"]}
    made = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    spec = {"group": "scheduling.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [made]}
    return {"metadata": {"name": "podgroups.scheduling.x-k8s.io"}, "spec": spec}


def test_a_definition_is_served_as_long_as_it_is_there() -> None:
    """Its objects are deleted with it."""
    api = make_api()
    made = api.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
    assert [c["type"] for c in made["status"]["conditions"]] == ["NamesAccepted", "Established"]
    groups = api.catalog.of_kind("scheduling.x-k8s.io/v1alpha1", "PodGroup")
    api.create(groups, {"metadata": {"name": "g"}, "spec": {"minMember": 3}}, "default")
    since = api.store.version
    api.delete(CUSTOM_RESOURCE_DEFINITIONS, "podgroups.scheduling.x-k8s.io")
    assert api.catalog.find("scheduling.x-k8s.io", "v1alpha1", "podgroups") is None
    assert watched(api, CUSTOM_RESOURCE_DEFINITIONS, since) == [
        (Change.DELETED, "podgroups.scheduling.x-k8s.io")
    ]
    api.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
    assert api.list(api.catalog.of_kind("scheduling.x-k8s.io/v1alpha1", "PodGroup")) == []


def test_an_update_of_a_custom_object_names_its_version() -> None:
    """As a real server demands it of custom resources."""
    api = make_api()
    api.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
    groups = api.catalog.of_kind("scheduling.x-k8s.io/v1alpha1", "PodGroup")
    made = api.create(groups, {"metadata": {"name": "g"}, "spec": {"minMember": 3}}, "default")
    with pytest.raises(StatusError, match="must be specified for an update"):
        api.update(groups, {"metadata": {"name": "g"}, "spec": {"minMember": 4}}, "default")
    made["spec"]["minMember"] = 4
    assert api.update(groups, made, "default")["metadata"]["generation"] == 2
