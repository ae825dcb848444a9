"""A kind is added to the table at run time: it is decoded, watched, served and delivered to a plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from bayplan.api.decode import decode_object
from bayplan.api.kinds import KINDS, Kind, Watch
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.embedded_cluster import EmbeddedCluster
from bayplan.embedded.server.kinds import NODES, PODS
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.framework.events import Action, ClusterEventWithHint, event_with_hint
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import Status, unschedulable
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.virtual_time import current_loop, run_virtual
from tests.deploy.permissions import Permission, scheduling_permissions


class Reservation(Object, frozen=True):
    owner: str = ""


RESERVATIONS = Kind(
    Reservation,
    "reservations",
    "example.com",
    "v1beta1",
    watch=Watch.OPTIONAL,
    event="example.com/Reservation",
)
MANIFEST = {
    "apiVersion": "example.com/v1beta1",
    "kind": "Reservation",
    "metadata": {"name": "mine", "namespace": "default"},
    "owner": "p",
}


class NeedsReservation(Plugin):
    """Rejects pods without a reservation, until one is added."""

    name: ClassVar = "NeedsReservation"
    delivered: ClassVar[list[Any]] = []

    def pre_filter(self, state: Any, pod: Any, nodes: Any) -> Status | None:
        assert self.handle is not None
        owners = {item.owner for item in self.handle.cluster.objects.of(Reservation)}
        return None if pod.name in owners else unschedulable("no reservation")

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [event_with_hint("example.com/Reservation", Action.ADD, self._is_for)]

    def _is_for(self, pod: Any, old: Any, new: Any) -> bool:
        self.delivered.append(new)
        return bool(new.owner == pod.name)


@pytest.fixture(autouse=True)
def added() -> Iterator[None]:
    KINDS.add(RESERVATIONS)
    NeedsReservation.delivered.clear()
    yield
    KINDS.remove(RESERVATIONS)


def node_of_pod(api: ObjectAPI) -> str:
    name: str = api.document(PODS, "p", "default").record(Pod).spec.node_name
    return name


def test_it_is_decoded() -> None:
    assert decode_object(MANIFEST) == Reservation(
        metadata=ObjectMeta(name="mine", namespace="default"), owner="p"
    )


def test_the_scheduler_may_watch_it() -> None:
    assert Permission("example.com", "reservations", "watch") in scheduling_permissions()


def test_it_is_served_watched_and_delivered_to_a_plugin() -> None:
    async def live() -> tuple[str, str]:
        api = open_api(clock=current_loop().wall_time, seed=1)
        api.create(NODES, {"metadata": {"name": "n"}, "status": {"allocatable": {"pods": "10"}}})
        containers = [{"name": "c", "image": "i"}]
        api.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": containers}}, "default")
        resource = api.catalog.of_kind("example.com/v1beta1", "Reservation")
        scheduler = Scheduler(EmbeddedCluster(api), plugins=[NeedsReservation])
        running = asyncio.ensure_future(scheduler.run())
        try:
            await asyncio.sleep(5)
            before = node_of_pod(api)
            api.create(resource, dict(MANIFEST), "default")
            await asyncio.sleep(30)
            return before, node_of_pod(api)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    assert run_virtual(live()) == ("", "n")
    assert [item.name for item in NeedsReservation.delivered] == ["mine"]


class Widget(Object, frozen=True):
    api_resource: ClassVar[str] = "widgets.v1.example.com"


def test_a_record_without_an_entry_names_its_resource_and_its_events() -> None:
    kind = KINDS.of(Widget)
    assert (kind.plural, kind.version, kind.group) == ("widgets", "v1", "example.com")
    assert (kind.event, kind.watch) == ("widgets.v1.example.com", Watch.NO)
