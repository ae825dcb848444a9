"""The loop of the controllers: none stops another, and what failed is tried again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from bayplan.embedded.controllers import running
from bayplan.embedded.controllers.cluster import Cluster
from bayplan.embedded.controllers.controller import Controller, KeyMapper, own_key
from bayplan.embedded.server.documents import HISTORY
from bayplan.embedded.server.kinds import CONFIG_MAPS, Resource
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import conflict
from bayplan.simulate.virtual_time import current_loop, run_virtual
from tests.embedded.controllers.world import make_api


class RecordingController(Controller):
    """Records what it reconciles and when, and calls the function of the test."""

    name: ClassVar = "recording-controller"

    def __init__(self, cluster: Cluster, then: Callable[[str, int], float | None]) -> None:
        super().__init__(cluster)
        self.reconciled: list[tuple[str, float]] = []
        self._then = then

    def watches(self) -> dict[Resource, KeyMapper]:
        return {CONFIG_MAPS: own_key}

    def reconcile(self, key: str) -> float | None:
        self.reconciled.append((key, current_loop().time()))
        return self._then(key, sum(known == key for known, _ in self.reconciled))


def reconciled_by(
    then: Callable[[str, int], float | None],
    *,
    seconds: float = 60.0,
    during: Callable[[ObjectAPI], Any] = lambda api: None,
    history: int = HISTORY,
) -> list[tuple[str, float]]:
    """Runs the controller with two config maps; what it reconciled, and when."""

    async def main() -> list[tuple[str, float]]:
        api = make_api(history)
        for name in ("a", "b"):
            api.create(CONFIG_MAPS, {"metadata": {"name": name}}, "default")
        cluster = Cluster(api)
        controller = RecordingController(cluster, then)
        task = asyncio.create_task(running.run(cluster, [controller]))
        await asyncio.sleep(seconds / 2)
        during(api)
        await asyncio.sleep(seconds / 2)
        assert not task.done()
        task.cancel()
        return controller.reconciled

    return run_virtual(main())


def test_what_is_there_already_is_reconciled() -> None:
    assert reconciled_by(lambda key, time: None) == [("default/a", 0.0), ("default/b", 0.0)]


def test_a_reconciliation_can_schedule_the_next_one() -> None:
    found = reconciled_by(lambda key, time: 20.0 if key == "default/a" else None)
    assert [time for key, time in found if key == "default/a"] == [0.0, 20.0, 40.0]


@pytest.mark.parametrize(
    ("error", "levels"),
    [
        pytest.param(
            ZeroDivisionError("oh"),
            [logging.ERROR, logging.DEBUG],
            id="a mistake in the controller is an error, logged once",
        ),
        pytest.param(
            conflict(CONFIG_MAPS, "a", "changed"), [logging.DEBUG, logging.DEBUG], id="a conflict is no news"
        ),
    ],
)
def test_one_that_fails_is_reported_by_name_and_tried_again_and_stops_no_other(
    error: Exception, levels: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    def fail_twice(key: str, time: int) -> None:
        if key == "default/a" and time < 3:
            raise error

    caplog.set_level(logging.DEBUG, "bayplan.embedded.controllers")
    found = reconciled_by(fail_twice)
    assert [key for key, _ in found].count("default/a") == 3
    assert ("default/b", 0.0) in found
    records = [record for record in caplog.records if "default/a" in record.getMessage()]
    assert [record.levelno for record in records] == levels


def test_changes_that_the_store_has_dropped_are_found_by_comparing() -> None:
    """More happens at once than the history holds: no object is missed, and none that is gone is kept."""

    def burst(api: ObjectAPI) -> None:
        api.delete(CONFIG_MAPS, "a", "default")
        for number in range(50):
            api.create(CONFIG_MAPS, {"metadata": {"name": f"c{number:02}"}}, "default")

    found = reconciled_by(lambda key, time: None, during=burst, history=4)
    later = {key for key, time in found if time > 0}
    assert later == {"default/a", *(f"default/c{number:02}" for number in range(50))}
