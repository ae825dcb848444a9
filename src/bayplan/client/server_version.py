"""The version of an API server: GET /version."""

from __future__ import annotations

from typing import Final

import msgspec

from bayplan.api.releases import Release, nearest_release
from bayplan.client.requests import Requests
from bayplan.errors import APIError

VERSION_PATH: Final = "/version"


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The response to GET /version."""

    major: str = ""
    minor: str = ""
    git_version: str = ""
    """`v1.37.1`."""

    def nearest_release(self) -> tuple[Release, bool]:
        """The release to decide as, and whether it is the server's own."""
        return nearest_release(self.major, self.minor)


async def read_version(requests: Requests) -> ServerVersion:
    """Requests the version.

    Raises:
        APIError: there is no response, or it is not a version.
    """
    answer = await requests.send("GET", VERSION_PATH)
    try:
        return msgspec.json.decode(answer, type=ServerVersion)
    except msgspec.DecodeError as error:
        raise APIError(f"{VERSION_PATH}: {error}") from error
