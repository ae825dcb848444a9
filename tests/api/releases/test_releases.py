"""Releases are consistent values, and are found by name and by the version of an API server."""

from __future__ import annotations

import pytest

from bayplan.api.releases import RELEASES, V1_36, V1_37, Release, nearest_release, parse_release
from bayplan.errors import ConfigError


@pytest.mark.parametrize("text", ["1.36", "v1.36", "1.36.4", "v1.36.9", "kube=1.36", "kube:v1.36"])
def test_a_version_in_every_notation(text: str) -> None:
    assert parse_release(text) is V1_36


@pytest.mark.parametrize("text", ["", "1", "36", "1.35", "1.38", "2.36", "1.36beta", "1.36.x", "latest"])
def test_other_versions_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_release(text)
    assert str(caught.value) == (
        f"{text!r} is not a supported Kubernetes version; bayplan implements 1.36 and 1.37"
    )


@pytest.mark.parametrize(
    ("major", "minor", "release", "is_same"),
    [
        ("1", "36", V1_36, True),
        ("1", "37", V1_37, True),
        ("1", "37+", V1_37, True),
        ("1", "29", V1_36, False),
        ("1", "38", V1_37, False),
        ("2", "0", V1_37, False),
        ("", "", V1_37, False),
        ("1", "x", V1_37, False),
    ],
)
def test_the_release_of_an_api_server(major: str, minor: str, release: Release, is_same: bool) -> None:
    assert nearest_release(major, minor) == (release, is_same)


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_a_release_is_consistent(release: Release) -> None:
    """What names a gate or a plugin names one that the release has."""
    needed = {need for feature in release.features.values() for need in feature.needs}
    assert needed <= release.features.keys()
    assert {plugin.gate for plugin in release.gated_plugins} <= release.features.keys()
    plugins = [name for name, _ in release.default_plugins]
    plugins += [plugin.name for plugin in release.gated_plugins]
    assert len(set(plugins)) == len(plugins)
    assert set(plugins) <= release.registry.keys()
    assert release.gates == {name for name, feature in release.features.items() if feature.enabled}


def test_gates_are_a_part_of_the_value() -> None:
    changed = V1_37.with_gates(frozenset({"DRADeviceTaints"}))
    assert changed.gates == {"DRADeviceTaints"}
    assert changed.version == "1.37"
    assert "VolumeLimitScaling" in V1_37.gates
