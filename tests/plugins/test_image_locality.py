"""ImageLocality: images that are there count by their size and by how many nodes have them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.api.pod import ImageVolumeSource
from bayplan.plugin import NodeColumns, Pod
from bayplan.plugin.objects import pod_images
from bayplan.plugin.storage import Volume
from bayplan.plugins.image_locality import ImageLocality
from bayplan.testing.builders import make_container, make_node, make_pod
from bayplan.testing.calling import make_plugin
from tests.effort import examples

from .evaluating import Evaluation, few_rows, make_cluster, points

MIB = 1024 * 1024


def using(*images: str, init: tuple[str, ...] = (), volumes: tuple[str, ...] = ()) -> Pod:
    return make_pod(
        containers=[make_container(image=image) for image in images],
        init_containers=[make_container(image=image) for image in init],
        volumes=[
            Volume(name=f"v{i}", image=ImageVolumeSource(reference=image)) for i, image in enumerate(volumes)
        ],
    )


def test_its_points_are_upstreams() -> None:
    assert points(ImageLocality) == {"Score"}


@pytest.mark.parametrize(
    ("pod", "on_nodes", "scores"),
    [
        pytest.param(using("a"), [{}, {}], [0, 0], id="no node has it"),
        pytest.param(
            using("a", "b"), [{"a:latest": 250}, {}], [5, 0], id="one of two containers, on one of two nodes"
        ),
        pytest.param(
            using("a", "b"),
            [{"a:latest": 40, "b:latest": 300}, {}],
            [7, 0],
            id="the images of both containers",
        ),
        pytest.param(
            using("a:1", "b"), [{"a:1": 4000}, {"a:1": 4000}, {}], [100, 100, 0], id="more than enough"
        ),
        pytest.param(using("a:1", "b"), [{"a:1": 4000}, {}, {}], [66, 0, 0], id="on one of three nodes"),
        pytest.param(using("a"), [{"a:latest": 23}, {"a:latest": 23}], [0, 0], id="hardly worth it"),
        pytest.param(using("a:1"), [{"a:2": 900}], [0], id="another tag"),
        pytest.param(using("docker.io/library/a"), [{"a:latest": 900}], [0], id="names are not filled in"),
        pytest.param(
            using("host:5000/a"), [{"host:5000/a:latest": 1000}], [100], id="a registry with a port"
        ),
        pytest.param(using("b", init=("a",)), [{"a:latest": 2000}], [100], id="init containers count"),
        pytest.param(
            using("a", "a"), [{"a:latest": 1000}], [100], id="an image counts as often as it is used"
        ),
        pytest.param(
            using("b", volumes=("a",)),
            [{"a:latest": 1000}],
            [49],
            id="a volume counts like a container",
        ),
        pytest.param(
            using("a"),
            [{"a:latest": 600}, {"a:latest": 900}],
            [59, 59],
            id="the size is that of the node that had it first",
        ),
    ],
)
def test_score(pod: Pod, on_nodes: list[dict[str, int]], scores: list[int]) -> None:
    cluster = make_cluster(
        make_node(f"n{i}", images={name: size * MIB for name, size in images.items()})
        for i, images in enumerate(on_nodes)
    )
    assert Evaluation(make_plugin(ImageLocality), pod, cluster).scores() == scores


def test_added_and_removed_nodes_change_the_share() -> None:
    cluster = make_cluster([make_node("a", images={"x:1": 1000 * MIB}), make_node("b")])
    evaluation = Evaluation(make_plugin(ImageLocality), using("x:1"), cluster)
    before = evaluation.scores()
    cluster.remove_node("b")
    assert (before, evaluation.scores()) == ([48, 0], [100, 0])


images = st.dictionaries(st.sampled_from(["a:latest", "b:latest", "c:1"]), st.integers(0, 3 * 10**9))
names = st.lists(st.sampled_from(["a", "b", "c:1", "d"]), max_size=2)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(images, min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b", "c:1"]), min_size=1, max_size=3),
    names,
    names,
    st.data(),
)
def test_columns_agree_with_a_plain_rule(
    on_nodes: list[dict[str, int]], main: list[str], init: list[str], volumes: list[str], data: st.DataObject
) -> None:
    cluster = make_cluster(make_node(f"n{i}", images=own) for i, own in enumerate(on_nodes))
    pod = using(*main, init=tuple(init), volumes=tuple(volumes))
    evaluation = Evaluation(make_plugin(ImageLocality), pod, cluster)

    def score(own: dict[str, int]) -> int:
        sizes = 0
        for name in pod_images(pod):
            if name in own:
                having = [images[name] for images in on_nodes if name in images]
                sizes += int(having[0] * (len(having) / len(on_nodes)))
        least, most = 23 * MIB, 1000 * MIB * (len(main) + len(init) + len(volumes))
        return 100 * (min(max(sizes, least), most) - least) // (most - least)

    expected = [score(own) for own in on_nodes]
    assert evaluation.scores() == expected
    rows = data.draw(few_rows(len(on_nodes)))
    few = evaluation.plugin.score(evaluation.state, pod, NodeColumns(cluster, np.array(rows)))
    assert few.tolist() == [expected[row] for row in rows]
