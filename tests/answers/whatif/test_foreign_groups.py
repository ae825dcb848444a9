"""Groups of other schedulers and Jobs of Volcano in manifests are scheduled as gangs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.whatif import Cluster
from bayplan.answers.whatif.capacity import nodes_needed
from bayplan.api import volcano
from bayplan.api.meta import Content
from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.errors import InputError
from bayplan.testing.builders import make_node

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}, {schedulerName: volcano}]
---
apiVersion: bayplan/v1
kind: BayplanConfiguration
podGroups: [volcano]
queues: {dialect: volcano, file: FILE}
"""
CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: capacity}]
"""
NODES = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: "4", pods: "110"}}}
- {apiVersion: v1, kind: Node, metadata: {name: b}, status: {allocatable: {cpu: "4", pods: "110"}}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: small},
   spec: {capability: {cpu: "5"}}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    (tmp_path / "volcano.conf").write_text(CONF)
    (tmp_path / "config.yaml").write_text(CONFIG.replace("FILE", str(tmp_path / "volcano.conf")))
    (tmp_path / "nodes.yaml").write_text(NODES)
    return Cluster.load(tmp_path / "nodes.yaml", config=tmp_path / "config.yaml")


def task(name: str, replicas: int, **more: Any) -> Content:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": [container]}}, **more}


def job(*tasks: Content, **spec: Any) -> Content:
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    return {**kind, "metadata": {"name": "j", "namespace": "default"}, "spec": {"tasks": list(tasks), **spec}}


def test_a_job_that_fits(cluster: Cluster) -> None:
    (applied,) = cluster.apply(job(task("ps", 1), task("worker", 3)))
    assert str(applied) == "Job default/j new: 4 pods created"
    assert sorted(pod.name for pod in cluster.pending) == ["j-ps-0", "j-worker-0", "j-worker-1", "j-worker-2"]
    assert all(one.fits for one in cluster.schedule().pods)


def test_a_gang_that_does_not_fit_is_not_scheduled_in_part(cluster: Cluster) -> None:
    cluster.apply(job(task("w", 9)))
    placed = cluster.schedule().pods
    assert [one.fits for one in placed] == [False] * 9


def test_a_gang_above_the_limit_of_its_queue_reads_the_numbers(cluster: Cluster) -> None:
    cluster.apply(job(task("w", 6), queue="small"))
    reasons = {one.reason for one in cluster.schedule().pods}
    assert reasons == {"waiting for queue small: cpu 0 allocated, 6 requested, 5 capability"}


def test_the_same_job_again_changes_nothing(cluster: Cluster) -> None:
    cluster.apply(job(task("w", 2)))
    cluster.schedule()
    (applied,) = cluster.apply(job(task("w", 2)))
    assert str(applied) == "Job default/j unchanged"


def test_a_job_with_another_number_of_replicas_is_scaled(cluster: Cluster) -> None:
    cluster.apply(job(task("w", 4), minAvailable=1))
    cluster.schedule()
    (more,) = cluster.apply(job(task("w", 6), minAvailable=1))
    (fewer,) = cluster.apply(job(task("w", 1), minAvailable=1))
    assert [str(more), str(fewer)] == [
        "Job default/j changed: 2 pods created",
        "Job default/j changed: 5 pods deleted",
    ]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(
            job(task("w", 1), networkTopology={}), "evaluated without its networkTopology", id="topology"
        ),
        pytest.param(
            job(task("ps", 1), task("w", 1, dependsOn={"name": ["ps"]}), minAvailable=1),
            "task w begins when ps is ready, and is not evaluated",
            id="dependsOn",
        ),
    ],
)
def test_what_is_not_evaluated_is_named(cluster: Cluster, spec: Content, why: str) -> None:
    cluster.apply(spec)
    assert [str(one) for one in cluster.left_out] == [f"Job default/j: {why}"]


def test_volumes_of_a_job_are_claims_of_its_pods(cluster: Cluster) -> None:
    """Claims with a spec are made; one that is named is left as it is."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    named = {"mountPath": "/in", "volumeClaimName": "data"}
    cluster.apply(job(task("w", 1), volumes=[named, {"mountPath": "/out", "volumeClaim": claim}]))
    (made,) = cluster._store.all(PersistentVolumeClaim)
    (pod,) = cluster._store.all(Pod)
    claims = [each.persistent_volume_claim for each in pod.spec.volumes]
    assert [each.claim_name for each in claims if each] == ["data", made.name]


def test_a_job_that_volcano_rejects(cluster: Cluster) -> None:
    with pytest.raises(InputError, match="Job default/j is invalid: job 'minAvailable'"):
        cluster.apply(job(task("w", 1, minAvailable=2)))


def test_replicas_of_a_job_cannot_be_given(cluster: Cluster) -> None:
    with pytest.raises(InputError, match="has the replicas of its tasks"):
        cluster.apply(job(task("w", 1)), replicas=3)


def test_a_new_pod_group_with_its_pods_is_a_gang(cluster: Cluster) -> None:
    """The group of a dialect is translated, wherever it comes from."""
    group = {"apiVersion": volcano.API_VERSION, "kind": "PodGroup", "metadata": {"name": "g"}}
    contents = [{**group, "spec": {"minMember": 9}}]
    for number in range(9):
        spec = {"schedulerName": "volcano", **task("w", 1)["template"]["spec"]}
        notes = {volcano.GROUP_ANNOTATION: "g"}
        contents.append(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"g-{number}", "annotations": notes},
             "spec": spec}
        )  # fmt: skip
    cluster.apply(*contents)
    placed = cluster.schedule().pods
    assert not any(one.fits for one in placed)
    assert not any("there is no PodGroup" in one.reason for one in placed)


def test_how_many_more_jobs_fit(cluster: Cluster, tmp_path: Path) -> None:
    """A copy of a job is a gang of its minimum."""
    (tmp_path / "job.json").write_text(json.dumps(job(task("w", 3), queue="small", minAvailable=2)))
    found = cluster.capacity(cluster.model(tmp_path / "job.json"))
    assert (found.count, found.gang_size) == (2, 2)
    assert found.reason == "waiting for queue small: cpu 4 allocated, 2 requested, 5 capability"
    assert not list(cluster._store.all(Pod))


def parameter_server(**spec: Any) -> Content:
    """A job whose first task needs most of a node."""
    big = task("ps", 1)
    big["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    return job(big, task("w", 2), **spec)


def test_how_many_jobs_of_several_tasks_fit(cluster: Cluster, tmp_path: Path) -> None:
    """A gang has the pods of the minimum of all tasks; two of three on nodes with four CPUs each."""
    (tmp_path / "job.json").write_text(json.dumps(parameter_server(minAvailable=2)))
    models = cluster.models(tmp_path / "job.json")
    assert [(pod.name, count) for pod, count in models] == [("j-ps-0", 1), ("j-w-0", 1)]
    found = cluster.capacity(models)
    assert (found.count, found.gang_size) == (2, 2)
    assert found.by_node == {"a": 2, "b": 2}
    assert "Insufficient cpu" in found.reason
    assert found.stopped_by == "default/j"


def test_nodes_for_jobs_of_several_tasks(cluster: Cluster, tmp_path: Path) -> None:
    """All three pods of five jobs need 25 CPUs, and a node for each of the large ones."""
    (tmp_path / "job.json").write_text(json.dumps(parameter_server()))
    models = cluster.models(tmp_path / "job.json")
    node = make_node("new", cpu=4)
    assert cluster.capacity(models).count == 1
    needed = nodes_needed(cluster, models, 5, node)
    assert needed.count is not None
    assert needed.count >= 5


def test_a_mix_has_gangs_of_one_kind(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("one", "two"):
        made = {**job(task("w", 2)), "metadata": {"name": name, "namespace": "default"}}
        (tmp_path / f"{name}.json").write_text(json.dumps(made))
    models = [each for name in ("one", "two") for each in cluster.models(tmp_path / f"{name}.json")]
    with pytest.raises(InputError, match="gangs are counted one kind at a time"):
        cluster.capacity(models)
