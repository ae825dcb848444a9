"""Container images."""

from bayplan.api.images import (
    normalized_image_name,
    pod_images,
)

__all__ = [
    "normalized_image_name",
    "pod_images",
]
