"""Workloads of a member that is drained or lost go to the others as far as they fit."""

from __future__ import annotations

from bayplan.fleet.karmada.kinds import Placement, PropagationPolicy, decode_karmada
from bayplan.fleet.members import Member
from bayplan.fleet.outages import Outage, leave
from bayplan.fleet.placing import Placer, branches
from bayplan.testing import make_pod
from bayplan.testing.builders.claims import make_pvc
from bayplan.testing.builders.pods import make_owner, make_pdb
from tests.fleet.fleets import NOTHING_ELSE, anti_affinity, deployment, manifest, member
from tests.fleet.test_placing import AGGREGATED


def lost(
    members: list[Member], *contents: dict[str, object], is_drain: bool = False, policy: object = None
) -> Outage:
    """Places workloads in the first member, then that member goes."""
    policies = [] if policy is None else [decode_karmada(PropagationPolicy, policy)]  # type: ignore[arg-type] # JSON
    default = decode_karmada(Placement, {"replicaScheduling": AGGREGATED})
    with branches(members):
        for content in contents:
            placer = Placer(members[:1], default=default)
            assert placer.place(manifest(content), NOTHING_ELSE).fits
        return leave(members, members[0], policies, is_drain=is_drain)


def test_replicas_go_where_they_fit_and_the_rest_stays_pending() -> None:
    found = lost(
        [member("a", nodes=3), member("b", nodes=1), member("c", nodes=1)],
        deployment(replicas=3, **anti_affinity()),
        deployment("api", replicas=5),
    )
    assert {one.key: (dict(one.to), one.pending) for one in found.moves} == {
        "shop/api": ({"b": 3, "c": 2}, 0),
        "shop/web": ({"b": 1, "c": 1}, 1),
    }
    assert found.pending == 1
    assert "anti-affinity" in found.moves[1].reason


def test_more_important_workloads_are_moved_first() -> None:
    members = [
        member(
            "a",
            make_pod("low", cpu="2", node="a-0", owner=make_owner("ReplicaSet", "low")),
            make_pod("high", cpu="2", node="a-0", priority=10, owner=make_owner("ReplicaSet", "high")),
            nodes=1,
        ),
        member("b", nodes=1, cpu="2"),
    ]
    found = leave_now(members)
    assert [(one.key, one.pending) for one in found.moves] == [("default/high", 0), ("default/low", 1)]


def leave_now(members: list[Member], *, is_drain: bool = False) -> Outage:
    with branches(members):
        return leave(members, members[0], is_drain=is_drain)


def test_a_budget_blocks_a_drain_and_not_a_loss() -> None:
    pod = make_pod("web-1", node="a-0", labels={"app": "web"}, owner=make_owner("ReplicaSet", "web"))
    budget = make_pdb("web", {"app": "web"}, allowed=0)
    members = [member("a", pod, budget, nodes=1), member("b", nodes=1)]
    drained, gone = leave_now(members, is_drain=True), leave_now(members)
    assert [(one.budget, one.pods, one.allowed) for one in drained.blocked] == [("default/web", 1, 0)]
    assert gone.blocked == ()
    assert dict(gone.moves[0].to) == {"b": 1}


def test_what_cannot_move_is_named() -> None:
    bare = make_pod("bare", node="a-0")
    data = make_pod("db-0", node="a-0", owner=make_owner("StatefulSet", "db"), claims=["data"])
    daemon = make_pod("agent", node="a-0", owner=make_owner("DaemonSet", "agent"))
    members = [member("a", bare, data, daemon, make_pvc("data"), nodes=1), member("b", nodes=1)]
    found = leave_now(members)
    assert {one.key: one.reason for one in found.moves} == {
        "default/bare": "it has no controller that would create it again",
        "default/db": "it has volumes whose data is in a: not moved",
    }
    assert (found.daemons, found.pending) == (1, 2)


def test_a_policy_limits_where_replicas_move() -> None:
    policy = {
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": {"clusterAffinity": {"clusterNames": ["a", "c"]}, "replicaScheduling": AGGREGATED},
        },
    }
    members = [member("a", nodes=3), member("b", nodes=3), member("c", nodes=1)]
    found = lost(members, deployment(replicas=3), policy=policy)
    assert dict(found.moves[0].to) == {"c": 3}
    elsewhere = {**policy, "metadata": {"name": "p", "namespace": "other"}}
    found = lost(members, deployment(replicas=3), policy=elsewhere)
    assert dict(found.moves[0].to) == {"b": 3}
