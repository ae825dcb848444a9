"""Short ways to write configurations in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from bayplan.api.yaml_reader import Value
from bayplan.config import KubeSchedulerConfiguration, PluginCatalog, parse_config
from bayplan.config.decoding import parse_documents
from bayplan.config.model import API_VERSION, KIND


def parse_document(text: str, source: str) -> Value:
    """The first document of a text."""
    return next(parse_documents(text, source), Value(None, 1))


def config_text(**fields: Any) -> str:
    """The text of a file with these top-level fields."""
    return yaml.safe_dump({"apiVersion": API_VERSION, "kind": KIND, **fields})


def make_config(*, catalog: PluginCatalog | None = None, **fields: Any) -> KubeSchedulerConfiguration:
    """A complete configuration from a file with these top-level fields."""
    return parse_config(config_text(**fields), "test.yaml", catalog)


def make_profile_config(
    sets: Mapping[str, list[str]] | None = None,
    args: Mapping[str, Any] | None = None,
    catalog: PluginCatalog | None = None,
) -> KubeSchedulerConfiguration:
    """A complete configuration with one profile `p`.

    Plugin sets are lists of names: `Name` enables, `Name=3` enables with a weight, `-Name` disables.
    """
    plugins = {key: plugin_set(names) for key, names in (sets or {}).items()}
    profile: dict[str, Any] = {"schedulerName": "p", "plugins": plugins}
    if args:
        profile["pluginConfig"] = [{"name": name, "args": value} for name, value in args.items()]
    return make_config(catalog=catalog, profiles=[profile])


def plugin_set(names: list[str]) -> dict[str, Any]:
    """A plugin set from names as above."""
    enabled: list[dict[str, Any]] = []
    disabled: list[dict[str, Any]] = []
    for name in names:
        plain, _, weight = name.removeprefix("-").partition("=")
        entry: dict[str, Any] = {"name": plain} | ({"weight": int(weight)} if weight else {})
        (disabled if name.startswith("-") else enabled).append(entry)
    return {"enabled": enabled, "disabled": disabled}
