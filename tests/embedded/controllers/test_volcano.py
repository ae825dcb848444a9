"""Jobs and Queues of Volcano on the embedded cluster. The tests admit PodGroups, as the scheduler does."""

from __future__ import annotations

from typing import Any

import yaml

from bayplan.api.meta import Content
from bayplan.embedded.controllers.volcano import COMMANDS, JOBS, POD_GROUPS, QUEUES
from bayplan.embedded.server.kinds import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)
from bayplan.queues.volcano.crds import CRDS

from .world import World, in_world


def served(world: World, resource: Resource) -> Resource:
    found = world.api.catalog.find(resource.group, resource.version, resource.plural)
    assert found is not None
    return found


async def install(world: World) -> None:
    for definition in yaml.safe_load_all(CRDS):
        world.api.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    await world.run_until_idle()


async def submit(world: World, spec: Content, name: str = "j", *, admits: bool = True) -> Content:
    """Creates a job and, as the scheduler would, admits its PodGroup."""
    world.api.create(served(world, JOBS), {"metadata": {"name": name}, "spec": spec}, "default")
    await world.run_until_idle()
    if admits:
        await admit(world)
    return job(world, name)


async def admit(world: World) -> None:
    for group in world.api.list(POD_GROUPS):
        if not (group.get("status") or {}).get("phase"):
            status = {"status": {"phase": "Inqueue"}}
            name = group["metadata"]["name"]
            world.api.patch(served(world, POD_GROUPS), name, "default", status, subresource="status")
    await world.run_until_idle()


def job(world: World, name: str = "j") -> Content:
    return world.get(JOBS, name)


def phase(world: World, name: str = "j") -> str:
    return str(job(world, name)["status"]["state"]["phase"])


def task(name: str, replicas: int = 1, **more: Any) -> Content:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {"name": name, "replicas": replicas, "template": template, **more}


async def end(world: World, pod: str, how: str = "Succeeded", exit_code: int = 0) -> None:
    """The containers of a pod end."""
    state = {"terminated": {"exitCode": exit_code}}
    containers = [
        {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    ]
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": world.api.now()}
    status = {"status": {"phase": how, "containerStatuses": containers, "conditions": [ready]}}
    world.api.patch(PODS, pod, "default", status, subresource="status")
    await world.run_until_idle()


def test_nothing_happens_without_the_kinds() -> None:
    async def main(world: World) -> None:
        await world.run_until_idle()
        assert JOBS not in world.api.catalog
        assert world.names(QUEUES) == []

    in_world(main)


def test_pods_are_created_when_the_group_is_admitted() -> None:
    async def main(world: World) -> None:
        await install(world)
        spec = {"minAvailable": 2, "tasks": [task("w", 3)], "plugins": {"env": [], "svc": None}}
        await submit(world, spec, admits=False)
        assert world.names(PODS) == []
        assert phase(world) == "Pending"
        (group,) = world.api.list(POD_GROUPS)
        assert group["metadata"]["name"] == f"j-{job(world)['metadata']['uid']}"
        assert group["spec"] == {
            "minMember": 2,
            "minTaskMember": {"w": 3},
            "queue": "default",
            "minResources": {"cpu": "1", "memory": "2Gi"},
        }
        await admit(world)
        assert world.names(PODS) == ["j-w-0", "j-w-1", "j-w-2"]
        pod = world.get(PODS, "j-w-1")
        assert pod["metadata"]["annotations"] == {
            "volcano.sh/task-index": "1",
            "volcano.sh/task-spec": "w",
            "scheduling.k8s.io/group-name": group["metadata"]["name"],
            "volcano.sh/job-name": "j",
            "volcano.sh/queue-name": "default",
            "volcano.sh/job-version": "0",
            "volcano.sh/template-uid": "j-w",
            "volcano.sh/job-retry-count": "0",
        }
        assert pod["spec"]["schedulerName"] == "volcano"
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("j-w-1", "j")
        hosts = world.get(CONFIG_MAPS, "j-svc")["data"]

        def value(variable: Content) -> str:
            source = variable.get("valueFrom")
            return str(variable["value"] if source is None else hosts[source["configMapKeyRef"]["key"]])

        assert {each["name"]: value(each) for each in pod["spec"]["containers"][0]["env"]} == {
            "VK_TASK_INDEX": "1",
            "VC_TASK_INDEX": "1",
            "VC_W_HOSTS": "j-w-0.j,j-w-1.j,j-w-2.j",
            "VC_W_NUM": "3",
        }
        assert hosts["w.host"] == "j-w-0.j\nj-w-1.j\nj-w-2.j"
        status = job(world)["status"]
        assert (status["state"]["phase"], status["running"], status["minAvailable"]) == ("Running", 3, 2)
        assert status["taskStatusCount"] == {"w": {"phase": {"Running": 3}}}
        assert [each["status"] for each in status["conditions"]] == ["Pending", "Running"]

    in_world(main)


def test_a_job_completes_and_is_deleted_after_its_ttl() -> None:
    async def main(world: World) -> None:
        await install(world)
        await submit(world, {"tasks": [task("w", 2)], "ttlSecondsAfterFinished": 60})
        for name in world.names(PODS):
            await end(world, name)
        assert phase(world) == "Completed"
        assert job(world)["status"]["succeeded"] == 2
        assert world.names(POD_GROUPS) == []
        assert len(world.names(PODS)) == 2
        await world.after(61)
        assert world.names(JOBS) == []
        assert world.names(PODS) == []

    in_world(main)


def test_an_eviction_restarts_the_job_until_its_retries_are_used_up() -> None:
    async def main(world: World) -> None:
        await install(world)
        policies = [{"event": "PodEvicted", "action": "RestartJob"}]
        await submit(world, {"tasks": [task("w", 2)], "policies": policies, "maxRetry": 2})
        first = {pod["metadata"]["uid"] for pod in world.pods()}
        world.api.delete(PODS, "j-w-0", "default")
        await world.after(60)
        await admit(world)
        assert phase(world) == "Running"
        assert job(world)["status"]["retryCount"] == 1
        assert not first & {pod["metadata"]["uid"] for pod in world.pods()}
        assert {pod["metadata"]["annotations"]["volcano.sh/job-version"] for pod in world.pods()} == {"1"}
        world.api.delete(PODS, "j-w-0", "default")
        await world.after(60)
        assert phase(world) == "Failed"
        assert world.pods() == []
        assert world.events("j", "ExecuteAction") == ["Start to execute action RestartJob"]

    in_world(main)


def test_a_failed_pod_restarts_only_its_task() -> None:
    async def main(world: World) -> None:
        await install(world)
        policies = [{"events": ["PodFailed"], "action": "RestartTask"}]
        await submit(world, {"tasks": [task("ps"), task("w", 2, policies=policies)], "minAvailable": 1})
        before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods()}
        await end(world, "j-w-1", "Failed", 1)
        await world.after(60)
        after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods()}
        assert after.keys() == before.keys()
        assert {name for name in after if after[name] == before[name]} == {"j-ps-0"}
        assert phase(world) == "Running"
        assert job(world)["status"]["retryCount"] == 1
        await end(world, "j-ps-0", "Failed", 1)
        assert job(world)["status"]["failed"] == 1
        assert phase(world) == "Running"

    in_world(main)


def test_a_completed_task_completes_the_job() -> None:
    """Volcano's TensorFlow example: the parameter server never ends."""

    async def main(world: World) -> None:
        await install(world)
        policies = [{"event": "TaskCompleted", "action": "CompleteJob"}]
        await submit(world, {"tasks": [task("ps"), task("worker", 2, policies=policies)]})
        await end(world, "j-worker-0")
        assert phase(world) == "Running"
        await end(world, "j-worker-1")
        await world.after(60)
        assert phase(world) == "Completed"
        assert job(world)["status"]["succeeded"] == 2
        assert world.names(PODS) == ["j-worker-0", "j-worker-1"]

    in_world(main)


def test_an_action_for_an_exit_code_after_a_timeout() -> None:
    async def main(world: World) -> None:
        await install(world)
        policies = [{"exitCode": 3, "action": "AbortJob", "timeout": "2m"}]
        await submit(world, {"tasks": [task("w", 3)], "policies": policies, "minAvailable": 1})
        await end(world, "j-w-0", "Failed", 1)
        await world.after(150)
        assert phase(world) == "Running"
        await end(world, "j-w-1", "Failed", 3)
        await world.after(100)
        assert phase(world) == "Running"
        await world.after(60)
        assert phase(world) == "Aborted"

    in_world(main)


def test_a_task_starts_after_those_that_it_depends_on() -> None:
    async def main(world: World) -> None:
        await install(world)
        second = task("b", 2, dependsOn={"name": ["a"]})
        await submit(world, {"tasks": [task("a"), second], "minAvailable": 1}, admits=False)
        world._binds = False
        await admit(world)
        assert world.names(PODS) == ["j-a-0"]
        world._binds = True
        await world.run_until_idle()
        await world.after(5)
        assert world.names(PODS) == ["j-a-0", "j-b-0", "j-b-1"]

    in_world(main)


def test_a_job_is_scaled() -> None:
    """Fewer replicas are not evictions."""

    async def main(world: World) -> None:
        await install(world)
        policies = [{"event": "PodEvicted", "action": "RestartJob"}]
        spec = {"tasks": [task("w", 3)], "minAvailable": 1, "policies": policies}
        await submit(world, spec)
        for replicas in (1, 2):
            spec = {**spec, "tasks": [task("w", replicas)]}
            world.api.patch(served(world, JOBS), "j", "default", {"spec": spec})
            await world.after(60)
            assert [pod["metadata"]["name"] for pod in world.pods()] == [
                f"j-w-{index}" for index in range(replicas)
            ]
        assert "retryCount" not in job(world)["status"]

    in_world(main)


def test_commands_abort_and_resume_a_job() -> None:
    async def main(world: World) -> None:
        await install(world)
        await submit(world, {"tasks": [task("w", 2)]})

        async def command(action: str, target: Content) -> None:
            content = {"metadata": {"generateName": "c-"}, "action": action, "target": target}
            world.api.create(served(world, COMMANDS), content, "default")
            await world.after(60)

        await command("AbortJob", {"kind": "Job", "name": "j"})
        assert phase(world) == "Aborted"
        assert world.pods() == []
        assert world.names(COMMANDS) == []
        await command("ResumeJob", {"kind": "Job", "name": "j"})
        await admit(world)
        assert phase(world) == "Running"
        assert len(world.pods()) == 2
        assert job(world)["status"]["retryCount"] == 1

    in_world(main)


def test_queues_have_a_state() -> None:
    """`root` and `default` exist. A queue is closed when its last PodGroup is gone."""

    async def main(world: World) -> None:
        await install(world)
        world.api.create(served(world, QUEUES), {"metadata": {"name": "q"}, "spec": {}})
        await world.run_until_idle()
        await submit(world, {"tasks": [task("w")], "queue": "q"})

        def states() -> dict[str, str]:
            return {each["metadata"]["name"]: each["status"]["state"] for each in world.api.list(QUEUES)}

        assert states() == {"default": "Open", "q": "Open", "root": "Open"}
        target = {"kind": "Queue", "name": "q"}
        content = {"metadata": {"name": "c"}, "action": "CloseQueue", "target": target}
        world.api.create(served(world, COMMANDS), content, "default")
        await world.run_until_idle()
        assert states()["q"] == "Closing"
        await end(world, "j-w-0")
        assert states()["q"] == "Closed"

    in_world(main)


def test_queues_count_their_groups_by_phase() -> None:
    async def main(world: World) -> None:
        await install(world)
        spec = {"dequeueStrategy": "fifo", "affinity": {"nodeGroupAffinity": {}}}
        world.api.create(served(world, QUEUES), {"metadata": {"name": "q"}, "spec": spec})
        await submit(world, {"tasks": [task("w")], "queue": "q"}, "first")
        await submit(world, {"tasks": [task("w")], "queue": "q"}, "second", admits=False)

        def counts() -> Content:
            return {**world.get(QUEUES, "q", "")["status"]}

        assert counts() == {"state": "Open", "inqueue": 1, "pending": 1}
        await admit(world)
        assert counts() == {"state": "Open", "inqueue": 2}
        for name in ("first", "second"):
            await end(world, f"{name}-w-0")
        assert counts() == {"state": "Open"}
        text = "Not used by the scheduler: affinity, dequeueStrategy"
        assert world.events("q", "NotSupported") == [text]

    in_world(main)


def test_plugins_make_their_objects() -> None:
    """A Service, a NetworkPolicy, a ConfigMap and a Secret of the job, which are deleted with it."""

    async def main(world: World) -> None:
        await install(world)
        await submit(world, {"tasks": [task("w", 2)], "plugins": {"svc": [], "ssh": []}})
        (service,), (policy,), (secret,) = map(world.api.list, (SERVICES, NETWORK_POLICIES, SECRETS))
        own = {"volcano.sh/job-name": "j", "volcano.sh/job-namespace": "default"}
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == own
        assert secret["metadata"]["name"] == "j-ssh"
        assert set(secret["data"]) == {"id_rsa", "id_rsa.pub", "authorized_keys", "config"}
        spec = world.get(PODS, "j-w-0")["spec"]
        assert [each["name"] for each in spec["volumes"]] == ["j-svc", "j-ssh"]
        mounts = [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]]
        assert mounts == ["/etc/volcano", "/root/.ssh"]
        world.api.delete(served(world, JOBS), "j", "default")
        await world.run_until_idle()
        for resource in (SERVICES, NETWORK_POLICIES, SECRETS, CONFIG_MAPS):
            assert world.names(resource) == []

    in_world(main)


def test_an_object_of_a_plugin_that_the_server_rejects() -> None:
    """A name of a Job may be none of a Service."""

    async def main(world: World) -> None:
        await install(world)
        await submit(world, {"tasks": [task("w")], "plugins": {"svc": []}}, "a.b")
        (text,) = world.events("a.b", "PluginError")
        assert text.startswith(
            'Execute plugin when job add failed, err: Service "a.b" is invalid: metadata.name'
        )
        assert world.names(PODS) == []

    in_world(main)


def test_volumes_of_a_job() -> None:
    """A claim is made from its spec; one that is named has to exist before pods are created."""

    async def main(world: World) -> None:
        await install(world)
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        existing = {"mountPath": "/in", "volumeClaimName": "data"}
        volumes = [existing, {"mountPath": "/out", "volumeClaim": claim}]
        await submit(world, {"tasks": [task("w")], "volumes": volumes})
        assert world.names(PODS) == []
        expected = "pvc data is not found, the job will be in the Pending state until the PVC is created"
        assert world.events("j", "PVCNotFound") == [expected]
        named = {"metadata": {"name": "data"}, "spec": claim}
        world.api.create(PERSISTENT_VOLUME_CLAIMS, named, "default")
        await world.after(6)
        made, data = sorted(world.names(PERSISTENT_VOLUME_CLAIMS), reverse=True)
        assert made.startswith("j-pvc-")
        spec = world.get(PODS, "j-w-0")["spec"]
        claims = [each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"]]
        assert claims == [data, made]
        mounts = [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]]
        assert mounts == ["/in", "/out"]

    in_world(main)


def test_what_is_wrong_or_not_done_is_reported() -> None:
    async def main(world: World) -> None:
        await install(world)
        await submit(world, {"tasks": [task("w")], "minAvailable": 5}, "wrong")
        assert world.events("wrong") == [
            "job 'minAvailable' should not be greater than total replicas in tasks"
        ]
        assert job(world, "wrong")["status"]["state"]["reason"] == "InvalidJob"
        plugins: Content = {"ray": [], "svc": [], "env": []}
        partitions = {**task("w"), "partitionPolicy": {"totalPartitions": 1, "partitionSize": 1}}
        await submit(world, {"tasks": [partitions], "plugins": plugins}, admits=False)
        (text,) = world.events("j", "NotSupported")
        assert text == "Not done here: plugin ray, partitionPolicy of tasks"
        await world.after(11)
        (text,) = world.events("j", "PodGroupPending")
        assert "has no phase: no scheduler reads it" in text

    in_world(main)
