"""PodDisruptionBudgets: how many pods may be evicted now."""

from __future__ import annotations

import pytest

from bayplan.api.meta import Content
from bayplan.embedded.server import subresources
from bayplan.embedded.server.deletion import DeleteOptions
from bayplan.embedded.server.kinds import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS
from bayplan.embedded.server.statuses import StatusError
from tests.embedded.controllers.world import World, in_world, template, workload

SELECTOR = {"matchLabels": {"app": "web"}}


def numbers(world: World) -> tuple[int, int, int, int]:
    """ALLOWED, healthy, desired and expected, as `kubectl describe pdb` shows them."""
    status = world.get(POD_DISRUPTION_BUDGETS, "web")["status"]
    fields = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    allowed, healthy, desired, expected = (status[field] for field in fields)
    return allowed, healthy, desired, expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"minAvailable": 3}, (2, 5, 3, 5), id="at least three"),
        pytest.param({"minAvailable": "50%"}, (2, 5, 3, 5), id="at least half, rounded up"),
        pytest.param({"maxUnavailable": 1}, (1, 5, 4, 5), id="all but one"),
        pytest.param({"maxUnavailable": "30%"}, (2, 5, 3, 5), id="all but 30%, rounded up"),
        pytest.param({"minAvailable": 9}, (0, 5, 9, 5), id="more than there are"),
        pytest.param({"maxUnavailable": 0}, (0, 5, 5, 5), id="none"),
    ],
)
def test_the_number_of_allowed_disruptions(spec: Content, expected: tuple[int, int, int, int]) -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=5))
        world.create(POD_DISRUPTION_BUDGETS, "web", {"selector": SELECTOR, **spec})
        await world.run_until_idle()
        assert numbers(world) == expected
        (condition,) = world.get(POD_DISRUPTION_BUDGETS, "web")["status"]["conditions"]
        reason = "SufficientPods" if expected[0] else "InsufficientPods"
        assert (condition["type"], condition["reason"]) == ("DisruptionAllowed", reason)

    in_world(test)


def test_a_budget_without_a_spec_is_about_no_pod() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=2))
        world.create(POD_DISRUPTION_BUDGETS, "web")
        await world.run_until_idle()
        assert numbers(world) == (0, 0, 0, 0)

    in_world(test)


def test_shares_are_of_the_current_replicas_of_the_workload() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=4))
        world.create(POD_DISRUPTION_BUDGETS, "web", {"selector": SELECTOR, "maxUnavailable": "50%"})
        await world.run_until_idle()
        assert numbers(world) == (2, 4, 2, 4)
        world.change(DEPLOYMENTS, "web", spec={"replicas": 10})
        await world.run_until_idle()
        assert numbers(world) == (5, 10, 5, 10)

    in_world(test)


def test_an_eviction_takes_what_is_allowed_and_a_new_pod_gives_it_back() -> None:
    async def test(world: World) -> None:
        world.create(DEPLOYMENTS, "web", workload(replicas=3))
        world.create(POD_DISRUPTION_BUDGETS, "web", {"selector": SELECTOR, "maxUnavailable": 1})
        await world.run_until_idle()
        first, second, _ = world.names(PODS)
        subresources.evict(world.api, first, "default", DeleteOptions())
        with pytest.raises(StatusError, match="would violate the pod's disruption budget"):
            subresources.evict(world.api, second, "default", DeleteOptions())
        await world.run_until_idle()
        assert numbers(world) == (1, 3, 2, 3)
        subresources.evict(world.api, second, "default", DeleteOptions())

    in_world(test)


def test_bare_pods_and_labels_that_change_are_counted() -> None:
    async def test(world: World) -> None:
        world.create(POD_DISRUPTION_BUDGETS, "web", {"selector": SELECTOR, "minAvailable": 1})
        for number in range(3):
            world.create(PODS, f"p{number}", template()["spec"], labels={"app": "web"})
        await world.run_until_idle()
        assert numbers(world) == (2, 3, 1, 3)
        world.change(PODS, "p0", metadata={"labels": {"app": "other"}})
        world.api.patch(PODS, "p1", "default", {"status": {"phase": "Succeeded"}}, subresource="status")
        await world.run_until_idle()
        assert numbers(world) == (0, 1, 1, 1)

    in_world(test)
