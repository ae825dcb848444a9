"""Simulated kubelets: bound pods start, run, end, start again, and end when they are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.meta import Content
from bayplan.embedded import kubelets
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import CONFIG_MAPS, NODES, PODS, SECRETS, Resource
from bayplan.embedded.server.statuses import StatusError
from tests.embedded.controllers.world import World, in_world, template


def pod(world: World, name: str = "p", notes: dict[str, str] | None = None, **spec: Any) -> Content:
    return world.create(PODS, name, template(**spec)["spec"], annotations=notes or {})


def phase(world: World, name: str = "p") -> str:
    return str(world.get(PODS, name)["status"]["phase"])


def test_a_bound_pod_runs_with_addresses_and_is_ready() -> None:
    async def test(world: World) -> None:
        pod(world, "p")
        pod(world, "q", hostNetwork=True)
        await world.run_until_idle()
        status = world.get(PODS, "p")["status"]
        assert status["phase"] == "Running"
        assert status["startTime"] == "2026-01-01T00:00:00Z"
        node = world.get(NODES, world.get(PODS, "p")["spec"]["nodeName"])
        assert status["hostIP"] == node["status"]["addresses"][0]["address"]
        assert status["podIP"].rpartition(".")[0] == node["spec"]["podCIDR"].rpartition(".")[0]
        assert {each["type"]: each["status"] for each in status["conditions"]} == {
            "PodScheduled": "True",
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "Ready": "True",
            "ContainersReady": "True",
        }
        (container,) = status["containerStatuses"]
        assert container["ready"]
        assert container["state"] == {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        other = world.get(PODS, "q")["status"]
        assert other["podIP"] == other["hostIP"]

    in_world(test)


def test_pods_of_a_node_have_addresses_of_their_own_which_are_used_again() -> None:
    """Three times a hundred pods are created and deleted on a node with 252 addresses; ten stay."""

    async def test(world: World) -> None:
        for turn in range(3):
            for number in range(100):
                pod(world, f"p-{turn}-{number}", terminationGracePeriodSeconds=0)
            await world.run_until_idle()
            addresses = [each["status"]["podIP"] for each in world.pods()]
            assert len(set(addresses)) == len(addresses) == 100 + 10 * turn
            for number in range(10, 100):
                world.api.delete(PODS, f"p-{turn}-{number}", "default")
            await world.run_until_idle()

    in_world(test, nodes=1)


@pytest.mark.parametrize(
    ("policy", "exit_code", "expected", "restarts"),
    [
        pytest.param("Never", 0, "Succeeded", 0, id="success is final where nothing is restarted"),
        pytest.param("Never", 3, "Failed", 0, id="failure is final where nothing is restarted"),
        pytest.param("OnFailure", 0, "Succeeded", 0, id="success is final where failures are restarted"),
        pytest.param("OnFailure", 3, "Running", 2, id="a failure is restarted"),
        pytest.param("Always", 0, "Running", 2, id="anything is restarted"),
    ],
)
def test_a_pod_ends_after_its_time(policy: str, exit_code: int, expected: str, restarts: int) -> None:
    """Restarted at 20 s at once, ends again at 40 s, waits 10 s: it runs for the third time at 55 s."""

    async def test(world: World) -> None:
        notes = {"bayplan/run-seconds": "20", "bayplan/exit-code": str(exit_code)}
        pod(world, "p", notes, restartPolicy=policy)
        await world.after(19)
        assert phase(world) == "Running"
        await world.after(36)
        status = world.get(PODS, "p")["status"]
        (container,) = status["containerStatuses"]
        assert (status["phase"], container["restartCount"]) == (expected, restarts)
        ended = container["state" if restarts == 0 else "lastState"]["terminated"]
        assert ended["exitCode"] == exit_code

    in_world(test)


def test_a_pod_that_keeps_ending_waits_and_is_not_ready() -> None:
    async def test(world: World) -> None:
        pod(world, "p", {"bayplan/run-seconds": "1", "bayplan/exit-code": "1"})
        await world.after(5)
        status = world.get(PODS, "p")["status"]
        assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        ready = next(each for each in status["conditions"] if each["type"] == "Ready")
        assert ready["status"] == "False"

    in_world(test)


@pytest.mark.parametrize(
    ("stops", "spec", "options", "gone_after"),
    [
        pytest.param("", {}, {}, 1, id="a second"),
        pytest.param("20", {}, {}, 20, id="slower"),
        pytest.param("99", {}, {}, 30, id="no slower than 30 seconds by default"),
        pytest.param("99", {"terminationGracePeriodSeconds": 7}, {}, 7, id="or than that of the pod"),
        pytest.param("99", {}, {"grace_period_seconds": 3}, 3, id="or than that of the deletion"),
        pytest.param("99", {}, {"grace_period_seconds": 0}, 0, id="at once if it is killed"),
        pytest.param("0", {}, {}, 0, id="at once if it stops so fast"),
        pytest.param("99", {"schedulingGates": [{"name": "g"}]}, {}, 0, id="at once if it never had a node"),
        pytest.param("soon", {}, {}, 1, id="as others if the annotation is invalid"),
    ],
)
def test_a_deleted_pod_is_gone_when_it_has_stopped(
    stops: str, spec: Content, options: dict[str, Any], gone_after: int
) -> None:
    async def test(world: World) -> None:
        pod(world, "p", {kubelets.STOP_SECONDS: stops} if stops else {}, **spec)
        await world.run_until_idle()
        world.api.delete(PODS, "p", "default", DeleteOptions(**options))
        await world.run_until_idle()
        if gone_after:
            await world.after(gone_after - 0.5)
            assert world.names(PODS) == ["p"]
            await world.after(0.5)
        assert world.names(PODS) == []

    in_world(test)


@pytest.mark.parametrize(
    ("images", "notes", "gone_after"),
    [
        (["registry.k8s.io/pause:3.10"], {}, 0),
        (["pause", "registry.k8s.io/pause@sha256:1"], {}, 0),
        (["pause", "web"], {}, 1),
        (["unpause:1"], {}, 1),
        (["pause"], {kubelets.STOP_SECONDS: "3"}, 3),
    ],
)
def test_pause_stops_at_once(images: list[str], notes: dict[str, str], gone_after: int) -> None:
    """As the real one does when it gets SIGTERM."""

    async def test(world: World) -> None:
        containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
        pod(world, "p", notes, containers=containers)
        await world.run_until_idle()
        world.api.delete(PODS, "p", "default")
        await world.run_until_idle()
        if gone_after:
            await world.after(gone_after - 0.5)
            assert world.names(PODS) == ["p"]
            await world.after(0.5)
        assert world.names(PODS) == []

    in_world(test)


@pytest.mark.parametrize(("stops", "exit_code"), [("5", 143), ("99", 137)])
def test_watchers_see_whether_it_stopped_or_was_killed(stops: str, exit_code: int) -> None:
    async def test(world: World) -> None:
        notes = {kubelets.STOP_SECONDS: stops}
        spec = template()["spec"]
        world.create(PODS, "p", spec, annotations=notes, finalizers=["example.com/wait"])
        await world.run_until_idle()
        world.api.delete(PODS, "p", "default")
        await world.after(31)
        (container,) = world.get(PODS, "p")["status"]["containerStatuses"]
        assert container["state"]["terminated"]["exitCode"] == exit_code

    in_world(test)


@pytest.mark.parametrize(("sleep", "gone_after"), [(5, 6), (79, 30)])
def test_a_pre_stop_hook_that_sleeps_takes_its_time(sleep: int, gone_after: int) -> None:
    """Within the grace period."""

    async def test(world: World) -> None:
        hook = {"preStop": {"sleep": {"seconds": sleep}}}
        pod(world, "p", containers=[{"name": "main", "image": "web", "lifecycle": hook}])
        await world.run_until_idle()
        world.api.delete(PODS, "p", "default")
        await world.after(gone_after - 0.5)
        assert world.names(PODS) == ["p"]
        await world.after(0.5)
        assert world.names(PODS) == []

    in_world(test)


def test_a_second_deletion_can_shorten_the_time() -> None:
    async def test(world: World) -> None:
        pod(world, "p", {kubelets.STOP_SECONDS: "99"})
        await world.run_until_idle()
        world.api.delete(PODS, "p", "default")
        await world.after(2)
        world.api.delete(PODS, "p", "default", DeleteOptions(grace_period_seconds=1))
        await world.after(2)
        assert world.names(PODS) == []

    in_world(test)


def test_nothing_happens_on_a_node_that_is_down_and_all_of_it_when_it_is_back() -> None:
    async def test(world: World) -> None:
        pod(world, "going", {})
        pod(world, "ending", {"bayplan/run-seconds": "5"}, restartPolicy="Never")
        await world.run_until_idle()
        kubelets.down(world.api, "n01")
        world.api.delete(PODS, "going", "default")
        pod(world, "coming")
        world.bind_all()
        await world.after(40)
        assert phase(world, "ending") == "Running"
        assert phase(world, "coming") == "Pending"
        assert "going" in world.names(PODS)
        kubelets.up(world.api, "n01")
        await world.run_until_idle()
        assert phase(world, "ending") == "Succeeded"
        assert phase(world, "coming") == "Running"
        assert "going" not in world.names(PODS)

    in_world(test, nodes=1)


def test_a_pod_on_a_node_that_does_not_exist_yet_starts_when_it_does() -> None:
    async def test(world: World) -> None:
        pod(world, "p", nodeName="later")
        await world.run_until_idle()
        assert phase(world) == "Pending"
        world.create(NODES, "later")
        await world.run_until_idle()
        assert phase(world) == "Running"

    in_world(test)


@pytest.mark.parametrize(
    ("notes", "field"),
    [
        pytest.param({"bayplan/run-seconds": "soon"}, "bayplan/run-seconds", id="a time that is no number"),
        pytest.param({"bayplan/run-seconds": ""}, "bayplan/run-seconds", id="no time at all"),
        pytest.param({"bayplan/run-seconds": "-1"}, "bayplan/run-seconds", id="a time below zero"),
        pytest.param({"bayplan/run-seconds": "nan"}, "bayplan/run-seconds", id="a time that is called nan"),
        pytest.param({"bayplan/exit-code": "boom"}, "bayplan/exit-code", id="an exit code that is no number"),
        pytest.param({"bayplan/exit-code": "9" * 5000}, "bayplan/exit-code", id="an endless exit code"),
        pytest.param({"bayplan/exit-code": "256"}, "bayplan/exit-code", id="an exit code that is too large"),
    ],
)
def test_an_annotation_that_is_invalid_is_reported_and_the_pod_runs_on(
    notes: dict[str, str], field: str
) -> None:
    async def test(world: World) -> None:
        pod(world, "p", notes, restartPolicy="Never")
        await world.after(3000)
        assert phase(world) == "Running"
        (message,) = world.events("p", "InvalidAnnotation")
        assert message.startswith(f"metadata.annotations[{field}]: ")

    in_world(test)


@pytest.mark.parametrize(
    ("resource", "volume", "container", "reason"),
    [
        pytest.param(CONFIG_MAPS, {"configMap": {"name": "x"}}, {}, "ContainerCreating", id="a volume"),
        pytest.param(SECRETS, {"secret": {"secretName": "x"}}, {}, "ContainerCreating", id="a secret"),
        pytest.param(
            SECRETS,
            {"projected": {"sources": [{"secret": {"name": "x"}}]}},
            {},
            "ContainerCreating",
            id="a projected volume",
        ),
        pytest.param(
            CONFIG_MAPS,
            {},
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "a"}}}]},
            "CreateContainerConfigError",
            id="a variable",
        ),
        pytest.param(
            SECRETS, {}, {"envFrom": [{"secretRef": {"name": "x"}}]}, "CreateContainerConfigError", id="all"
        ),
    ],
)
def test_a_pod_waits_for_its_configuration(
    resource: Resource, volume: Content, container: Content, reason: str
) -> None:
    async def test(world: World) -> None:
        containers = [{"name": "c", "image": "i", **container}]
        pod(world, "p", containers=containers, volumes=[{"name": "v", **volume}] if volume else [])
        await world.after(70)
        found = world.get(PODS, "p")["status"]
        assert (found["phase"], found["containerStatuses"][0]["state"]["waiting"]["reason"]) == (
            "Pending",
            reason,
        )
        (message,) = world.events("p")
        assert f'{resource.singular} "x" not found' in message
        world.create(resource, "x")
        await world.run_until_idle()
        assert phase(world) == "Running"

    in_world(test)


def test_optional_configuration_is_not_waited_for() -> None:
    async def test(world: World) -> None:
        volumes = [{"name": "v", "configMap": {"name": "x", "optional": True}}]
        variables = [{"secretRef": {"name": "y", "optional": True}}]
        pod(world, "p", containers=[{"name": "c", "image": "i", "envFrom": variables}], volumes=volumes)
        await world.run_until_idle()
        assert phase(world) == "Running"

    in_world(test)


def _resize(world: World, name: str, cpu: str) -> Content:
    content = world.get(PODS, name)
    content["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return world.api.update(PODS, content, "default", subresource="resize")


def _has(world: World, name: str = "p") -> tuple[Any, Any, list[tuple[str, str]]]:
    """The CPU that its container has, the one that the spec asks for, and why that is pending."""
    found = world.get(PODS, name)
    (container,), (status,) = found["spec"]["containers"], found["status"]["containerStatuses"]
    pending = [
        (one["reason"], one["message"])
        for one in found["status"]["conditions"]
        if one["type"] == "PodResizePending"
    ]
    return status["allocatedResources"]["cpu"], container["resources"]["requests"]["cpu"], pending


def test_a_pod_is_resized_if_its_node_has_room() -> None:
    """The only node has 8 CPUs. What does not fit now is deferred until another pod is gone."""

    async def test(world: World) -> None:
        for name in ("p", "q"):
            pod(
                world, name, containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
            )
        await world.run_until_idle()
        _resize(world, "p", "7")
        await world.run_until_idle()
        assert _has(world) == ("7", "7", [])
        _resize(world, "p", "8")
        await world.run_until_idle()
        why = "Node didn't have enough resource: cpu, requested: 8000, used: 1000, capacity: 8000"
        assert _has(world) == ("7", "8", [("Deferred", why)])
        world.api.delete(PODS, "q", "default", DeleteOptions(grace_period_seconds=0))
        await world.run_until_idle()
        assert _has(world) == ("8", "8", [])
        _resize(world, "p", "500m")
        await world.run_until_idle()
        assert _has(world) == ("500m", "500m", [])
        with pytest.raises(StatusError, match="cpu, requested: 9000, allocatable: 8000"):
            _resize(world, "p", "9")

    in_world(test, nodes=1)


def test_a_pod_whose_host_port_is_taken_is_rejected() -> None:
    async def test(world: World) -> None:
        port = {"containerPort": 80, "hostPort": 8080}
        for name in ("p", "q"):
            pod(world, name, nodeName="n01", containers=[{"name": "c", "image": "i", "ports": [port]}])
            await world.run_until_idle()
        assert (phase(world, "p"), phase(world, "q")) == ("Running", "Failed")
        assert world.get(PODS, "q")["status"]["reason"] == "NodePorts"

    in_world(test)
