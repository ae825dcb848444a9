"""Changes of a cluster: scaling in the order of controllers, another configuration, budgets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.answers.whatif import Cluster
from bayplan.api.meta import LabelSelector, OwnerReference
from bayplan.api.pod import LocalVolumeSource, Pod, Volume
from bayplan.api.workloads import ReplicaSet
from bayplan.config import parse_config
from bayplan.errors import InputError
from bayplan.testing.builders import make_node, make_pdb, make_pod

PACK = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: packer
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


def member(name: str, kind: str, owner: str, **fields: Any) -> Pod:
    reference = OwnerReference(api_version="apps/v1", kind=kind, name=owner, uid=owner, controller=True)
    return make_pod(name, cpu="100m", owner=reference, **fields)


def names(cluster: Cluster) -> list[str]:
    return [pod.name for pod in cluster.pods]


def at(minute: int) -> datetime:
    return datetime(2026, 1, 1, 0, minute, tzinfo=UTC)


def test_a_stateful_set_loses_its_highest_ordinals() -> None:
    pods = [member(f"db-{i}", "StatefulSet", "db", node="n0") for i in (0, 1, 2, 10)]
    cluster = Cluster.from_objects([make_node("n0"), *pods])
    cluster.scale("db", 2)
    assert names(cluster) == ["db-0", "db-1"]
    assert [pod.name for pod in cluster.scale("default/db", 4)] == ["db-2", "db-3"]


@pytest.mark.parametrize(
    ("left", "fields"),
    [
        pytest.param("a", [{"node": "n0"}, {}], id="pods without a node are first"),
        pytest.param(
            "b",
            [
                {"node": "n0", "annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}},
                {"node": "n0"},
            ],
            id="then those with a lower deletion cost",
        ),
        pytest.param(
            "a",
            [{"node": "n0", "created": at(1)}, {"node": "n1", "created": at(2)}],
            id="then newer ones",
        ),
    ],
)
def test_a_replica_set_deletes_in_the_order_of_its_controller(left: str, fields: list[Any]) -> None:
    pods = [member(name, "ReplicaSet", "web-1", **given) for name, given in zip("ab", fields, strict=True)]
    cluster = Cluster.from_objects([make_node("n0"), make_node("n1"), *pods])
    cluster.scale("web-1", 1)
    assert names(cluster) == [left]


def test_a_deployment_is_found_by_the_hash_of_its_pods() -> None:
    pod = member("web-abc-x", "ReplicaSet", "web-abc", node="n0", labels={"pod-template-hash": "abc"})
    cluster = Cluster.from_objects([make_node("n0"), pod])
    assert [made.name for made in cluster.scale("web", 2)] == ["web-abc-new-0"]
    cluster.scale("web", 0)
    assert names(cluster) == []
    with pytest.raises(InputError, match="add its manifest"):
        cluster.scale("web", 1)


def test_another_configuration_lasts_as_long_as_its_branch() -> None:
    pod = make_pod("p", scheduler_name="packer")
    cluster = Cluster.from_objects([make_node("n0"), pod])
    with cluster.branch() as b:
        b.use_config(parse_config(PACK))
        assert b.schedule().fits
        assert not b.can_schedule(make_pod("q"))
    assert not cluster.schedule().fits, "no profile has this name"
    assert cluster.can_schedule(make_pod("q"))


def test_pods_that_are_terminating_are_not_replaced_again() -> None:
    """Their controllers have done that already."""
    going = member("web-a", "ReplicaSet", "web", node="n0", deleted=at(0))
    cluster = Cluster.from_objects([make_node("n0"), make_node("n1"), going, make_pod("p", node="n0")])
    with cluster.branch() as b:
        assert b.drain("n0") == []
        assert [pod.name for pod in b.pods_of("n0")] == ["web-a"]
    with cluster.branch() as b:
        assert b.remove_node("n0") == []
        assert [one.pod for one in b.not_recreated] == ["default/p"]
        assert names(b) == []


JOB_FINALIZER = "batch.kubernetes.io/job-tracking"


@pytest.mark.parametrize("change", ["drain", "remove_node"])
def test_pods_of_jobs_move(change: str) -> None:
    """They have a finalizer, which the Job controller would remove."""
    pod = member("train-1", "Job", "train", node="n0")
    pod = replace(pod, metadata=replace(pod.metadata, finalizers=(JOB_FINALIZER,)))
    cluster = Cluster.from_objects([make_node("n0"), make_node("n1"), pod])
    getattr(cluster, change)("n0")
    assert cluster.schedule()["train-1"].node == "n1"


def test_a_victim_with_a_finalizer_leaves() -> None:
    low = member("low", "Job", "train", node="n0")
    low = replace(low, metadata=replace(low.metadata, finalizers=(JOB_FINALIZER,)))
    high = make_pod("high", cpu="4", priority=10)
    cluster = Cluster.from_objects([make_node("n0", cpu="4"), low, high])
    assert cluster.schedule()["high"].node == "n0"


def test_new_pods_do_not_have_the_zone_that_binding_has_set() -> None:
    """A server copies zone and region of the node to the labels of the pod."""
    zone = {"topology.kubernetes.io/zone": "a"}
    pods = [member(name, "ReplicaSet", "web", node="n0", labels={"app": "web", **zone}) for name in "ab"]
    cluster = Cluster.from_objects([make_node("n0", labels=zone), *pods])
    assert [pod.labels for pod in cluster.scale("web", 3)] == [{"app": "web"}]
    assert [pod.labels for pod in cluster.drain("n0")] == [{"app": "web"}] * 2


def test_kubectl_drain_does_not_delete_empty_dirs() -> None:
    cache = Volume(name="cache", empty_dir=LocalVolumeSource())
    pods = [
        member(f"web-{i}", "ReplicaSet", "web", node="n0", volumes=[cache] if i else []) for i in range(6)
    ]
    cluster = Cluster.from_objects([make_node("n0"), make_node("n1"), make_pdb("budget"), *pods])
    cluster.drain("n0")
    [warning] = cluster.drain_warnings()
    assert warning.message == (
        "draining n0 deletes the emptyDir volumes of default/web-1, default/web-2, default/web-3 and 2 more "
        "pods: kubectl drain does so only with --delete-emptydir-data"
    )


def test_kubectl_drain_does_not_delete_pods_without_a_controller() -> None:
    cluster = Cluster.from_objects([make_node("n0"), make_pod("alone", node="n0"), make_pdb("b")])
    cluster.drain("n0")
    [warning] = cluster.drain_warnings()
    assert (
        "default/alone, which has no controller: kubectl drain does so only with --force" in warning.message
    )


def test_pods_of_a_deployment_have_the_hash_of_their_template() -> None:
    """With matchLabelKeys, pods of an earlier template do not count for spreading."""

    def pods(image: str) -> list[Pod]:
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        raw = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
        cluster = Cluster.from_objects([make_node("n0")])
        cluster.apply(raw)
        made = cluster.pending
        [replica_set] = [item for item in cluster.objects if isinstance(item, ReplicaSet)]
        [digest] = {pod.labels["pod-template-hash"] for pod in made}
        assert replica_set.spec.selector == LabelSelector(
            match_labels={"app": "web", "pod-template-hash": digest}
        )
        assert (
            {pod.metadata.owner_references[0].name for pod in made} == {replica_set.name} == {f"web-{digest}"}
        )
        return made

    old, new = pods("a"), pods("b")
    assert old[0].labels["app"] == "web"
    assert old[0].labels["pod-template-hash"] != new[0].labels["pod-template-hash"]
    assert pods("a") == old
