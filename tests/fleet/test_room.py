"""The room of a member is what its scheduler really places, and explanations name the rule that limits it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.answers.whatif.manifests import Manifests, manifests_of
from bayplan.api.meta import Content, ObjectMeta
from bayplan.api.workloads import LimitRange, ResourceQuota
from bayplan.fleet.members import Member
from bayplan.fleet.placing import apply_share, branches
from bayplan.fleet.room import room_for
from bayplan.testing import make_pod
from tests.effort import examples
from tests.fleet.fleets import NOTHING_ELSE, anti_affinity, deployment, manifest, member, spread

LIMIT = 200


def quota(**hard: str) -> ResourceQuota:
    return ResourceQuota(metadata=ObjectMeta(name="all", namespace="shop"), spec={"hard": hard})


@pytest.mark.parametrize(
    ("content", "exact", "explained"),
    [
        pytest.param(deployment(), 12, "", id="requests alone"),
        pytest.param(
            deployment(**anti_affinity()), 3, "anti-affinity: 3, by resources: 12", id="one on each node"
        ),
        pytest.param(
            deployment(ports=[{"containerPort": 80, "hostPort": 80}]),
            3,
            "host ports: 3, by resources: 12",
            id="a host port",
        ),
        pytest.param(
            deployment(**spread()), 9, "topology spread: 9, by resources: 12", id="zones of different size"
        ),
        pytest.param(deployment(nodeSelector={"disk": "ssd"}), 0, "node by node: 0", id="no such node"),
    ],
)
def test_the_rule_that_limits_the_room_is_named(content: Content, exact: int, explained: str) -> None:
    found = room_for(member("a", nodes=3, zones=("a", "b")), manifest(content), NOTHING_ELSE, LIMIT)
    assert (found.exact, found.is_limit) == (exact, True)
    assert found.explained.startswith(explained)


def test_quotas_of_the_member_apply() -> None:
    one = member("a", quota(**{"requests.cpu": "5"}), nodes=3)
    found = room_for(one, manifest(deployment()), NOTHING_ELSE, LIMIT)
    assert (found.exact, found.rules) == (5, ("quota or limits of the namespace",))
    assert "exceeded quota" in found.next_lacks


def test_default_requests_of_the_member_apply() -> None:
    limits = LimitRange(
        metadata=ObjectMeta(name="defaults", namespace="shop"),
        spec={"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]},
    )
    content = deployment()
    content["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    assert room_for(member("a", limits, nodes=3), manifest(content), NOTHING_ELSE, LIMIT).exact == 6


def test_replicas_that_are_there_do_not_take_room_away() -> None:
    """They are deleted first, so a workload that fills a cluster still fits into it."""
    one = member("a", nodes=2)
    web = manifest(deployment(replicas=8))
    with branches([one]):
        apply_share(one, web, NOTHING_ELSE, 8, 0)
        found = room_for(one, web, NOTHING_ELSE, LIMIT)
        assert (found.previous, found.exact, found.more) == (8, 8, 0)
        larger = manifest(deployment(replicas=8, cpu="3"))
        assert room_for(one, larger, NOTHING_ELSE, LIMIT).more == -6


def test_counting_stops_at_the_given_limit() -> None:
    found = room_for(member("a", nodes=3), manifest(deployment()), NOTHING_ELSE, 5)
    assert (found.exact, found.is_limit, found.explained) == (5, False, "")


RULES = st.sampled_from([{}, anti_affinity(), spread(), spread(skew=2), {**anti_affinity(), **spread()}])


@st.composite
def members(draw: st.DrawFn) -> Member:
    """A member with nodes of one size in a few zones, some of which have pods."""
    count = draw(st.integers(1, 5))
    zones = "abc"[: draw(st.integers(1, 3))]
    used = [
        make_pod(f"used-{number}", cpu=f"{draw(st.integers(1, 4))}", node=f"m-{number}")
        for number in range(count)
        if draw(st.booleans())
    ]
    more = [quota(pods=str(draw(st.integers(0, 6))))] if draw(st.booleans()) else []
    return member("m", *used, *more, nodes=count, cpu=str(draw(st.integers(2, 6))), zones=zones)


@settings(max_examples=examples(200), deadline=None)
@given(members(), RULES, st.integers(1, 2))
def test_as_many_bind_as_were_counted_and_one_more_stays_pending(
    one: Member, rules: dict[str, Any], cores: int
) -> None:
    web = manifest(deployment(cpu=str(cores), **rules))
    found = room_for(one, web, NOTHING_ELSE, LIMIT)
    with branches([one]):
        share, _ = apply_share(one, web, NOTHING_ELSE, found.exact, 0)
        assert share.pending == 0
    with branches([one]):
        share, _ = apply_share(one, web, NOTHING_ELSE, found.exact + 1, 0)
        assert share.pending == 1


@settings(max_examples=examples(100), deadline=None)
@given(members(), RULES)
def test_a_cached_number_equals_a_fresh_one(one: Member, rules: dict[str, Any]) -> None:
    """Also after other workloads have been counted and placed on branches."""
    web, api = manifest(deployment(**rules)), manifest(deployment("api"))
    fresh = room_for(one, web, NOTHING_ELSE, LIMIT)
    with branches([one]):
        apply_share(one, api, NOTHING_ELSE, room_for(one, api, NOTHING_ELSE, LIMIT).exact, 0)
        room_for(one, web, NOTHING_ELSE, LIMIT)
    assert room_for(one, web, NOTHING_ELSE, LIMIT) == fresh


def test_other_objects_of_the_manifest_are_applied_first() -> None:
    """A PriorityClass that the pods name is part of the manifest."""
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 10,
    }
    others = Manifests("", manifests_of(urgent).objects)
    web = manifest(deployment(priorityClassName="urgent"))
    assert room_for(member("a", nodes=1), web, others, LIMIT).exact == 4
