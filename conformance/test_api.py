"""The recorded responses that the embedded server is compared with are those of the real server."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from conformance.api.cases import RELEASES, load, send
from conformance.harness.control_plane import NOT_ADMITTED, ControlPlane
from conformance.harness.programs import Programs

CONTROLLERS_NEEDED = tuple(name for name in NOT_ADMITTED if name not in ("Priority", "RuntimeClass"))


@pytest.fixture
def plane(programs: Programs, tmp_path: Path) -> Iterator[ControlPlane]:
    """With Priority and RuntimeClass, which the embedded server has too. New for each file of requests."""
    with ControlPlane(programs, tmp_path, not_admitted=CONTROLLERS_NEEDED) as plane:
        yield plane


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_the_real_server_answers_as_recorded(plane: ControlPlane, path: Path) -> None:
    """All requests, in their order."""
    if RELEASES[path] != plane.programs.release:
        pytest.skip(f"recorded with Kubernetes {RELEASES[path]}")
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
