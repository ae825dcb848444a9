"""The queues.yaml of a ConfigMap, as YuniKorn keeps it: read before the first pod is scheduled, and again.

The ConfigMap is read every few seconds instead of watched, so a scheduler needs the permission to get one
ConfigMap, and not to list all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from textwrap import dedent
from typing import Any, ClassVar, Final

import yaml

from bayplan.api.cluster_api import ClusterAPI
from bayplan.api.meta import Object
from bayplan.api.yaml_reader import MAX_VALUES, PlainReader
from bayplan.errors import APIError, DecodeError, NotFoundError
from bayplan.queues.active import CapacityQueues
from bayplan.queues.yunikorn.checks import load
from bayplan.queues.yunikorn.config import DEFAULT_CONFIG, QueueConfigError

KEY: Final = "queues.yaml"
READ_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class ConfigMap(Object, frozen=True):
    api_resource: ClassVar[str] = "configmaps.v1."

    data: dict[str, str] = {}


def text_of(item: ConfigMap | None) -> str:
    """The queues.yaml of a ConfigMap; without one, or without the key, that of a queue for each namespace."""
    return (item.data.get(KEY) if item is not None else "") or DEFAULT_CONFIG


def of_manifest(text: str) -> str:
    """The queues.yaml in the manifest of a ConfigMap; any other text as it is."""
    data = next(_config_maps(text), None)
    return text if data is None else data.get(KEY) or DEFAULT_CONFIG


def conf_of_manifest(text: str) -> str:
    """The volcano-scheduler.conf in the manifest of a ConfigMap, whose key has the name of the file."""
    for data in _config_maps(text):
        for name, content in data.items():
            if name.endswith(".conf") and isinstance(content, str) and is_conf(content):
                return content
    return text


def is_conf(text: str) -> bool:
    """Whether a text is a volcano-scheduler.conf, and not a queues.yaml."""
    return any(line.startswith(("actions:", "tiers:")) for line in dedent(text).splitlines())


def _config_maps(text: str) -> Iterator[dict[str, Any]]:
    """The data of the ConfigMaps in a manifest; nothing if it is something else."""
    if "ConfigMap" not in text:
        return
    try:
        documents = [read.value for read in PlainReader(text, max_values=MAX_VALUES).documents()]
    except (DecodeError, yaml.YAMLError):
        return  # whoever reads it as a configuration reports what is wrong
    for item in documents:
        if isinstance(item, dict) and item.get("kind") == "ConfigMap":
            data = item.get("data")
            yield data if isinstance(data, dict) else {}


async def follow_config_map(
    api: ClusterAPI, queues: CapacityQueues, name: str, loaded: asyncio.Event, changed: Callable[[], None]
) -> None:
    """Applies the ConfigMap `namespace/name` and every change of it, until it is cancelled.

    Args:
        loaded: set once a valid configuration was applied. An invalid one is reported and ignored.
        changed: called after each change.
    """
    namespace, _, own_name = name.partition("/")
    known, is_default = None, True
    while True:
        is_there = True
        try:
            text = text_of(await api.get(ConfigMap, own_name, namespace))
        except NotFoundError:
            is_there, text = False, text_of(None)
        except APIError as error:
            _log.warning("queues: cannot read ConfigMap %s: %s", name, error)
            text = known or ""
        if text and text != known:
            known = text
            try:
                # The first configuration of the user places everything again, as a restart would.
                apply = queues.begin_with if is_default else queues.reload
                apply(load(text).partitions[0])
            except (QueueConfigError, IndexError) as error:
                problem = error.problem if isinstance(error, QueueConfigError) else "there is no partition"
                stays = "the old one stays in force" if loaded.is_set() else "no pod is scheduled"
                _log.error(
                    "queues: the configuration in ConfigMap %s is invalid, %s: %s", name, stays, problem
                )
            else:
                message = "the configuration was loaded from ConfigMap %s"
                if not is_there:
                    message = "there is no ConfigMap %s: each namespace gets a queue"
                _log.warning(f"queues: {message}", name)
                is_default = is_default and not is_there
                loaded.set()
                changed()
        await asyncio.sleep(READ_SECONDS)
