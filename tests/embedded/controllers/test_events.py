"""Events: written once, counted when they are repeated, and deleted after an hour."""

from __future__ import annotations

from bayplan.embedded.controllers.controller import Recorder
from bayplan.embedded.server.kinds import CONFIG_MAPS, EVENTS
from tests.embedded.controllers.world import World, in_world


def test_what_is_reported_again_is_counted() -> None:
    async def test(world: World) -> None:
        about = world.create(CONFIG_MAPS, "c")
        recorder = Recorder(world.api, "reporter")
        for message in ("one", "two", "one"):
            recorder.normal(about, "Reported", message)
            await world.after(10)
        found = {event["message"]: event for event in world.api.list(EVENTS)}
        assert {message: event["count"] for message, event in found.items()} == {"one": 2, "two": 1}
        assert found["one"]["firstTimestamp"] == "2026-01-01T00:00:00Z"
        assert found["one"]["lastTimestamp"] == "2026-01-01T00:00:20Z"
        assert found["one"]["source"]["component"] == "reporter"
        assert found["one"]["involvedObject"]["uid"] == about["metadata"]["uid"]

    in_world(test)


def test_a_deleted_event_is_reported_again() -> None:
    async def test(world: World) -> None:
        about = world.create(CONFIG_MAPS, "c")
        recorder = Recorder(world.api, "reporter")
        recorder.normal(about, "Reported", "one")
        world.api.delete(EVENTS, world.names(EVENTS)[0], "default")
        recorder.normal(about, "Reported", "one")
        (event,) = world.api.list(EVENTS)
        assert event["count"] == 1

    in_world(test)


def test_events_are_deleted_an_hour_after_they_were_last_seen() -> None:
    async def test(world: World) -> None:
        about = world.create(CONFIG_MAPS, "c")
        recorder = Recorder(world.api, "reporter")
        recorder.normal(about, "Reported", "once")
        recorder.normal(about, "Reported", "twice")
        await world.after(1800)
        recorder.normal(about, "Reported", "twice")
        assert len(world.api.list(EVENTS)) == 2
        await world.after(2400)
        assert world.events("c") == ["twice"]
        await world.after(1800)
        assert world.events("c") == []

    in_world(test)


def test_events_in_the_newer_form_are_deleted_too() -> None:
    async def test(world: World) -> None:
        about = {"kind": "Pod", "namespace": "default", "name": "p"}
        series = {"count": 2, "lastObservedTime": "2026-01-01T01:00:00.000000Z"}
        for name, more in (("plain", {}), ("series", {"series": series})):
            event = {
                "metadata": {"name": name},
                "involvedObject": about,
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingComponent": "x",
                "reportingInstance": "y",
                "action": "Binding",
                "reason": "Scheduled",
                "type": "Normal",
                **more,
            }
            world.api.create(EVENTS, event, "default")
        await world.after(4200)
        assert world.names(EVENTS) == ["series"]
        await world.after(4200)
        assert world.names(EVENTS) == []

    in_world(test)
