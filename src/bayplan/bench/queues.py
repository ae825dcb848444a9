"""Capacity queues of a workload: the queues, the applications in them, and how pods name both.

Ten pods are an application, ten applications are in each leaf, and a hundred leaves have a parent, at any
size. Every pod carries what both dialects read, so workloads with and without queues have the same pods. They
name their queue in annotations: labels would make pods of two applications different for the scheduler, and
queues let them take turns, which costs as much as in MixedShapes whatever the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bayplan.api import volcano
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod
from bayplan.config import QueueDialect, QueuesConfiguration
from bayplan.queues.yunikorn.pods import APP_ID, QUEUE

PODS_AN_APPLICATION: Final = 10
APPLICATIONS_A_LEAF: Final = 10
LEAVES_A_PARENT: Final = 100
GUARANTEED: Final = 5
"""Cores of a leaf, half of what its pods request: some queues are below their guarantee, others above."""
MAX: Final = 20
"""Cores of a leaf, twice what its pods request: every pod is compared with a limit, and no pod waits."""

VOLCANO_CONF: Final = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: proportion}]
"""
"""Volcano's default, without what is not used."""


@dataclass(frozen=True, slots=True)
class QueueSetup:
    """The capacity queues of a workload.

    Attributes:
        dialect: of the queues; None: pods name their queues, and nobody reads that.
    """

    dialect: QueueDialect | None = None

    def queued(self, role: str, pods: Iterator[Pod]) -> Iterator[Pod]:
        """These pods, as parts of applications in queues."""
        for number, pod in enumerate(pods):
            application = f"application-{role}-{number // PODS_AN_APPLICATION:05d}"
            annotations = {
                **pod.annotations,
                QUEUE: _path(number // PODS_AN_APPLICATION // APPLICATIONS_A_LEAF),
                APP_ID: application,
                volcano.GROUP_ANNOTATION: application,
            }
            yield replace(pod, metadata=replace(pod.metadata, annotations=annotations))

    def make_queues(self, count: int) -> Iterator[Object]:
        """Yields the Queue objects for this number of pods, if the dialect has any."""
        if self.dialect is QueueDialect.VOLCANO:
            for leaf in range(_leaves(count)):
                spec = volcano.QueueSpec(capability={"cpu": MAX})
                yield volcano.Queue(metadata=ObjectMeta(name=_path(leaf).rpartition(".")[2]), spec=spec)

    def make_groups(self, pods: Sequence[Pod]) -> Iterator[Object]:
        """Yields the PodGroups of these pods, if the dialect has any."""
        if self.dialect is QueueDialect.VOLCANO:
            for pod in pods[::PODS_AN_APPLICATION]:
                meta = ObjectMeta(name=pod.annotations[volcano.GROUP_ANNOTATION], namespace=pod.namespace)
                queue = pod.annotations[QUEUE].rpartition(".")[2]
                yield volcano.PodGroup(metadata=meta, spec=volcano.PodGroupSpec(min_member=1, queue=queue))

    def configure(self, count: int, folder: Path) -> QueuesConfiguration | None:
        """The configuration of queues for this number of pods; its file is written to the folder."""
        if self.dialect is None:
            return None
        file = folder / "queues"
        is_volcano = self.dialect is QueueDialect.VOLCANO
        file.write_text(VOLCANO_CONF if is_volcano else _queues_yaml(_leaves(count)), encoding="utf-8")
        return QueuesConfiguration(dialect=self.dialect, file=str(file))


def _leaves(pods: int) -> int:
    return -(-pods // (PODS_AN_APPLICATION * APPLICATIONS_A_LEAF))


def _path(leaf: int) -> str:
    return f"root.team-{leaf // LEAVES_A_PARENT:02d}.queue-{leaf:04d}"


def _queues_yaml(leaves: int) -> str:
    lines = [
        "partitions:",
        "- name: default",
        "  queues:",
        "  - name: root",
        "    submitacl: '*'",
        "    queues:",
    ]
    for leaf in range(leaves):
        parent, name = _path(leaf).split(".")[1:]
        if leaf % LEAVES_A_PARENT == 0:
            lines += [f"    - name: {parent}", "      queues:"]
        lines += [
            f"      - name: {name}",
            f"        resources: {{guaranteed: {{vcore: {GUARANTEED}}}, max: {{vcore: {MAX}}}}}",
            "        properties: {application.sort.policy: fair}",
        ]
    return "\n".join(lines) + "\n"
