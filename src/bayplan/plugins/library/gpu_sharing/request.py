"""What a pod requests of a node's GPUs, and which devices it was assigned: both are annotations.

The names are those of the open-gpu-share plugin of Alibaba's scheduler simulator, so that its traces and
manifests work unchanged. Amounts are thousandths of a device (*milli*).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from bayplan.plugin import Pod

DEVICE_MILLI: Final = 1000
"""A whole device."""
MAX_DEVICES: Final = 64
"""Devices of one node that are used; a node with more is treated as one with this number."""

GPU_COUNT: Final = "alibabacloud.com/gpu-count"
"""On nodes an extended resource (the number of devices), on pods an annotation."""
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
"""On pods: how much of each device."""
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
"""On nodes a label, on pods an annotation with the models that will do, separated by `|`."""
GPU_INDEX: Final = "alibabacloud.com/gpu-index"
"""On assigned pods: the indexes of their devices, separated by `-`. Written with the binding."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A valid request: part of one device, or one or more whole devices. `count` 0: no device."""

    count: int = 0
    milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        return self.count * self.milli

    @property
    def is_share(self) -> bool:
        """Whether it is part of a device."""
        return 0 < self.milli < DEVICE_MILLI

    @property
    def kind(self) -> int:
        """The number of devices, or 0 for a part of one (GpuClustering groups pods by this)."""
        return 0 if self.is_share else self.count


Devices = tuple[int, ...]
"""Indexes of devices of one node, in order."""

NO_GPU: Final = GpuRequest()


class InvalidRequestError(ValueError):
    """The annotations of a pod are not a valid request."""


def gpu_request(pod: Pod) -> GpuRequest:
    """The request of a pod.

    With only one of the two annotations, the other is one device, or all of each device.

    Raises:
        InvalidRequestError: an annotation is not a number in range, or the pod requests parts of several
            devices.
    """
    annotations = pod.metadata.annotations
    if not annotations:
        return NO_GPU
    count, milli = annotations.get(GPU_COUNT), annotations.get(GPU_MILLI)
    if count is None and milli is None:
        return NO_GPU
    return _parsed(count, milli, annotations.get(GPU_MODEL, ""))


def valid_request(pod: Pod) -> GpuRequest:
    """The request of an assigned pod; one that is invalid uses no device."""
    try:
        return gpu_request(pod)
    except InvalidRequestError:
        return NO_GPU


@lru_cache(maxsize=4096)
def _parsed(count: str | None, milli: str | None, models: str) -> GpuRequest:
    devices = 1 if count is None else _number(GPU_COUNT, count, MAX_DEVICES)
    if devices == 0:
        return NO_GPU
    each = DEVICE_MILLI if milli is None else min(_number(GPU_MILLI, milli, 10**9), DEVICE_MILLI)
    if each == 0:
        if count is None:
            return NO_GPU
        raise InvalidRequestError(f'annotation {GPU_MILLI} is "0", but {GPU_COUNT} is "{count}"')
    if devices > 1 and each < DEVICE_MILLI:
        raise InvalidRequestError(
            f"a part of several GPUs is requested ({GPU_COUNT} {devices}, {GPU_MILLI} {each}); "
            f"several GPUs must be whole ({DEVICE_MILLI})"
        )
    return GpuRequest(devices, each, models_in(models))


def models_in(text: str) -> tuple[str, ...]:
    """The models of a list that is separated by `|`; empty: any model."""
    return tuple(model for model in text.split("|") if model)


def _number(annotation: str, text: str, highest: int) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 12 and int(digits) <= highest):
        raise InvalidRequestError(
            f'annotation {annotation} is "{text[:40]}", not a whole number from 0 to {highest}'
        )
    return int(digits)


def annotated_devices(pod: Pod, request: GpuRequest) -> Devices:
    """The devices in a pod's annotation, in order; empty if that is missing or does not fit the request."""
    text = pod.metadata.annotations.get(GPU_INDEX)
    if not text:
        return ()
    parts = text.split("-")
    if len(parts) != request.count or not all(part.isascii() and part.isdigit() for part in parts):
        return ()
    devices = tuple(sorted({int(part) for part in parts if len(part) < 4}))
    return devices if len(devices) == request.count and devices[-1] < MAX_DEVICES else ()


def index_text(devices: Devices) -> str:
    """The value of the annotation for these devices."""
    return "-".join(map(str, devices))
