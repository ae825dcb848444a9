"""/metrics/resources has the requests of pods."""

from __future__ import annotations

import pytest

from bayplan.api.pod import Container, Pod, ResourceRequirements
from bayplan.metrics import resource_chunks, resource_exposition
from bayplan.metrics.resources import PODS_PER_CHUNK
from bayplan.testing.builders import make_pod

from .scrape import Shape, shapes, values

REQUEST, LIMIT = "kube_pod_resource_request", "kube_pod_resource_limit"


def by_resource(pod: Pod, name: str) -> dict[tuple[str, str], float]:
    """Values by (resource, unit)."""
    text = resource_exposition([pod]).decode()
    # The labels by name: namespace, node, pod, priority, resource, scheduler, unit.
    return {(labels[4], labels[6]): value for labels, value in values(text, name).items()}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod(cpu="250m"), {("cpu", "cores"): 0.25}, id="cpu in cores"),
        pytest.param(make_pod(memory="1Gi"), {("memory", "bytes"): 2.0**30}, id="memory in bytes"),
        pytest.param(
            make_pod(requests={"hugepages-2Mi": "4Mi", "ephemeral-storage": "1k"}),
            {("hugepages-2Mi", "bytes"): 2.0**22, ("ephemeral-storage", "bytes"): 1000},
            id="huge pages and ephemeral storage in bytes",
        ),
        pytest.param(
            make_pod(requests={"attachable-volumes-csi-x": 2, "example.com/gpu": 1}),
            {("attachable-volumes-csi-x", "integer"): 2, ("example.com/gpu", ""): 1},
            id="volumes are integers, devices have no unit",
        ),
        pytest.param(
            make_pod(requests={"cpu": 0, "memory": 1}), {("memory", "bytes"): 1}, id="nothing is not shown"
        ),
        pytest.param(make_pod(cpu=1, phase="Succeeded", node="n"), {}, id="a finished pod requests nothing"),
        pytest.param(
            make_pod(cpu=1, phase="Failed"),
            {("cpu", "cores"): 1},
            id="a pod without a node cannot have finished",
        ),
    ],
)
def test_requests(pod: Pod, expected: dict[tuple[str, str], float]) -> None:
    assert by_resource(pod, REQUEST) == expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod(cpu=1), {}, id="a request is no limit"),
        pytest.param(make_pod(limits={"cpu": "1500m"}), {("cpu", "cores"): 1.5}, id="in cores too"),
        pytest.param(
            make_pod(
                containers=(
                    Container(name="a", resources=ResourceRequirements(limits={"cpu": 1, "memory": 10})),
                    Container(name="b", resources=ResourceRequirements(limits={"cpu": 2})),
                ),
                resources=ResourceRequirements(limits={"memory": 7, "example.com/gpu": 1}),
            ),
            {("cpu", "cores"): 3, ("memory", "bytes"): 7},
            id="a limit for the whole pod replaces the sum, where there can be one",
        ),
        pytest.param(
            make_pod(limits={"cpu": 1, "memory": 0}, overhead={"cpu": "100m", "memory": 5}),
            {("cpu", "cores"): 1.1},
            id="overhead counts where there is a limit",
        ),
    ],
)
def test_limits(pod: Pod, expected: dict[tuple[str, str], float]) -> None:
    assert by_resource(pod, LIMIT) == expected


@pytest.mark.parametrize(("priority", "text"), [(None, ""), (0, "0"), (-5, "-5")])
def test_labels_of_a_pod(priority: int | None, text: str) -> None:
    pod = make_pod("web", namespace="prod", node="n1", priority=priority, cpu=1, scheduler_name="mine")
    (labels,) = values(resource_exposition([pod]).decode(), REQUEST)
    assert labels == ("prod", "n1", "web", text, "cpu", "mine", "cores")


def test_both_families_have_their_form() -> None:
    pod = make_pod(cpu=1, limits={"cpu": 1})
    labels = frozenset({"namespace", "pod", "node", "scheduler", "priority", "resource", "unit"})
    expected = Shape("gauge", labels)
    assert shapes(resource_exposition([pod]).decode()) == {REQUEST: expected, LIMIT: expected}


def test_a_family_is_one_piece_however_many_chunks_it_comes_in() -> None:
    pods = [make_pod(f"p{i}", cpu=1) for i in range(PODS_PER_CHUNK + 1)]
    chunks = list(resource_chunks(pods))
    text = b"".join(chunks).decode()
    assert (len(chunks), text.count("# TYPE"), len(values(text, REQUEST))) == (2, 1, len(pods))


def test_no_pods_no_text() -> None:
    assert resource_exposition([]) == b""
