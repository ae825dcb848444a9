"""Pod groups of a cluster that was loaded: the feature gates that its scheduler must have on for them.

An API server without the gate GenericWorkload has no PodGroups and drops `spec.schedulingGroup` of pods. So a
cluster with either is one whose gates are on, and it is decided with them. Whether its scheduler has the same
gates on is not visible; answers say that they assume it (`ASSUMED_GATE`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.groups import CompositePodGroup, PodGroup
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.releases import Release
from bayplan.config import KubeSchedulerConfiguration
from bayplan.config.model import BayplanConfiguration, PodGroupDialect
from bayplan.state.groups import GroupKey

FIRST_MINOR: Final = 37
"""The first release whose design of groups is implemented."""
GROUPS: Final = "GenericWorkload"
TOPOLOGY: Final = "TopologyAwareWorkloadScheduling"
COMPOSITE: Final = "CompositePodGroup"
PREEMPTION_POLICY: Final = "PodGroupPreemptionPolicy"
CLAIMS: Final = "DRAWorkloadResourceClaims"
ASSUMED_GATE: Final = (
    "decided with the feature gate GenericWorkload; without it the scheduler ignores groups and schedules "
    "each member alone"
)
ASSUMED_DIALECT: Final = (
    "decided as bayplan does with podGroups: [{dialect}] and the feature gate GenericWorkload; "
    "without them it "
    "ignores these groups and schedules each member alone"
)
ASSUMED_TREES: Final = (
    "decided with the feature gate CompositePodGroup, too; without it each PodGroup is scheduled alone"
)


def release_for(
    release: Release, objects: Iterable[Object], config: KubeSchedulerConfiguration | None = None
) -> Release:
    """The release with the gates that these objects need, or that the configuration asks for."""
    needed = set(_needed(objects))
    own = None if config is None else config.bayplan
    if own is not None and own.pod_groups != BayplanConfiguration().pod_groups:
        needed.add(GROUPS)
    if not needed or release.minor < FIRST_MINOR:
        return release
    return release.with_gates(release.gates | needed)


def _needed(objects: Iterable[Object]) -> Iterable[str]:
    for item in objects:
        if isinstance(item, PodGroup):
            yield GROUPS
            if item.spec.scheduling_constraints is not None:
                yield TOPOLOGY
            if item.spec.parent_composite_pod_group_name is not None:
                yield from (TOPOLOGY, COMPOSITE)
            if item.spec.preemption_policy is not None:
                yield PREEMPTION_POLICY
            if item.spec.resource_claims:
                yield CLAIMS
        elif isinstance(item, CompositePodGroup):
            yield from (GROUPS, TOPOLOGY, COMPOSITE)
            if item.spec.preemption_policy is not None:
                yield PREEMPTION_POLICY
        elif isinstance(item, Pod) and item.spec.scheduling_group is not None:
            yield GROUPS


def in_dialects(objects: Sequence[Object], dialects: Iterable[PodGroupDialect]) -> Sequence[Object]:
    """The objects with the groups of these dialects as groups of Kubernetes."""
    others = [dialect for dialect in dialects if dialect is not PodGroupDialect.KUBERNETES]
    if not others:
        return objects
    # Imported here: few configurations have other groups.
    from bayplan.scheduler.group_dialects import DIALECTS, translate_all

    return translate_all(objects, [DIALECTS[dialect] for dialect in others])


def names_group(objects: Iterable[Object], dialect: PodGroupDialect, key: GroupKey) -> bool:
    """Whether there is a group of this dialect, or a pod that names it; they may be translated already."""
    if dialect is PodGroupDialect.KUBERNETES:
        return False
    from bayplan.scheduler.group_dialects import DIALECTS

    asked, name = DIALECTS[dialect], str(key)
    return any(isinstance(item, asked.record or ()) and item.key == name for item in objects) or any(
        item.namespace == key.namespace and asked.group_name(item) == key.name
        for item in objects
        if isinstance(item, Pod)
    )


def with_groups(loaded: LoadedCluster) -> LoadedCluster:
    """The cluster with the gate for groups, also if it has none yet: a manifest may bring some."""
    config = loaded.config
    release = loaded.release if config is None else config.release
    if release.minor < FIRST_MINOR or GROUPS in release.gates:
        return loaded
    release = release.with_gates(release.gates | {GROUPS})
    # The gates decide which plugins a configuration has by default, so it is read again.
    if loaded.reload is not None:
        return loaded.reload(release)
    return replace(loaded, release=release) if config is None else loaded
