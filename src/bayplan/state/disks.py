"""Disks in pod specs, and the nodes where they are in use.

Such a disk (of GCE, AWS, iSCSI or Ceph) is mounted by every pod that names it. Two pods on one node must not
both mount it, unless both only read. `DiskUses` finds the nodes where a disk is mounted without visiting any
pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bayplan.api.pod import Pod, Volume
from bayplan.state.cluster import Cluster

DiskKey = tuple[str, ...]


class Disk(NamedTuple):
    """A disk as one pod mounts it.

    It has several keys if it can be reached in several ways: two disks are the same if they share a key.
    """

    keys: tuple[DiskKey, ...]
    can_share: bool
    """Whether other pods whose disk has `can_share` may mount it, too."""

    def clashes(self, other: Disk) -> bool:
        return not (self.can_share and other.can_share) and not set(self.keys).isdisjoint(other.keys)


def disks_of(pod: Pod) -> tuple[Disk, ...]:
    """The disks in a pod's spec."""
    return tuple(disk for volume in pod.spec.volumes if (disk := _disk(volume)) is not None)


def _disk(volume: Volume) -> Disk | None:
    if volume.gce_persistent_disk is not None:
        gce = volume.gce_persistent_disk
        return Disk((("gce", gce.pd_name),), gce.read_only)
    if volume.aws_elastic_block_store is not None:
        # EBS cannot be shared, not even by readers.
        return Disk((("ebs", volume.aws_elastic_block_store.volume_id),), False)
    if volume.iscsi is not None:
        return Disk((("iscsi", volume.iscsi.iqn),), volume.iscsi.read_only)
    if volume.rbd is not None:
        rbd = volume.rbd
        # An image of one cluster, which is identified by any of its monitors.
        return Disk(tuple(("rbd", m, rbd.pool, rbd.image) for m in rbd.monitors), rbd.read_only)
    return None


def disks_clash(disks: Iterable[Disk], others: Sequence[Disk]) -> bool:
    """Whether one of the disks conflicts with one of the others."""
    return any(disk.clashes(other) for disk in disks for other in others)


class DiskUses:
    """For each disk the rows where a pod mounts it, and those where one mounts it exclusively."""

    __slots__ = ("_exclusive_users", "_on_row", "_users", "freshness")

    def __init__(self, cluster: Cluster) -> None:
        self.freshness = cluster.changes.freshness(rows=(cluster.changes.usage,))
        self._users: dict[DiskKey, set[int]] = {}
        self._exclusive_users: dict[DiskKey, set[int]] = {}
        self._on_row: dict[int, frozenset[Disk]] = {}

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        for row in rows:
            disks = frozenset(_disks_on(cluster, row))
            before = self._on_row.get(row, frozenset())
            if disks != before:
                self._forget(row, before)
                self._remember(row, disks)

    def rows_clashing(self, disks: Iterable[Disk]) -> set[int]:
        """Rows where one of the disks is in use in a way that excludes it."""
        rows: set[int] = set()
        for disk in disks:
            users = self._exclusive_users if disk.can_share else self._users
            for key in disk.keys:
                rows |= users.get(key, set())
        return rows

    def _remember(self, row: int, disks: frozenset[Disk]) -> None:
        if disks:
            self._on_row[row] = disks
        for disk in disks:
            for key in disk.keys:
                self._users.setdefault(key, set()).add(row)
                if not disk.can_share:
                    self._exclusive_users.setdefault(key, set()).add(row)

    def _forget(self, row: int, disks: frozenset[Disk]) -> None:
        self._on_row.pop(row, None)
        for users in (self._users, self._exclusive_users):
            for key in {key for disk in disks for key in disk.keys}:
                rows = users.get(key)
                if rows is not None:
                    rows.discard(row)
                    if not rows:
                        del users[key]


def _disks_on(cluster: Cluster, row: int) -> Iterable[Disk]:
    for slot in cluster.row_pods[row]:
        pod, info = cluster.pods.pod[slot], cluster.pods.info[slot]
        assert pod is not None
        assert info is not None
        if info.disks is None:
            info.disks = disks_of(pod)
        yield from info.disks
