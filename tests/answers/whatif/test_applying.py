"""`Cluster.apply`: what kubectl apply and the controllers would do, and what the API server would refuse."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from bayplan.answers.sources.redaction import without_manifests
from bayplan.answers.whatif import Cluster, Outcome, machine
from bayplan.answers.whatif.capacity import nodes_needed
from bayplan.api.decode import decode_all
from bayplan.api.defaults import with_defaults
from bayplan.api.meta import Object
from bayplan.errors import InputError
from bayplan.testing.builders import make_pod

Content = dict[str, Any]


def workload(kind: str = "Deployment", *, cpu: Any = "1", image: Any = "i:1", **spec: Any) -> Content:
    """A workload `web`; `pod` are fields of its pods."""
    pod = {
        "containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}],
        **spec.pop("pod", {}),
    }
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "web"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {**selector, "template": template, **spec},
    }


def node(name: str, cpu: str = "4", **fields: Any) -> Content:
    labels = {"kubernetes.io/hostname": name, **fields.pop("labels", {})}
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": fields,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def cluster_of(*contents: Content) -> Cluster:
    return Cluster.from_objects(with_defaults(decode_all({"kind": "List", "items": list(contents)})))


def running(*contents: Content, nodes: int = 1, cpu: str = "4") -> Cluster:
    """A cluster in which the workloads run: what it has is read as a dump would be."""
    cluster = cluster_of(*(node(f"n{i}", cpu) for i in range(nodes)))
    cluster.apply(*contents)
    assert cluster.schedule().fits
    return Cluster.from_objects(dumped(cluster))


def dumped(cluster: Cluster) -> list[Object]:
    """Its objects, with uids that the store of another cluster does not give again."""
    return [replace(one, metadata=replace(one.metadata, uid=f"d{one.uid}")) for one in cluster.objects]


def test_new_pods_get_uids_that_the_objects_do_not_have() -> None:
    """Also if another cluster of this process has created the objects."""
    first = cluster_of(node("n0"))
    first.add(make_pod("a"), make_pod("b"))
    second = Cluster.from_objects(first.objects)
    second.add(make_pod("c"))
    uids = [pod.uid for pod in second.pending]
    assert len(set(uids)) == len(uids) == 3


def without_workloads(cluster: Cluster) -> Cluster:
    """The same cluster as a dump of nodes and pods."""
    kept = ("Node", "Pod")
    return Cluster.from_objects(item for item in dumped(cluster) if type(item).__name__ in kept)


def counts(cluster: Cluster) -> tuple[int, int]:
    """Pods with and without a node."""
    return len(cluster.pods) - len(cluster.pending), len(cluster.pending)


# Scaling

KINDS = ("Deployment", "ReplicaSet", "StatefulSet")


@pytest.mark.parametrize("dump", ["with workloads", "pods only"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_existing_workload_is_scaled(kind: str, dump: str) -> None:
    """Five replicas in the manifest and three running: two more."""
    cluster = running(workload(kind, replicas=3), nodes=2)
    cluster = cluster if dump == "with workloads" else without_workloads(cluster)
    [applied] = cluster.apply(workload(kind, replicas=5))
    assert (applied.change, applied.created, counts(cluster)) == ("changed", 2, (3, 2))
    [applied] = cluster.apply(workload(kind, replicas=5))
    assert (applied.change, applied.created) == ("unchanged", 0)
    [applied] = cluster.apply(workload(kind, replicas=1))
    assert (applied.change, applied.deleted, sum(counts(cluster))) == ("changed", 4, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_replicas_that_are_not_stated_stay(kind: str) -> None:
    """An autoscaler may have set them."""
    cluster = running(workload(kind, replicas=3))
    assert cluster.apply(workload(kind))[0].change == "unchanged"
    assert counts(cluster) == (3, 0)


def test_a_workload_of_another_kind_or_namespace_is_another_one() -> None:
    cluster = running(workload(replicas=1))
    [other] = cluster.apply({**workload(replicas=1), "metadata": {"name": "web", "namespace": "kube-system"}})
    [set_] = cluster.apply(workload("ReplicaSet", replicas=1))
    assert (other.change, set_.change) == ("new", "new")


def test_other_objects_are_new_changed_or_unchanged() -> None:
    cluster = running(workload(replicas=1))
    service = yaml.safe_load(
        "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {a: b}, ports: [{port: 1}]}}"
    )
    changes = [cluster.apply(service)[0].change for _ in range(2)]
    changes.append(cluster.apply({**service, "spec": {**service["spec"], "selector": {"a": "c"}}})[0].change)
    assert changes == ["new", "unchanged", "changed"]


# Rollouts


def strategy(surge: int, unavailable: int) -> Content:
    return {
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
        }
    }


@pytest.mark.parametrize(
    ("surge", "unavailable", "cpu", "expected"),
    [
        pytest.param(1, 0, "6", (True, 5, 5, 0), id="there is room for one more"),
        pytest.param(1, 0, "5", (False, 0, 5, 1), id="there is none, and none may be unavailable"),
        pytest.param(0, 1, "5", (True, 5, 4, 0), id="one may be unavailable"),
        pytest.param(1, 1, "5", (True, 5, 4, 1), id="of the first two new pods one has to wait"),
    ],
)
@pytest.mark.parametrize("dump", ["with workloads", "snapshot", "pods only"])
def test_a_deployment_is_rolled_out(
    surge: int, unavailable: int, cpu: str, expected: tuple[bool, int, int, int], dump: str
) -> None:
    rules = strategy(surge, unavailable)
    cluster = running(workload(replicas=5, **rules), cpu=cpu)
    if dump == "snapshot":
        cluster = Cluster.from_objects(map(without_manifests, dumped(cluster)))
    elif dump == "pods only":
        cluster = without_workloads(cluster)
    assert cluster.apply(workload(replicas=5, image="i:2", **rules))[0].change == "changed"
    placed = cluster.schedule()
    [rollout] = placed.rollouts
    assert (rollout.is_complete, rollout.updated, rollout.available, rollout.pending) == expected
    assert placed.fits == rollout.is_complete
    assert ("Insufficient cpu" in rollout.reason) == bool(rollout.pending)
    if rollout.is_complete:
        assert {pod.spec.containers[0].image for pod in cluster.pods} == {"i:2"}


def test_a_rollout_stalls_with_larger_pods() -> None:
    """Of five pods four get the new size; what is left of the nodes is not enough for the fifth."""
    rules = strategy(1, 1)
    cluster = running(workload(replicas=5, **rules), cpu="7500m")
    cluster.apply(workload(replicas=5, cpu="1600m", **rules))
    placed = cluster.schedule()
    [rollout] = placed.rollouts
    assert (rollout.is_complete, rollout.updated, rollout.wanted) == (False, 4, 5)
    assert "stalls at 4 of 5" in str(rollout)
    assert "Insufficient cpu" in str(rollout)
    assert not placed.fits


def test_environment_variables_are_part_of_the_template() -> None:
    """Scheduling does not read them, but a change of them replaces all pods; also where the cluster is a
    snapshot, which does not have them."""
    manifest = workload(replicas=2)
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    cluster = Cluster.from_objects(map(without_manifests, dumped(running(manifest))))
    with cluster.branch() as branch:
        assert branch.apply(manifest)[0].change == "unchanged"
        assert not branch.schedule().rollouts
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "2"}]
    cluster.apply(manifest)
    assert cluster.schedule().rollouts[0].is_complete


def test_recreate_deletes_all_pods_first() -> None:
    rules: Content = {"strategy": {"type": "Recreate"}}
    cluster = running(workload(replicas=4, **rules))
    cluster.apply(workload(replicas=4, image="i:2", **rules))
    [rollout] = cluster.schedule().rollouts
    assert (rollout.is_complete, rollout.available, rollout.pending) == (True, 0, 0)


def test_a_stateful_set_is_updated_from_the_last_pod_to_the_first() -> None:
    cluster = running(workload("StatefulSet", replicas=3))
    cluster.apply(workload("StatefulSet", replicas=3, cpu="1500m"))
    placed = cluster.schedule()
    [rollout] = placed.rollouts
    assert (rollout.is_complete, rollout.updated) == (False, 2)
    assert [one.pod for one in placed.not_scheduled] == ["default/web-0"]
    assert "stalls at 2 of 3" in str(rollout)


def test_a_partition_keeps_the_first_pods() -> None:
    rules = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}
    cluster = running(workload("StatefulSet", replicas=3, **rules))
    cluster.apply(workload("StatefulSet", replicas=3, image="i:2", **rules))
    [rollout] = cluster.schedule().rollouts
    assert (rollout.is_complete, rollout.updated) == (True, 1)
    assert [pod.spec.containers[0].image for pod in cluster.pods] == ["i:1", "i:1", "i:2"]


def test_on_delete_changes_no_pods() -> None:
    rules = {"updateStrategy": {"type": "OnDelete"}}
    cluster = running(workload("StatefulSet", replicas=2, **rules))
    [applied] = cluster.apply(workload("StatefulSet", replicas=2, image="i:2", **rules))
    assert "OnDelete" in applied.note
    assert not cluster.schedule().rollouts


# DaemonSets


def test_a_daemon_set_has_a_pod_on_each_eligible_node() -> None:
    tainted = node("b", taints=[{"key": "k", "effect": "NoSchedule"}])
    cluster = cluster_of(node("a"), tainted, node("c", labels={"gpu": "no"}))
    cluster.apply(workload("DaemonSet", pod={"nodeSelector": {"kubernetes.io/hostname": "a"}}))
    assert cluster.schedule().nodes == {"default/web-a": "a"}
    cluster = cluster_of(node("a"), tainted, node("c"))
    cluster.apply(workload("DaemonSet"))
    assert sorted(cluster.schedule().nodes.values()) == ["a", "c"]


@pytest.mark.parametrize("dump", ["with workloads", "pods only"])
def test_daemon_sets_run_on_added_nodes(dump: str) -> None:
    cluster = running(workload("DaemonSet"), nodes=1)
    cluster = cluster if dump == "with workloads" else without_workloads(cluster)
    cluster.add_nodes(2, "n0")
    assert sorted(cluster.schedule().nodes.values()) == ["n0-new-0", "n0-new-1"]
    with cluster.branch() as branch:
        branch.add_nodes(1, "cpu=2,memory=4Gi")
        assert list(branch.schedule().nodes.values()) == ["machine-new-0"]


def test_nodes_are_counted_with_their_daemon_sets() -> None:
    """Six nodes of 2 CPUs for six pods of 1 CPU, because a DaemonSet needs 1 CPU on each."""
    cluster = running(workload("DaemonSet"), nodes=1, cpu="1")
    pod = make_pod("p", cpu="1")
    assert nodes_needed(cluster, [(pod, 1)], 6, machine("cpu=2,memory=8Gi")).count == 6


@pytest.mark.parametrize(
    ("rolling", "cpu", "complete"),
    [
        pytest.param({"maxUnavailable": 1}, "1", True, id="the old pod makes room"),
        pytest.param({"maxSurge": 1, "maxUnavailable": 0}, "1", False, id="both need room"),
        pytest.param({"maxSurge": 1, "maxUnavailable": 0}, "2", True, id="both have room"),
    ],
)
def test_a_daemon_set_is_rolled_out(rolling: Content, cpu: str, complete: bool) -> None:
    rules = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
    cluster = running(workload("DaemonSet", **rules), nodes=3, cpu=cpu)
    cluster.apply(workload("DaemonSet", image="i:2", **rules))
    [rollout] = cluster.schedule().rollouts
    assert (rollout.is_complete, rollout.updated) == (complete, 3 if complete else 0)


# Jobs, and what is left out


def test_a_suspended_job_has_no_pods() -> None:
    job = workload("Job", parallelism=3, completions=3, pod={"restartPolicy": "Never"})
    cluster = cluster_of(node("a"))
    with cluster.branch() as branch:
        [applied] = branch.apply({**job, "spec": {**job["spec"], "suspend": True}})
        assert (applied.created, applied.note) == (0, "suspended: no pods")
    assert cluster.apply(job)[0].created == 3
    assert cluster.apply(job)[0].change == "unchanged"


def test_a_paused_deployment_gets_no_pods_before_it_is_resumed() -> None:
    paused = workload("Deployment", replicas=3, paused=True)
    cluster = cluster_of(node("a"))
    [applied] = cluster.apply(paused)
    assert (applied.created, applied.note) == (0, "paused: no pods until it is resumed")
    resumed = {**paused, "spec": {**paused["spec"], "paused": False}}
    assert cluster.apply(resumed)[0].created == 3


def test_a_paused_deployment_is_scaled_and_not_rolled_out() -> None:
    cluster = running(workload("Deployment", replicas=2))
    [applied] = cluster.apply(workload("Deployment", replicas=3, image="i:2", paused=True))
    note = "paused: the changed template is not rolled out until it is resumed"
    assert (applied.change, applied.created, applied.note) == ("changed", 1, note)
    placed = cluster.schedule()
    assert (len(placed.scheduled), placed.rollouts) == (1, ())
    assert cluster.apply(workload("Deployment", replicas=3, image="i:2", paused=False))[0].change == "changed"
    assert len(cluster.schedule().rollouts) == 1


# StatefulSets


@pytest.mark.parametrize(
    ("policy", "outcomes"),
    [
        ("OrderedReady", [Outcome.UNSCHEDULABLE, Outcome.NOT_CREATED, Outcome.NOT_CREATED]),
        ("Parallel", [Outcome.UNSCHEDULABLE] * 3),
    ],
)
def test_a_stateful_set_creates_no_pod_before_the_earlier_ones_run(
    policy: str, outcomes: list[Outcome]
) -> None:
    cluster = cluster_of(node("a"))
    cluster.apply(workload("StatefulSet", replicas=3, cpu="5", podManagementPolicy=policy))
    placed = cluster.schedule()
    assert [one.outcome for one in placed] == outcomes
    assert len(cluster.pods) == outcomes.count(Outcome.UNSCHEDULABLE)
    if policy == "OrderedReady":
        reason = "its StatefulSet creates it when web-0 runs (podManagementPolicy OrderedReady)"
        assert [one.reason for one in placed][1:] == [reason, reason]


@pytest.mark.parametrize("change", ["apply", "scale"])
def test_a_pending_pod_of_a_stateful_set_stops_those_that_are_added(change: str) -> None:
    """Even if there is room for them, and the pending one is ignored."""
    cluster = running(workload("StatefulSet", replicas=2))
    cluster.evict("default/web-1")
    cluster.cordon("n0")
    cluster.schedule()
    cluster.add_nodes(1, like="cpu=8,memory=32Gi")
    before = {pod.uid for pod in cluster.pending}
    if change == "apply":
        cluster.apply(workload("StatefulSet", replicas=4))
    else:
        cluster.scale("web", 4)
    placed = cluster.schedule([pod for pod in cluster.pending if pod.uid not in before])
    assert {one.pod: one.outcome for one in placed} == {
        "default/web-2": Outcome.NOT_CREATED,
        "default/web-3": Outcome.NOT_CREATED,
    }


def test_the_template_of_a_job_cannot_be_changed() -> None:
    cluster = running(workload("Job", pod={"restartPolicy": "Never"}))
    with pytest.raises(InputError, match="field is immutable"):
        cluster.apply(workload("Job", image="i:2", pod={"restartPolicy": "Never"}))


def autoscaler(**spec: Any) -> Content:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": target, **spec},
    }


ONCE = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}


@pytest.mark.parametrize(
    "content",
    [
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web"}},
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "web"}},
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "web"},
            "spec": {
                "schedule": "0 * * * *",
                "jobTemplate": {"spec": {"template": workload()["spec"]["template"] | {"spec": ONCE}}},
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "web"},
        },
    ],
    ids=lambda content: content["kind"],
)
def test_kinds_that_are_not_judged_are_named(content: Content) -> None:
    cluster = cluster_of(node("a"))
    assert cluster.apply(content) == []
    [left_out] = cluster.left_out
    assert left_out.kind.startswith(content["kind"])


def test_an_autoscaler_is_left_out_with_what_it_may_do() -> None:
    cluster = cluster_of(node("a"))
    applied = cluster.apply(workload(), autoscaler(minReplicas=2, maxReplicas=9))
    assert [one.kind for one in applied] == ["Deployment"]
    [left_out] = cluster.left_out
    assert "the replicas of Deployment web, 2 to 9, by metrics" in left_out.why


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        pytest.param(None, {"replicas": 2}, True, id="new"),
        pytest.param(None, {}, True, id="new, without replicas"),
        pytest.param({"replicas": 3}, {"replicas": 2}, True, id="scaled"),
        pytest.param({"replicas": 3}, {}, False, id="its replicas stay"),
    ],
)
def test_an_autoscaler_of_the_cluster_is_named_where_replicas_are_set(
    before: Content | None, after: Content, named: bool
) -> None:
    """It sets others than the manifest states, by metrics: how many pods there will be is not known."""
    there = [] if before is None else dumped(running(workload(**before)))
    others = with_defaults(decode_all({"kind": "List", "items": [node("n0"), autoscaler(maxReplicas=9)]}))
    cluster = Cluster.from_objects([*(there or others[:1]), others[1]])
    cluster.apply(workload(**after))
    assert [one.kind for one in cluster.left_out] == ["HorizontalPodAutoscaler"] * named


def test_what_is_left_out_has_to_be_valid() -> None:
    with pytest.raises(InputError, match="is invalid"):
        cluster_of(node("a")).apply(
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "web"}}
        )


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_scaling_from_zero_uses_the_template(kind: str) -> None:
    cluster = running(workload(kind, replicas=0, cpu="3"), nodes=2)
    assert len(cluster.scale("web", 2)) == 2
    assert cluster.schedule().fits
    cluster.scale("web", 3)
    assert not cluster.schedule().fits


def test_scaling_counts_for_quotas() -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "two", "namespace": "default"},
        "spec": {"hard": {"pods": "2"}},
    }
    cluster = running(workload(replicas=1), quota)
    assert len(cluster.scale("web", 3)) == 1
    assert [one.outcome for one in cluster.schedule() if not one.fits] == [Outcome.REJECTED]
    cluster.scale("web", 0)
    assert len(cluster.scale("web", 2)) == 2


# Admission

GVISOR = yaml.safe_load("""
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: gvisor}
handler: runsc
overhead: {podFixed: {cpu: "2"}}
scheduling: {nodeSelector: {sandbox: "yes"}, tolerations: [{key: sandbox, operator: Exists}]}
""")


def test_a_runtime_class_adds_overhead_selector_and_tolerations() -> None:
    sandbox = node(
        "b", cpu="3", labels={"sandbox": "yes"}, taints=[{"key": "sandbox", "effect": "NoSchedule"}]
    )
    cluster = cluster_of(node("a"), sandbox)
    cluster.apply(GVISOR, workload(replicas=2, pod={"runtimeClassName": "gvisor"}))
    placed = cluster.schedule()
    assert list(placed.nodes.values()) == ["b"]
    assert len(placed.not_scheduled) == 1, "with its overhead a pod needs 3 CPUs"


def test_a_runtime_class_that_is_missing() -> None:
    manifest = workload(pod={"runtimeClassName": "gvisor"})
    cluster = cluster_of(node("a"))
    cluster.apply(manifest)
    assert "RuntimeClass gvisor is not in the dump" in cluster.schedule().warnings[0].message
    known = cluster_of(node("a"), {**GVISOR, "metadata": {"name": "kata"}})
    with pytest.raises(InputError, match='pod rejected: RuntimeClass "gvisor" not found'):
        known.apply(manifest)


LIMITS = yaml.safe_load("""
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: default}
spec: {limits: [{type: Container, defaultRequest: {cpu: "3"}, default: {cpu: "3"}, max: {cpu: "4"}}]}
""")


@pytest.mark.parametrize("where", ["dump", "manifest"])
def test_a_limit_range_sets_requests(where: str) -> None:
    manifest = workload(replicas=2)
    del manifest["spec"]["template"]["spec"]["containers"][0]["resources"]
    cluster = cluster_of(node("a"), *([LIMITS] if where == "dump" else []))
    cluster.apply(manifest) if where == "dump" else cluster.apply(LIMITS, manifest)
    placed = cluster.schedule()
    assert (len(placed.scheduled), len(placed.not_scheduled)) == (1, 1)


def test_a_limit_range_rejects_pods() -> None:
    cluster = cluster_of(node("a", cpu="16"), LIMITS)
    manifest = workload(cpu="5")
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "5"}
    cluster.apply(manifest)
    [placed] = cluster.schedule()
    assert placed.outcome is Outcome.REJECTED
    assert placed.reason.startswith('pods "web-0" is forbidden: ')
    assert "maximum cpu usage per Container is 4" in placed.reason


def quota(**hard: str) -> Content:
    meta = {"name": "team", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}


@pytest.mark.parametrize("where", ["dump", "manifest"])
def test_a_quota_rejects_pods(where: str) -> None:
    cluster = running(workload(replicas=2), *([quota(pods="3")] if where == "dump" else []), nodes=2)
    contents = [workload(replicas=5)] if where == "dump" else [quota(pods="3"), workload(replicas=5)]
    cluster.apply(*contents)
    placed = cluster.schedule()
    rejected = [one for one in placed if one.outcome is Outcome.REJECTED]
    assert (len(placed.scheduled), len(rejected), placed.fits) == (1, 2, False)
    assert "exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3" in rejected[0].reason


def test_a_quota_without_room_for_the_surge_stalls_a_rollout() -> None:
    """Pods that are deleted are not counted any more."""
    for unavailable, complete in ((0, False), (1, True)):
        rules = strategy(1, unavailable)
        cluster = running(quota(pods="3"), workload(replicas=3, **rules), nodes=2)
        cluster.apply(workload(replicas=3, image="i:2", **rules))
        [rollout] = cluster.schedule().rollouts
        assert rollout.is_complete is complete
        if not complete:
            assert "exceeded quota" in rollout.reason


def test_capacity_ends_at_a_quota() -> None:
    cluster = cluster_of(node("a"), quota(pods="2"))
    found = cluster.capacity(make_pod("p", cpu="100m"))
    assert (found.count, found.is_limit) == (2, True)
    assert "exceeded quota: team" in found.reason
    assert cluster.capacity(make_pod("p", cpu="100m")).count == 2, "nothing stays charged"


def test_priority_classes_are_those_of_the_cluster_and_the_manifest() -> None:
    urgent = yaml.safe_load(
        "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 7}"
    )
    cluster = cluster_of(node("a"))
    with pytest.raises(InputError, match="no PriorityClass with name urgent was found"):
        cluster.apply(workload(pod={"priorityClassName": "urgent"}))
    cluster.apply(urgent)
    cluster.apply(workload(pod={"priorityClassName": "urgent"}))
    assert cluster.pending[0].spec.priority == 7


# Refusals


def broken(**changes: Any) -> Content:
    manifest = workload()
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"][0] |= changes.pop("container", {})
    pod |= changes.pop("pod", {})
    manifest["spec"] |= changes
    return manifest


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (
            broken(container={"resources": {"request": {"cpu": "1"}}}),
            'strict decoding error: unknown field "spec.template.spec.containers[0].resources.request"',
        ),
        (broken(pod={"nodeSelctor": {"a": "b"}}), 'unknown field "spec.template.spec.nodeSelctor"'),
        (
            broken(selector={"matchLabels": {"app": "other"}}),
            "`selector` does not match template `labels`",
        ),
        (
            broken(container={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
            "must be less than or equal to cpu limit of 1",
        ),
        (broken(replicas="x"), "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas"),
        (broken(container={"image": ""}), "spec.template.spec.containers[0].image: Required value"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_a_server_refuses(manifest: Content, message: str) -> None:
    with pytest.raises(InputError) as error:
        cluster_of(node("a")).apply(manifest)
    assert message in str(error.value)


def test_a_namespace_has_to_exist_where_namespaces_are_known() -> None:
    shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    manifest = workload() | {"metadata": {"name": "web", "namespace": "shop"}}
    assert cluster_of(node("a")).apply(manifest)[0].change == "new"
    other = {**shop, "metadata": {"name": "other"}}
    with pytest.raises(InputError, match='namespaces "shop" not found'):
        cluster_of(node("a"), other).apply(manifest)
    assert cluster_of(node("a"), other).apply(shop, manifest)[1].change == "new"


def test_a_selector_cannot_be_changed() -> None:
    cluster = running(workload())
    manifest = workload()
    manifest["spec"]["selector"] = {"matchLabels": {"tier": "x"}}
    manifest["spec"]["template"]["metadata"]["labels"] = {"tier": "x"}
    with pytest.raises(InputError, match="field is immutable"):
        cluster.apply(manifest)


def test_claims_of_a_stateful_set_can_be_mounted_but_not_changed() -> None:
    def with_claim(size: str) -> Content:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        made = workload("StatefulSet", volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": spec}])
        container = made["spec"]["template"]["spec"]["containers"][0]
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        return made

    cluster = cluster_of(node("a"))
    assert cluster.apply(with_claim("1Gi"))[0].created == 1
    assert cluster.apply(with_claim("1Gi"))[0].change == "unchanged"
    with pytest.raises(InputError, match="updates to statefulset spec for fields other than"):
        cluster.apply(with_claim("2Gi"))


def test_a_branch_reverts_what_was_applied() -> None:
    cluster = running(workload(replicas=2), quota(pods="3"))
    before = cluster.objects
    with cluster.branch() as branch:
        branch.apply(workload(replicas=3, image="i:2"))
        branch.schedule()
    assert cluster.objects == before
    assert not cluster.schedule().rollouts


def test_the_default_class_may_be_missing_from_the_dump() -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    manifest = workload("StatefulSet", volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": claim}])
    cluster = cluster_of(node("a"))
    cluster.apply(manifest)
    texts = [one.message for one in cluster.schedule().warnings]
    text = "a claim without a class is evaluated as if there were no default class"
    assert f"the dump has no storageclasses: {text}" in texts
