"""The arguments of the policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bayplan.plugin import PluginArgs
from bayplan.plugin.args import ArgsRecord, FieldError, Gates, at, invalid, required
from bayplan.plugins.library.gpu_sharing.fragmentation import TypicalPod
from bayplan.plugins.library.gpu_sharing.request import DEVICE_MILLI, MAX_DEVICES

MAX_TYPICAL_PODS: Final = 1000


class TypicalPodArgs(ArgsRecord, frozen=True):
    """A kind of pod that is expected in the cluster."""

    cpu_milli: int = 0
    gpu_milli: int = 0
    """Of each device."""
    gpu_count: int = 0
    gpu_models: tuple[str, ...] = ()
    """The models that will do; empty: all."""
    weight: float = 1.0
    """How many of all pods are like this one, in any unit."""

    def validate(self, path: str) -> Iterator[FieldError]:
        if self.cpu_milli < 0:
            yield invalid(at(path, "cpuMilli"), self.cpu_milli, "must not be negative")
        if not 0 <= self.gpu_count <= MAX_DEVICES:
            yield invalid(at(path, "gpuCount"), self.gpu_count, f"must be between 0 and {MAX_DEVICES}")
        elif self.gpu_count == 0 and self.gpu_milli != 0:
            yield invalid(at(path, "gpuMilli"), self.gpu_milli, "must be 0 if gpuCount is 0")
        elif self.gpu_count == 1 and not 1 <= self.gpu_milli <= DEVICE_MILLI:
            yield invalid(at(path, "gpuMilli"), self.gpu_milli, f"must be between 1 and {DEVICE_MILLI}")
        elif self.gpu_count > 1 and self.gpu_milli != DEVICE_MILLI:
            yield invalid(at(path, "gpuMilli"), self.gpu_milli, f"must be {DEVICE_MILLI} for several GPUs")
        if not 0 < self.weight < float("inf"):
            yield invalid(at(path, "weight"), self.weight, "must be greater than 0")


class FGDArgs(PluginArgs, frozen=True):
    """The arguments of FGD."""

    typical_pods: tuple[TypicalPodArgs, ...] = ()

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        pods = at(path, "typicalPods")
        if not self.typical_pods:
            yield required(pods, "FGD needs the pods that are expected")
        if len(self.typical_pods) > MAX_TYPICAL_PODS:
            yield invalid(pods, len(self.typical_pods), f"must have at most {MAX_TYPICAL_PODS} entries")
        for index, pod in enumerate(self.typical_pods):
            yield from pod.validate(f"{pods}[{index}]")

    def distribution(self) -> tuple[TypicalPod, ...]:
        """The typical pods with weights that add up to 1."""
        total = sum(pod.weight for pod in self.typical_pods)
        return tuple(
            TypicalPod(pod.cpu_milli, pod.gpu_milli, pod.gpu_count, pod.gpu_models, pod.weight / total)
            for pod in self.typical_pods
        )


class GpuRandomArgs(PluginArgs, frozen=True):
    """The arguments of GpuRandom."""

    seed: int = 0
