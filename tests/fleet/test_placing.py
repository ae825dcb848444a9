"""Workloads are divided by exact room, one after the other, and every replica is scheduled."""

from __future__ import annotations

from bayplan.api.meta import Content
from bayplan.fleet.karmada.kinds import Placement, PropagationPolicy, decode_karmada
from bayplan.fleet.placing import PlacedWorkload, Placer, branches
from tests.fleet.fleets import NOTHING_ELSE, anti_affinity, deployment, manifest, member

AGGREGATED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}


def placement(**fields: object) -> Placement:
    return decode_karmada(Placement, {"replicaScheduling": AGGREGATED, **fields})


def place(*contents: Content, fresh: bool = False, **fields: object) -> list[PlacedWorkload]:
    """Places workloads in a fleet of three: a has three nodes, b two, c one."""
    members = [member("a", nodes=3), member("b", nodes=2), member("c", nodes=1)]
    placer = Placer(members, default=placement(**fields), fresh=fresh)
    with branches(members):
        return [placer.place(manifest(content), NOTHING_ELSE) for content in contents]


def test_exact_room_decides_where_estimates_would_leave_replicas_pending() -> None:
    (web,) = place(deployment(replicas=5, **anti_affinity()))
    assert web.fits
    assert web.result.replicas == {"a": 3, "b": 2}
    assert web.pending_by_estimate() == {"a": 2}
    assert web.static_weights() == [
        {"targetCluster": {"clusterNames": ["a"]}, "weight": 3},
        {"targetCluster": {"clusterNames": ["b"]}, "weight": 2},
    ]


def test_a_burst_does_not_count_the_same_room_twice() -> None:
    """Each of the two would fit into a."""
    web, api = place(deployment(replicas=8), deployment("api", replicas=8))
    assert web.result.replicas == {"a": 8}
    assert api.result.replicas == {"b": 8}
    assert api.rooms["a"].exact == 4


def test_what_was_computed_before_a_change_holds_again_after_it_is_reverted() -> None:
    members = [member("a", nodes=3), member("b", nodes=2)]
    placer = Placer(members, default=placement())
    described = [one.karmada_cluster() for one in members]
    found = []
    for _ in range(2):
        with branches(members):
            contents = (deployment(replicas=8), deployment("api", replicas=8))
            found.append([placer.place(manifest(content), NOTHING_ELSE) for content in contents])
    assert [one.rooms for one in found[0]] == [one.rooms for one in found[1]]
    assert found[1][1].rooms["a"].exact == 4
    assert [one.karmada_cluster() for one in members] == described
    assert members[0].karmada_cluster() is described[0]


def test_scaling_up_keeps_what_is_there_and_scaling_down_frees_whole_clusters() -> None:
    grown = place(deployment(replicas=4), deployment(replicas=16), deployment(replicas=10))
    assert [one.result.replicas for one in grown] == [{"a": 4}, {"a": 10, "b": 6}, {"a": 10}]
    assert [sum(share.nodes.values()) for share in grown[2].shares.values()] == [10, 0, 0]


def test_a_workload_that_does_not_fit_is_not_placed() -> None:
    (web,) = place(deployment(replicas=7, **anti_affinity()))
    assert not web.fits
    assert "Clusters available replicas 6 are not enough" in web.result.error


def test_duplicated_replicas_may_stay_pending() -> None:
    (web,) = place(deployment(replicas=5), replicaScheduling={"replicaSchedulingType": "Duplicated"})
    assert (web.fits, web.pending) == (False, 1)
    assert "Insufficient cpu" in next(iter(web.shares["c"].reasons))


def test_groups_are_tried_in_turn() -> None:
    groups = [
        {"affinityName": "small", "clusterNames": ["c"]},
        {"affinityName": "large", "clusterNames": ["a", "b"]},
    ]
    web, api = place(deployment(replicas=4), deployment("api", replicas=4), clusterAffinities=groups)
    assert (web.affinity_group, web.result.replicas) == ("small", {"c": 4})
    assert (api.affinity_group, api.result.replicas) == ("large", {"a": 4})


def test_a_policy_claims_workloads_by_their_labels() -> None:
    policy = decode_karmada(
        PropagationPolicy,
        {
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {
                "resourceSelectors": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    }
                ],
                "placement": {"clusterAffinity": {"clusterNames": ["b"]}, "replicaScheduling": AGGREGATED},
            },
        },
    )
    members = [member("a", nodes=3), member("b", nodes=2)]
    placer = Placer(members, [policy], placement())
    with branches(members):
        web = placer.place(manifest(deployment()), NOTHING_ELSE)
        api = placer.place(manifest(deployment("api")), NOTHING_ELSE)
    assert (web.result.replicas, api.result.replicas) == ({"b": 3}, {"a": 3})


def test_a_fresh_division_moves_replicas() -> None:
    before = [
        deployment(replicas=8),
        deployment("api", replicas=8),
        deployment(replicas=8, **anti_affinity()),
    ]
    steady = place(*before[:2])
    assert steady[1].result.replicas == {"b": 8}
    members = [member("a", nodes=3), member("b", nodes=2)]
    with branches(members):
        first = Placer(members[1:], default=placement()).place(manifest(deployment()), NOTHING_ELSE)
        again = Placer(members, default=placement(), fresh=True).place(manifest(deployment()), NOTHING_ELSE)
    assert (first.result.replicas, again.result.replicas) == ({"b": 3}, {"a": 3})
    assert again.shares["b"].nodes == {}


def test_nothing_is_changed_outside_the_branches() -> None:
    one = member("a", nodes=1)
    with branches([one]):
        Placer([one], default=placement()).place(manifest(deployment()), NOTHING_ELSE)
        assert one.cluster.pod_count == 3
    assert one.cluster.pod_count == 0


def test_a_member_that_refuses_the_workload_is_named() -> None:
    """It has no such priority class."""
    members = [member("a", nodes=1)]
    with branches(members):
        web = Placer(members).place(manifest(deployment(priorityClassName="urgent")), NOTHING_ELSE)
    assert "no PriorityClass" in web.refused["a"]
    assert not web.fits
