"""The recorded responses that the embedded server is compared with are those of the real server."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from conformance.api.cases import RELEASES, load, send, server_options
from conformance.harness.control_plane import NOT_ADMITTED, ControlPlane
from conformance.harness.programs import Programs

CONTROLLERS_NEEDED = tuple(name for name in NOT_ADMITTED if name not in ("Priority", "RuntimeClass"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest, programs: Programs) -> Path:
    path: Path = request.param
    if RELEASES[path] != programs.release:
        pytest.skip(f"recorded with Kubernetes {RELEASES[path]}")
    return path


@pytest.fixture
def plane(programs: Programs, tmp_path: Path, path: Path) -> Iterator[ControlPlane]:
    """With Priority and RuntimeClass, which the embedded server has too. New for each file of requests."""
    options = server_options(path)
    with ControlPlane(programs, tmp_path, not_admitted=CONTROLLERS_NEEDED, options=options) as plane:
        yield plane


def test_the_real_server_answers_as_recorded(plane: ControlPlane, path: Path) -> None:
    """All requests, in their order."""
    access = plane.access()
    url = urlsplit(access.server)
    context = ssl.create_default_context(cafile=access.tls.ca_file)
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=context)
    try:
        cases = load(path)
        found = {case["id"]: send(connection, access.token, case) for case in cases}
    finally:
        connection.close()
    assert found == {case["id"]: case["answer"] for case in cases}
