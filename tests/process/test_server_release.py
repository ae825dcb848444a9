"""Without --emulated-version a process decides as the release of its API server."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from bayplan.api.releases import DEFAULT_RELEASE, V1_36, V1_37, Release
from bayplan.client.access import Access
from bayplan.client.http import ServerVersion
from bayplan.client.requests import Requests
from bayplan.errors import APIError, ForbiddenError, ServerError
from bayplan.process import starting
from bayplan.process.starting import release_of_server


def answer_with(monkeypatch: pytest.MonkeyPatch, *answers: ServerVersion | APIError) -> Iterator[object]:
    """The answers of the server, one after the other; returns those that are left."""
    left = iter(answers)

    async def read(requests: Requests) -> ServerVersion:
        answer = next(left)
        if isinstance(answer, APIError):
            raise answer
        return answer

    monkeypatch.setattr(starting, "read_version", read)
    monkeypatch.setattr(starting, "RETRY_SECONDS", 0.0)
    return left


def version(minor: str) -> ServerVersion:
    return ServerVersion(major="1", minor=minor, git_version=f"v1.{minor}.0")


@pytest.mark.parametrize(
    ("minor", "release", "warning"),
    [
        ("36", V1_36, ""),
        ("37", V1_37, ""),
        ("29", V1_36, "using the nearest one"),
        ("41", V1_37, "using the nearest one"),
    ],
)
def test_the_servers_release_or_the_nearest(
    minor: str,
    release: Release,
    warning: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer_with(monkeypatch, version(minor))
    with caplog.at_level(logging.WARNING):
        assert release_of_server(Access("https://127.0.0.1:1")) is release
    assert bool(caplog.text) == bool(warning)
    assert warning in caplog.text


def test_a_server_that_is_not_there_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    left = answer_with(monkeypatch, ServerError("no"), ServerError("no"), version("36"))
    assert release_of_server(Access("https://127.0.0.1:1")) is V1_36
    assert list(left) == []


def test_a_server_without_a_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer_with(monkeypatch, ForbiddenError("no"))
    with caplog.at_level(logging.WARNING):
        assert release_of_server(Access("https://127.0.0.1:1")) is DEFAULT_RELEASE
    assert "--emulated-version" in caplog.text
