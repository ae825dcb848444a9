"""Indexes that are made on first use, and readers of what changed."""

from __future__ import annotations

import contextlib
import gc
import random
import weakref

from hypothesis import given
from hypothesis import strategies as st

from bayplan.api.storage import PersistentVolume
from bayplan.state.cluster import Cluster
from bayplan.state.derived import Groups, ObjectReader, changed_rows, derived
from bayplan.state.disks import DiskUses
from bayplan.state.volume_binding import StorageRoom, VolumeOffers
from bayplan.state.volumes import CSINodes, VolumeUses
from bayplan.testing.builders import make_node, make_pod, make_pv


def test_an_index_is_made_once_for_each_cluster() -> None:
    one, two = Cluster(), Cluster()
    assert derived(one, CSINodes) is derived(one, CSINodes)
    assert derived(one, CSINodes) is not derived(two, CSINodes)


def test_an_index_does_not_keep_its_cluster() -> None:
    cluster = Cluster()
    cluster.set_node(make_node("n"))
    cluster.add_pod(make_pod(claims=["c"]), "n")
    for kind in (CSINodes, DiskUses, StorageRoom, VolumeOffers, VolumeUses):
        derived(cluster, kind)
    gone = weakref.ref(cluster)
    del cluster
    gc.collect()
    assert gone() is None


def test_rows_are_brought_up_to_date_once() -> None:
    cluster = Cluster()
    freshness = cluster.changes.freshness((), (cluster.changes.nodes,))
    cluster.set_node(make_node("n"))
    cluster.set_node(make_node("m"))
    with freshness as stale:
        assert changed_rows(stale, cluster) == {0, 1}
    for _ in range(2):
        cluster.set_node(make_node("m", labels={"a": "b"}))
        cluster.set_node(make_node("m"))
    with freshness as stale:
        assert changed_rows(stale, cluster) == {1}
    with freshness as stale:
        assert changed_rows(stale, cluster) == set()


@given(rng=st.integers(0, 2**32).map(random.Random), steps=st.integers(1, 8))
def test_the_difference_is_what_was_removed_and_added(rng: random.Random, steps: int) -> None:
    """However many objects were added, deleted, updated or moved in the list, and though an update failed."""
    cluster = Cluster()
    lister = cluster.objects.of(PersistentVolume)
    freshness = cluster.changes.freshness(objects=(lister.changes,))
    reader: ObjectReader[PersistentVolume] = ObjectReader(freshness)
    known: dict[int, PersistentVolume] = {}
    for _ in range(steps):
        for _ in range(rng.choice((0, 1, 3, 200))):
            volume = make_pv(f"v{rng.randrange(100)}")
            if rng.random() < 0.3:
                lister.remove(volume)
            else:
                lister.put(volume)
        if rng.random() < 0.3:
            lister.changes.trim()
        fails = rng.random() < 0.3
        with contextlib.suppress(ZeroDivisionError), freshness:
            gone, came = reader.changed(lister)
            if fails:
                # The index may have processed some of them.
                gone, came = gone[: rng.randint(0, len(gone))], []
            for volume in gone:
                known.pop(id(volume), None)
            for volume in came:
                known[id(volume)] = volume
            if fails:
                raise ZeroDivisionError
        if not fails:
            assert known == {id(volume): volume for volume in lister}


def test_an_empty_group_is_dropped() -> None:
    groups: Groups[str, int] = Groups()
    groups.put("a", "x", 1)
    groups.put("a", "y", 2)
    groups.discard("a", "x")
    assert list(groups.of("a")) == [2]
    groups.discard("a", "y")
    groups.discard("b", "y")
    assert (list(groups.of("a")), groups._items) == ([], {})
