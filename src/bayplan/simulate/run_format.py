"""The format of a recorded run (`conformance/runs/README.md`), checked before it is replayed.

A run comes from a file, so it may contain anything. Only its form is checked here; its objects and its
configuration are checked where they are decoded.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from bayplan.api.kinds import KINDS
from bayplan.errors import DecodeError


class _Step(msgspec.Struct, tag_field="op", frozen=True):
    pass


class Create(_Step, tag="create", frozen=True):
    object: dict[str, Any]


class Update(_Step, tag="update", frozen=True):
    object: dict[str, Any]


class Delete(_Step, tag="delete", frozen=True):
    kind: str
    name: str
    namespace: str = ""

    def __post_init__(self) -> None:
        if KINDS.get(self.kind) is None:
            raise ValueError(f"{self.kind!r} is not a kind that scheduling reads")


class Schedule(_Step, tag="schedule", frozen=True):
    """A pod to schedule, and the result of the recorded scheduler."""

    pod: dict[str, Any]
    started: datetime | None = None
    node: str | None = None
    unschedulable: str | None = None
    reason: str | None = None
    nominated: str | None = None
    message: str | None = None
    victims: list[str] | None = None
    filtered: list[Any] | None = None
    allocations: dict[str, Any] | None = None


class Run(msgspec.Struct, frozen=True):
    name: str
    config: dict[str, Any] | str | None
    steps: list[Create | Update | Delete | Schedule]
    namespaces: dict[str, dict[str, str]] = {}
    extenders: dict[str, dict[str, int]] | None = None


def check_run(run: Any) -> dict[str, Any]:
    """The decoded run.

    Raises:
        DecodeError: it is not a recorded run.
    """
    try:
        msgspec.convert(run, Run)
    except msgspec.ValidationError as error:
        raise DecodeError(f"this is not a recorded run: {error}") from None
    assert isinstance(run, dict)
    return run
