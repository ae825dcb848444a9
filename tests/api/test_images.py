"""Names of images."""

from __future__ import annotations

import pytest

from bayplan.api.pod import ImageVolumeSource, Volume, normalized_image_name, pod_images
from bayplan.testing.builders import make_container, make_pod


@pytest.mark.parametrize(
    ("name", "normalized"),
    [
        pytest.param("app", "app:latest", id="no tag"),
        pytest.param("app:1", "app:1", id="a tag"),
        pytest.param("host:5000/app", "host:5000/app:latest", id="a registry's port is no tag"),
        pytest.param("host:5000/app:1", "host:5000/app:1", id="a port and a tag"),
        pytest.param("app@sha256:d", "app@sha256:d", id="a digest"),
        pytest.param("library/app", "library/app:latest", id="no registry is filled in"),
        pytest.param("", ":latest", id="no name at all"),
    ],
)
def test_normalized_image_name(name: str, normalized: str) -> None:
    assert normalized_image_name(name) == normalized


def test_images_of_a_pod_count_each_time() -> None:
    pod = make_pod(
        init_containers=[make_container(image="a")],
        containers=[make_container(image="b:1"), make_container(image="a")],
        volumes=[Volume(name="data"), Volume(name="model", image=ImageVolumeSource(reference="m"))],
    )
    assert pod_images(pod) == ("a:latest", "b:1", "a:latest", "m:latest")
