"""Scenarios: a cluster and pending pods as one JSON object. `conformance/README.md` describes the format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.check import object_key
from bayplan.api.decode import decode_object
from bayplan.api.defaults import with_defaults
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release, parse_release
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.errors import ConfigError, DecodeError, InputError

OBJECTS: Final = "objects"
PODS: Final = "pods"
VERSION: Final = "kubernetesVersion"
"""The key of the release that a scenario is to be decided as: `1.36`."""
WRAPPED: Final = "scenario"
"""The key of the scenario in a line of recorded decisions, beside the expected results."""

_NOT_A_LIST: Final = "expected a list of API objects"
_NOT_A_MAPPING: Final = 'expected a scenario, a mapping with "objects" and "pods"'
_NOT_A_POD: Final = 'only Pods are allowed in "pods"'


def is_scenario(content: Any) -> bool:
    """Whether this is a scenario (or a recorded decision that contains one) and not an API object."""
    return (
        isinstance(content, Mapping) and "kind" not in content and not {OBJECTS, WRAPPED}.isdisjoint(content)
    )


def read_scenario(
    content: Any, *, source: str = "", line: int | None = None, release: Release | None = None
) -> LoadedCluster:
    """The cluster that a scenario, or a recorded decision that contains one, describes.

    `release` is the release to decide as; None: that of the scenario's `kubernetesVersion`, or the default.

    Its objects are used as an API server stores them. If some have never been in one (neither uid nor
    resourceVersion), all get the defaults that a server would set.

    Raises:
        InputError: it is malformed; the error names file, line, object and field.
    """
    if isinstance(content, Mapping) and WRAPPED in content:
        content = content[WRAPPED]
    try:
        if not isinstance(content, Mapping):
            raise DecodeError(_NOT_A_MAPPING)
        name = str(content.get("name", ""))
        objects, pods = _objects(content, OBJECTS), _objects(content, PODS)
        if any(not item.uid and not item.metadata.resource_version for item in (*objects, *pods)):
            complete = with_defaults((*objects, *pods))
            objects, pods = complete[: len(objects)], complete[len(objects) :]
        pending = [_pod(item) for item in pods]
        release = _release(content) if release is None else release
    except InputError as error:
        raise error.at(source=source, line=line) from error.__cause__
    config = _config(content, source, line, release)

    def reload(other: Release) -> LoadedCluster:
        return read_scenario(content, source=source, line=line, release=other)

    return LoadedCluster(name, objects, pending, config, source, line, release=release, reload=reload)


def _release(scenario: Mapping[str, Any]) -> Release:
    version = scenario.get(VERSION)
    if version is None:
        return DEFAULT_RELEASE
    try:
        return parse_release(str(version))
    except ConfigError as error:
        raise DecodeError(str(error), field=VERSION) from None


def _config(
    scenario: Mapping[str, Any], source: str, line: int | None, release: Release
) -> KubeSchedulerConfiguration | None:
    config = scenario.get("config")
    if config is None:
        return None
    text = config if isinstance(config, str) else msgspec.json.encode(config).decode()
    place = source if line is None else f"{source}:{line}"
    try:
        return parse_config(text, f"{place}: config" if place else "config", release=release)
    except InputError as error:
        if not isinstance(config, str):
            # As a part of the scenario it has no lines of its own.
            error.line = None
        raise


def _objects(scenario: Mapping[str, Any], key: str) -> list[Object]:
    raw = scenario.get(key, ())
    if not isinstance(raw, list | tuple) or not all(isinstance(item, Mapping) for item in raw):
        raise DecodeError(_NOT_A_LIST, field=key)
    found = (decode_object(item) for item in raw)
    return [item for item in found if item is not None]


def _pod(item: Object) -> Pod:
    if not isinstance(item, Pod):
        raise DecodeError(_NOT_A_POD, object_key=object_key(item))
    return item
