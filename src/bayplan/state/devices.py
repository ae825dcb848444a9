"""The devices of the cluster: what drivers offer, what claims have, and the rows where that changed.

`bayplan.dra` finds devices for claims and does not depend on columns. This index passes it the cluster's
objects. Most pools belong to one node, so that an allocation affects one row; devices that several nodes can
use affect all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from bayplan.api.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from bayplan.api.meta import Object
from bayplan.api.release import device_features
from bayplan.api.resource_claims import AllocationResult, ResourceClaim
from bayplan.clock import Log
from bayplan.dra.state import DeviceState
from bayplan.state.claims_in_flight import ClaimInFlight
from bayplan.state.cluster import Cluster
from bayplan.state.derived import ObjectReader
from bayplan.state.objects import Lister

DEVICE_KINDS: Final[tuple[type[Object], ...]] = (
    DeviceClass,
    ResourceSlice,
    DeviceTaintRule,
    ResourceClaim,
    ClaimInFlight,
)
"""The kinds that devices and their allocations depend on."""


class ClusterDevices:
    """Inventory and allocated devices (an index for `derived`)."""

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self._freshness = changes.freshness(objects=changes.kinds(DEVICE_KINDS))
        self._state = DeviceState(device_features(cluster.release), changes.clock)
        self.inventory = self._state.inventory
        self.allocated = self._state.allocated
        self.rows: Log[int] = Log(changes.clock)
        """Rows of nodes whose own devices changed."""
        self.everywhere = self._state.changes.everywhere
        """Devices that all nodes may use have changed."""
        self._rows_freshness = changes.freshness(objects=(self._state.changes.nodes,))
        self._slices: ObjectReader[ResourceSlice] = ObjectReader(self._freshness)
        self._taint_rules: ObjectReader[DeviceTaintRule] = ObjectReader(self._freshness)
        self._allocations: dict[str, tuple[str, AllocationResult]] = {}
        """The allocated claims by uid."""

    def update(self, cluster: Cluster) -> None:
        if self._freshness.is_current:
            return
        objects = cluster.objects
        with self._freshness:
            # A changed rule is in both lists, with the devices that it selected before and selects now.
            old_rules, new_rules = self._taint_rules.changed(objects.of(DeviceTaintRule))
            for rule in old_rules:
                self._state.remove_taint_rule(rule)
            for rule in new_rules:
                self._state.put_taint_rule(rule)
            removed, added = self._slices.changed(objects.of(ResourceSlice))
            replaced = {item.name for item in added}
            for item in removed:
                if item.name not in replaced:
                    self._state.remove_slice(item.name)
            for item in added:
                self._state.put_slice(item)
            self._read_claims(cluster)
            self._record_rows(cluster)

    def _read_claims(self, cluster: Cluster) -> None:
        """Brings allocated devices up to date. Most changes of a claim are about something else."""
        claims, in_flight = cluster.objects.of(ResourceClaim), cluster.objects.of(ClaimInFlight)
        changed = self._freshness.recorded(claims.changes)
        started_or_ended = self._freshness.recorded(in_flight.changes)
        if changed is None or started_or_ended is None:
            self._read_all_claims(claims, in_flight)
            return
        uids: dict[str, None] = {}
        for before, after in cast(Sequence[tuple[ResourceClaim | None, ResourceClaim | None]], changed):
            had = None if before is None else before.status.allocation
            has = None if after is None else after.status.allocation
            if before is not None and had is not None:
                uid = before.metadata.uid
                if after is None or has is None or after.metadata.uid != uid:
                    self._allocations.pop(uid, None)
                    uids[uid] = None
            if after is not None and has is not None:
                uid = after.metadata.uid
                self._allocations[uid] = after.key, has
                uids[uid] = None
        for ended, started in started_or_ended:
            item = ended if started is None else started
            assert item is not None
            uids[item.metadata.name] = None
        self._put(uids, in_flight)

    def _read_all_claims(self, claims: Lister[ResourceClaim], in_flight: Lister[ClaimInFlight]) -> None:
        self._allocations = {
            claim.uid: (claim.key, claim.status.allocation)
            for claim in claims
            if claim.status.allocation is not None
        }
        uids = dict.fromkeys(self.allocated.uids())
        uids.update(dict.fromkeys(self._allocations))
        uids.update(dict.fromkeys(item.name for item in in_flight))
        self._put(uids, in_flight)

    def _put(self, uids: Iterable[str], in_flight: Lister[ClaimInFlight]) -> None:
        """These claims may have other devices now."""
        for uid in uids:
            known, pending = self._allocations.get(uid), in_flight.get(uid)
            if known is not None:
                self._state.put_claim(uid, *known)
            elif pending is not None:
                self._state.put_claim(uid, pending.claim.key, pending.claim.status.allocation)
            else:
                self._state.remove_claim(uid)

    def _record_rows(self, cluster: Cluster) -> None:
        """Records the rows of the nodes whose devices changed."""
        if self._rows_freshness.is_current:
            return
        with self._rows_freshness:
            names = self._rows_freshness.recorded(self._state.changes.nodes)
            if names is None:
                self.everywhere.change()
                return
            for name in dict.fromkeys(names):
                row = cluster.nodes.row_of.get(name)
                if row is not None:
                    self.rows.record(row)
