"""Names of container images, in pods and as nodes report them."""

from __future__ import annotations

from bayplan.api.pod import Pod


def normalized_image_name(name: str) -> str:
    """The name with `:latest` if it has neither tag nor digest.

    A colon before the last slash belongs to the registry's port. Registries are not filled in
    (`docker.io/library`): nodes report full names, and upstream compares them as they are.
    """
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def pod_images(pod: Pod) -> tuple[str, ...]:
    """The images the pod needs, as often as it names them: of init containers, containers and volumes."""
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers)
    volumes = tuple(volume.image.reference for volume in spec.volumes if volume.image is not None)
    return tuple(map(normalized_image_name, (*(container.image for container in containers), *volumes)))
