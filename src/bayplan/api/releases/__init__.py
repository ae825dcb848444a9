"""The releases of Kubernetes that bayplan implements, and how one is chosen."""

from __future__ import annotations

import re
from typing import Final

from bayplan.api.releases.devices import DeviceRules
from bayplan.api.releases.features import Feature, Stage
from bayplan.api.releases.queueing import QueueRules
from bayplan.api.releases.release import GatedPlugin, Release
from bayplan.api.releases.v1_36 import V1_36
from bayplan.api.releases.v1_37 import V1_37
from bayplan.errors import ConfigError

__all__ = [
    "DEFAULT_RELEASE",
    "RELEASES",
    "V1_36",
    "V1_37",
    "DeviceRules",
    "Feature",
    "GatedPlugin",
    "QueueRules",
    "Release",
    "Stage",
    "nearest_release",
    "parse_release",
]

RELEASES: Final[dict[str, Release]] = {release.version: release for release in (V1_36, V1_37)}
"""All releases by version, oldest first."""

DEFAULT_RELEASE: Final = V1_37
"""The release of what does not name one."""

_VERSION: Final = re.compile(r"(?:kube[=:])?v?(\d+)\.(\d+)(?:\.\d+)?")
_SERVER_MINOR: Final = re.compile(r"\d+")


def parse_release(text: str) -> Release:
    """The release that a flag names: `1.36`; also `v1.36`, `1.36.4`, and `kube=1.36` as in kube-scheduler.

    Raises:
        ConfigError: it is not a version, or not one of a release that bayplan implements.
    """
    match = _VERSION.fullmatch(text.strip())
    release = RELEASES.get(f"{int(match[1])}.{int(match[2])}") if match else None
    if release is None:
        known = " and ".join(RELEASES)
        raise ConfigError(f"{text!r} is not a supported Kubernetes version; bayplan implements {known}")
    return release


def nearest_release(major: str, minor: str) -> tuple[Release, bool]:
    """The release nearest to the version of an API server, and whether it is that version.

    `minor` may have a suffix, as some providers have it (`36+`). For a version that is not a number or not
    1.N, it is the newest release.
    """
    number = _SERVER_MINOR.match(minor)
    if major != "1" or number is None:
        return max(RELEASES.values(), key=lambda release: release.minor), False
    wanted = int(number[0])
    release = min(RELEASES.values(), key=lambda release: abs(release.minor - wanted))
    return release, release.minor == wanted
