"""What a pod requests: containers, sidecars, init containers, resizes, the pod as a whole, overhead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bayplan.api.meta import Condition, Quantity
from bayplan.api.pod import Container, ContainerStatus, Pod, ResourceRequirements
from bayplan.api.requests import (
    ContainerAccounting,
    PodAccounting,
    fit_requests,
    scoring_requests,
)
from bayplan.testing.builders import make_container, make_pod

MIB = 1024 * 1024
DEFAULT_MEMORY = 200 * MIB
INFEASIBLE = Condition(type="PodResizePending", status="True", reason="Infeasible")
DEFERRED = Condition(type="PodResizePending", status="True", reason="Deferred")


def whole(**requests: Quantity) -> ResourceRequirements:
    """Requests for the pod as a whole."""
    return ResourceRequirements(requests={name.replace("_", "-"): q for name, q in requests.items()})


def reported(
    pod: Pod,
    name: str = "main",
    *,
    cpu: Quantity | None = None,
    allocated: Quantity | None = None,
    init: bool = False,
) -> Pod:
    """The pod, with a status that reports these amounts of cpu in use and allocated to a container."""
    status = ContainerStatus(
        name=name,
        resources=None if cpu is None else ResourceRequirements(requests={"cpu": cpu}),
        allocated_resources={} if allocated is None else {"cpu": allocated},
    )
    field = "init_container_statuses" if init else "container_statuses"
    return replace(pod, status=replace(pod.status, **{field: (status,)}))


def pod_reported(pod: Pod, *, cpu: Quantity, allocated: Quantity) -> Pod:
    """The pod, with a status for the pod as a whole."""
    return replace(
        pod, status=replace(pod.status, resources=whole(cpu=cpu), allocated_resources={"cpu": allocated})
    )


@pytest.mark.parametrize(
    ("pod", "requests"),
    [
        pytest.param(make_pod(), {}, id="nothing"),
        pytest.param(make_pod(cpu="0"), {"cpu": 0}, id="a request for nothing is a request"),
        pytest.param(make_pod(cpu="1.5", memory="1Gi"), {"cpu": 1500, "memory": 2**30}, id="cpu and memory"),
        pytest.param(
            make_pod(requests={"example.com/gpu": 2, "hugepages-2Mi": "4Mi", "ephemeral-storage": "1k"}),
            {"example.com/gpu": 2, "hugepages-2Mi": 4 * MIB, "ephemeral-storage": 1000},
            id="other resources",
        ),
        pytest.param(
            make_pod(requests={"pods": 1, "storage": "1Gi", "gpu": 1}), {}, id="what is not counted"
        ),
        pytest.param(
            make_pod(containers=[make_container(cpu="100u"), make_container(cpu="100u")]),
            {"cpu": 1},
            id="the sum is rounded, not the parts",
        ),
        pytest.param(
            make_pod(containers=[make_container(memory="500m"), make_container(memory="600m")]),
            {"memory": 2},
            id="bytes too are rounded once",
        ),
        pytest.param(
            make_pod(cpu="1", init_containers=[make_container("a", cpu="3"), make_container("b", cpu="2")]),
            {"cpu": 3000},
            id="init containers run one by one, before the others",
        ),
        pytest.param(
            make_pod(cpu="1", init_containers=[make_container("a", memory="1Ki")]),
            {"cpu": 1000, "memory": 1024},
            id="each resource has its own peak",
        ),
        pytest.param(
            make_pod(cpu="1", init_containers=[make_container("a", cpu="3", sidecar=True)]),
            {"cpu": 4000},
            id="a sidecar keeps running",
        ),
        pytest.param(
            make_pod(
                cpu="1",
                init_containers=[
                    make_container("a", cpu="1", sidecar=True),
                    make_container("b", cpu="4"),
                    make_container("c", cpu="1", sidecar=True),
                    make_container("d", cpu="3500m"),
                ],
            ),
            {"cpu": 5500},
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            make_pod(cpu="1", overhead={"cpu": "250m", "memory": "1Ki"}),
            {"cpu": 1250, "memory": 1024},
            id="overhead",
        ),
        pytest.param(
            make_pod(cpu="1", memory="1Ki", resources=whole(cpu="2")),
            {"cpu": 2000, "memory": 1024},
            id="a request for the pod replaces the sum",
        ),
        pytest.param(
            make_pod(cpu="3", resources=whole(cpu="2")), {"cpu": 2000}, id="even where it is smaller"
        ),
        pytest.param(
            make_pod(
                requests={"example.com/gpu": 1}, resources=whole(**{"example.com/gpu": "5", "cpu": "1"})
            ),
            {"example.com/gpu": 1, "cpu": 1000},
            id="only cpu, memory and huge pages can be requested for the pod",
        ),
        pytest.param(
            make_pod(resources=whole(hugepages_2Mi="4Mi"), overhead={"cpu": "1"}),
            {"hugepages-2Mi": 4 * MIB, "cpu": 1000},
            id="overhead is added to that",
        ),
        pytest.param(
            make_pod(cpu="1", resources=ResourceRequirements(limits={"cpu": "5"})),
            {"cpu": 1000},
            id="limits for the pod are no requests",
        ),
    ],
)
def test_fit_requests(pod: Pod, requests: dict[str, int]) -> None:
    assert fit_requests(pod) == requests


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        pytest.param(make_pod(cpu="1"), 1000, id="no status"),
        pytest.param(
            reported(make_pod(cpu="1"), cpu="3", allocated="2"), 3000, id="shrinking: what is in use"
        ),
        pytest.param(reported(make_pod(cpu="1"), cpu="1", allocated="2"), 2000, id="what is allocated"),
        pytest.param(
            reported(make_pod(cpu="4"), cpu="3", allocated="2"), 4000, id="growing: what is requested"
        ),
        pytest.param(reported(make_pod(cpu="1"), allocated="2"), 1000, id="no report of what is in use"),
        pytest.param(reported(make_pod(cpu="1"), "other", cpu="3"), 1000, id="another container's status"),
        pytest.param(
            reported(make_pod(cpu="4", conditions=[INFEASIBLE]), cpu="1", allocated="2"),
            2000,
            id="a resize that will never be: not what is requested",
        ),
        pytest.param(
            reported(make_pod(cpu="4", conditions=[DEFERRED]), cpu="1", allocated="2"),
            4000,
            id="a resize that must wait counts",
        ),
        pytest.param(
            reported(
                make_pod(init_containers=[make_container("s", cpu="1", sidecar=True)]),
                "s",
                cpu="3",
                init=True,
            ),
            3000,
            id="a sidecar's status counts",
        ),
        pytest.param(
            reported(make_pod(init_containers=[make_container("i", cpu="1")]), "i", cpu="3", init=True),
            1000,
            id="a plain init container's status does not",
        ),
        pytest.param(
            pod_reported(make_pod(resources=whole(cpu="1")), cpu="2", allocated="3"),
            3000,
            id="the pod's status",
        ),
        pytest.param(
            pod_reported(make_pod(resources=whole(cpu="4"), conditions=[INFEASIBLE]), cpu="2", allocated="3"),
            3000,
            id="the pod's resize that will never be",
        ),
        pytest.param(
            pod_reported(make_pod(cpu="1"), cpu="2", allocated="3"),
            1000,
            id="the pod's status, and no such request",
        ),
    ],
)
def test_requests_of_assigned_pods(pod: Pod, cpu: int) -> None:
    """A pod on a node counts with the most that its resize could mean."""
    assert ContainerAccounting().assigned_requests(pod) == {"cpu": cpu}
    assert ContainerAccounting().balance_requests(pod) == {"cpu": cpu}


def _both_resized() -> Pod:
    """Container a shrinks from 3 to 1 cpu, b grows from 1 to 3."""
    pod = make_pod(containers=[make_container("a", cpu="1"), make_container("b", cpu="3")])
    statuses = tuple(
        ContainerStatus(name=name, resources=ResourceRequirements(requests={"cpu": cpu}))
        for name, cpu in (("a", "3"), ("b", "1"))
    )
    return replace(pod, status=replace(pod.status, container_statuses=statuses))


BOTH_RESIZED = _both_resized()


@pytest.mark.parametrize(
    ("pod", "cpu_1_36", "cpu_1_37"),
    [
        pytest.param(make_pod(cpu="1"), 1000, 1000, id="no status"),
        pytest.param(
            BOTH_RESIZED,
            6000,
            4000,
            id="one container shrinks while another grows: one after the other, not both at once",
        ),
        pytest.param(
            reported(make_pod(cpu="1"), allocated="2"), 1000, 2000, id="allocated alone counts, too"
        ),
        pytest.param(
            reported(make_pod(init_containers=[make_container("i", cpu="1")]), "i", cpu="3", init=True),
            1000,
            3000,
            id="a plain init container's status counts, too",
        ),
        pytest.param(make_pod(cpu="4", conditions=[INFEASIBLE]), 4000, 0, id="infeasible, nothing reported"),
        pytest.param(
            pod_reported(make_pod(cpu="1"), cpu="2", allocated="3"),
            1000,
            3000,
            id="the pod's status, and no pod-level request",
        ),
    ],
)
def test_releases_differ_in_resizes(pod: Pod, cpu_1_36: int, cpu_1_37: int) -> None:
    assert ContainerAccounting().assigned_requests(pod).get("cpu", 0) == cpu_1_36
    assert PodAccounting().assigned_requests(pod).get("cpu", 0) == cpu_1_37


def test_an_incoming_pod_counts_as_it_is_written() -> None:
    pod = pod_reported(reported(make_pod(cpu="1"), cpu="3", allocated="2"), cpu="5", allocated="5")
    assert fit_requests(pod) == {"cpu": 1000}


@pytest.mark.parametrize(
    ("pod", "requests"),
    [
        pytest.param(make_pod(), {"cpu": 100, "memory": DEFAULT_MEMORY}, id="nothing set"),
        pytest.param(make_pod(cpu=0, memory=0), {"cpu": 0, "memory": 0}, id="an explicit zero stays"),
        pytest.param(
            make_pod(containers=[make_container(cpu="1"), make_container(memory="1Ki")]),
            {"cpu": 1100, "memory": DEFAULT_MEMORY + 1024},
            id="for each container what it lacks",
        ),
        pytest.param(
            make_pod(cpu=0, memory=0, init_containers=[make_container("i")]),
            {"cpu": 100, "memory": DEFAULT_MEMORY},
            id="for init containers too",
        ),
        pytest.param(
            make_pod(cpu="1", memory=0, resources=whole(cpu="8")),
            {"cpu": 1000, "memory": 0},
            id="blind to the pod's own",
        ),
        pytest.param(
            reported(make_pod(cpu="1", memory=0), cpu="9"),
            {"cpu": 1000, "memory": 0},
            id="blind to the status",
        ),
    ],
)
def test_scoring_requests(pod: Pod, requests: dict[str, int]) -> None:
    assert scoring_requests(pod) == requests


@pytest.mark.parametrize(
    ("pod", "cpu", "memory"),
    [
        pytest.param(make_pod(), 100, DEFAULT_MEMORY, id="nothing set"),
        pytest.param(make_pod(cpu=0), 0, DEFAULT_MEMORY, id="an explicit zero stays"),
        pytest.param(
            make_pod(containers=[make_container(cpu="1"), make_container()]),
            1100,
            2 * DEFAULT_MEMORY,
            id="for each container what it lacks",
        ),
        pytest.param(make_pod(resources=whole(cpu="2")), 2000, DEFAULT_MEMORY, id="a pod that sets only cpu"),
        pytest.param(
            make_pod(resources=whole(cpu="2"), containers=[make_container(), make_container()]),
            2000,
            2 * DEFAULT_MEMORY,
            id="what it lacks is still counted for each container",
        ),
        pytest.param(
            make_pod(resources=whole(cpu="2"), containers=[make_container(memory="1Ki"), make_container()]),
            2000,
            1024,
            id="a pod that sets cpu, and one container memory: no default",
        ),
        pytest.param(
            make_pod(resources=whole(memory="1Ki"), overhead={"cpu": "5m"}),
            5,
            1024,
            id="overhead counts as set",
        ),
        pytest.param(
            make_pod(resources=whole(hugepages_2Mi="2Mi")), 100, DEFAULT_MEMORY, id="only huge pages set"
        ),
        pytest.param(
            reported(make_pod(cpu="1", memory=0), cpu="3"),
            3000,
            0,
            id="a pod on a node counts with its status",
        ),
    ],
)
def test_nonzero_requests(pod: Pod, cpu: int, memory: int) -> None:
    """Pods without requests count as something, so that they are spread."""
    assert ContainerAccounting().nonzero_requests(pod) == (cpu, memory)


AMOUNTS = st.integers(0, 5000).map(lambda milli: f"{milli}m")
CONTAINERS = st.builds(lambda cpu, sidecar: make_container(cpu=cpu, sidecar=sidecar), AMOUNTS, st.booleans())


@given(st.lists(AMOUNTS, max_size=4), st.lists(CONTAINERS, max_size=5))
def test_the_total_is_the_highest_moment_in_the_life_of_the_pod(
    regular: list[str], init: list[Container]
) -> None:
    """Play the pod's start: the total is the most that runs at once."""
    pod = make_pod(containers=[make_container(cpu=cpu) for cpu in regular], init_containers=init)

    def milli(quantity: object) -> int:
        return int(str(quantity).removesuffix("m"))

    running = 0
    highest = 0
    for container in init:
        cpu = milli(container.resources.requests["cpu"])
        highest = max(highest, running + cpu)
        if container.restart_policy == "Always":
            running += cpu
    highest = max(highest, running + sum(map(milli, regular)))
    assert fit_requests(pod).get("cpu", 0) == highest
