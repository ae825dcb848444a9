"""The classes of the library: plugins of bayplan that run only where a configuration names them."""

from __future__ import annotations

from bayplan.config import LIBRARY, KubeSchedulerConfiguration
from bayplan.framework.plugin_api import Plugin


def library_plugins() -> dict[str, type[Plugin]]:
    """All of them, by name."""
    return {name: entry.load() for name, entry in LIBRARY.items()}


def named_library_plugins(config: KubeSchedulerConfiguration | None) -> dict[str, type[Plugin]]:
    """Those that a profile of the configuration enables, by name. No others are imported."""
    profiles = () if config is None else config.profiles
    named = {name for profile in profiles for name in profile.plugins.enabled_names()}
    return {name: entry.load() for name, entry in LIBRARY.items() if name in named}
