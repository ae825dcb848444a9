"""What the commands about a fleet say, where tables of `tests/cli/test_fleet.py` do not show it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bayplan.answers.sources.loaded import Origin
from bayplan.fleet.karmada.kinds import Cluster, ClusterSpec, Placement, decode_karmada
from bayplan.fleet.placing import PlacedWorkload, Placer, branches
from bayplan.fleet.printing import age_text, details, explain_rows, headline, member_text, share_rows, steps
from tests.fleet.fleets import NOTHING_ELSE, deployment, manifest, member
from tests.fleet.test_placing import AGGREGATED, place


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (None, "age unknown"),
        (timedelta(seconds=1), "1 second old"),
        (timedelta(minutes=59), "59 minutes old"),
        (timedelta(hours=30), "1 day old"),
    ],
)
def test_the_age_of_a_snapshot_is_shown_in_its_largest_unit(age: timedelta | None, text: str) -> None:
    assert age_text(age) == text


def test_members_show_where_they_come_from() -> None:
    one = member("a", nodes=1)
    one.origin, one.time = Origin.SNAPSHOT, datetime.now(UTC) - timedelta(hours=3)
    assert member_text(one) == "a: 1 node, 0 pods; snapshot, 3 hours old"
    one.time = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=2)
    assert member_text(one).endswith("2 hours old")
    one.origin = Origin.LIVE
    assert member_text(one) == "a: 1 node, 0 pods; live"


def by_region(**fields: object) -> PlacedWorkload:
    """Two regions, of which one cluster each is wanted."""
    members = [member("a", nodes=2), member("b", nodes=1), member("c", nodes=1)]
    for one, region in zip(members, ("eu", "eu", "us"), strict=True):
        one.declared = Cluster(spec=ClusterSpec(region=region))
    constraints = [
        {"spreadByField": "region", "minGroups": 2, "maxGroups": 2},
        {"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2},
    ]
    placement = {"spreadConstraints": constraints, "replicaScheduling": AGGREGATED, **fields}
    with branches(members):
        placer = Placer(members, default=decode_karmada(Placement, placement))
        return placer.place(manifest(deployment(replicas=10)), NOTHING_ELSE)


def test_chosen_regions_are_explained() -> None:
    placed = by_region()
    assert next(steps(placed.result)) == "regions eu, us were chosen; scores: eu 5,000, us 4,000"
    assert [row[1] for row in explain_rows(placed, placed.result)] == ["selected", "not selected", "selected"]


def test_one_cluster_is_selected() -> None:
    (web,) = place(deployment(), spreadConstraints=[{"spreadByField": "cluster", "maxGroups": 1}])
    assert next(steps(web.result)) == "the spread constraint selects 1 cluster"


def test_unchanged_replicas_and_scaling_are_explained() -> None:
    first, same, less = place(deployment(replicas=4), deployment(replicas=4), deployment(replicas=2))
    assert list(steps(same.result)) == ["the existing replicas add up, so nothing moves"]
    assert "what is left is divided in proportion to the existing replicas" in next(steps(less.result))
    assert "all replicas are divided" in next(steps(first.result))


def test_pending_and_refused_replicas_are_named() -> None:
    (web,) = place(deployment(replicas=5), replicaScheduling={"replicaSchedulingType": "Duplicated"})
    assert headline(web) == "Deployment shop/web: 5 replicas: 1 would stay pending (duplicated)"
    assert any(text.startswith("c: 1 pending: 0/1 nodes are available") for text in details(web))
    (refused,) = place(deployment(priorityClassName="urgent"))
    assert [row[-1] for row in share_rows(refused)] == ["the API server would reject it"] * 3
    assert any("a would reject it: " in text for text in details(refused))


def test_the_group_of_clusters_is_named() -> None:
    groups = [{"affinityName": "small", "clusterNames": ["c"]}]
    (web,) = place(deployment(), clusterAffinities=groups)
    assert headline(web).endswith("all fit (aggregated, first), affinity group small")


def test_estimates_that_find_no_room_are_named() -> None:
    """Resource models count a node as the smallest one of its grade: 3.5 cores as 2."""
    members = [member("a", nodes=1, cpu="3500m")]
    with branches(members):
        placer = Placer(members, default=decode_karmada(Placement, {"replicaScheduling": AGGREGATED}))
        web = placer.place(manifest(deployment(replicas=3)), NOTHING_ELSE)
    assert any(text.startswith("Karmada's estimates would not place it: ") for text in details(web))
