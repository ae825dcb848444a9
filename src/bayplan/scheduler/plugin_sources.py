"""External plugins: where they are loaded from, how a configuration refers to them, and when they run.

Besides built-in plugins and the library (`plugins/library`), there are three sources of a class:

    --plugin module:Class, --plugin path.py:Class    `load_plugin` (also --plugin NAME for the library)
    a package with entry points `bayplan.plugins`    `installed_plugins`
    Scheduler(plugins=[Class])                       the class itself

Plugins of the library and installed ones run only if the configuration names them. Plugins passed explicitly
are enabled by `enable_everywhere` as if they were defaults: a profile that does not name one runs it at every
point it implements, after all others; if a profile names it, even to disable it, the configuration decides.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Final, TypeGuard

from msgspec.structs import replace

from bayplan.api.releases import DEFAULT_RELEASE, RELEASES, Release
from bayplan.config import (
    LIBRARY,
    KubeSchedulerConfiguration,
    PluginEntry,
    Profile,
    TableCatalog,
    default_catalog,
)
from bayplan.config.defaults import default_arguments
from bayplan.config.model import PluginConfig, PluginRef
from bayplan.errors import ConfigError, InputError
from bayplan.framework.plugin_api import NodePlugin, Plugin
from bayplan.framework.points import PLUGIN_ENTRY_POINTS, Point
from bayplan.framework.status import plugin_exceptions
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime.profile import points_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_PACKAGE: Final = str(Path(__file__).parents[1]) + os.sep

_FILE_MODULE: Final = "bayplan_plugin_file "
"""Modules loaded from a path are registered under this prefix and the path: no import can name them."""


def plugin_file(spec: str) -> Path | None:
    """The file of `path.py:Class`; None for `module:Class`."""
    source = spec.rpartition(":")[0]
    return Path(source).expanduser().resolve() if _is_path(source) else None


def load_plugin(spec: str, *, fresh: bool = False) -> type[Plugin]:
    """The plugin that `module:Class`, `path.py:Class` or a name of the library names.

    `fresh` reads a file again.

    Raises:
        InputError: there is no such file, module or class, it cannot be imported, or it is not a plugin.
        ConfigError: it has the name of a built-in plugin.
    """
    if spec in LIBRARY:
        found_in_library: type[Plugin] = LIBRARY[spec].load()
        return found_in_library
    return _checked(spec, load_class(spec, fresh=fresh))


def load_class(spec: str, *, fresh: bool = False) -> object:
    """What `module:Class` or `path.py:Class` names; `fresh` reads a file again.

    Raises:
        InputError: there is no such file, module or class, or it cannot be imported.
    """
    source, colon, name = spec.rpartition(":")
    if not (source and colon and name):
        raise _problem(spec, "should be module:Class, path.py:Class or the name of a library plugin")
    module = _from_file(spec, source, fresh) if _is_path(source) else _from_import(spec, source)
    found = getattr(module, name, None)
    if found is None:
        raise _problem(spec, f"{source} has no class {name}{_others(module)}")
    return found


def installed_plugins() -> dict[str, type[Plugin]]:
    """The plugins of installed packages, by name.

    Raises:
        InputError: one cannot be loaded, or is not a plugin.
        ConfigError: one has the name of a built-in plugin, or of another one.
    """
    from importlib.metadata import entry_points

    found: dict[str, type[Plugin]] = {}
    for entry in sorted(entry_points(group=PLUGIN_ENTRY_POINTS), key=lambda entry: (entry.name, entry.value)):
        plugin = load_entry(entry)
        if found.setdefault(plugin.name, plugin) is not plugin:
            raise ConfigError(f"plugin {_entry_text(entry)}: {_name_taken(plugin.name)}")
    return found


def load_entry(entry: EntryPoint) -> type[Plugin]:
    """The plugin of an entry point.

    Raises:
        InputError: it cannot be loaded, or is not a plugin.
        ConfigError: it has the name of a built-in plugin.
    """
    spec = _entry_text(entry)
    try:
        loaded = entry.load()
    except plugin_exceptions() as error:
        module = sys.modules.get(entry.module)
        if isinstance(error, AttributeError) and module is not None and not hasattr(module, entry.attr):
            problem = f"{entry.module} has no class {entry.attr}{_others(module)}"
            raise _problem(spec, f"{problem}; correct it or the entry point in pyproject.toml") from None
        raise _problem(spec, _import_problem(error)) from error
    return _checked(spec, loaded)


def _entry_text(entry: EntryPoint) -> str:
    return f"{entry.value} ({entry.dist.name})" if entry.dist is not None else entry.value


def known_plugins(
    given: Iterable[type[Plugin]] = (), installed: Mapping[str, type[Plugin]] | None = None
) -> tuple[type[Plugin], ...]:
    """Every class that a configuration may name, each once: built in, installed (if given), passed.

    Raises:
        ConfigError: two of them have the same name.
    """
    found: dict[str, type[Plugin]] = {}
    for plugin in (*BUILTIN_PLUGINS, *(installed or {}).values(), *given):
        if found.setdefault(plugin.name, plugin) is not plugin:
            raise ConfigError(_name_taken(plugin.name))
    return tuple(found.values())


def catalog_with(plugins: Iterable[type[Plugin]], release: Release = DEFAULT_RELEASE) -> TableCatalog:
    """What a configuration may name: the plugins of the release, the library, and these. For `load_config`.

    Built-in classes among them are ignored.

    Raises:
        ConfigError: two of them have the same name.
    """
    return default_catalog(release).with_plugins(
        {
            plugin.name: PluginEntry(points_of(plugin) | _group_points(plugin), plugin.args_type)
            for plugin in known_plugins(plugins)
            if plugin not in BUILTIN_PLUGINS
        }
    )


def _group_points(plugin: type[Plugin]) -> frozenset[Point]:
    """A plugin that preempts does so for groups only if it has its own rule for them."""
    has_rule = "pod_group_post_filter" in vars(plugin)
    return frozenset({Point.POD_GROUP_POST_FILTER} if has_rule else ())


def enable_everywhere(
    config: KubeSchedulerConfiguration, plugins: Iterable[type[Plugin]]
) -> KubeSchedulerConfiguration:
    """The configuration with these plugins in all profiles that do not name them, through multiPoint.

    Arguments alone (`pluginConfig`) do not count as naming; a plugin without arguments gets its defaults.
    """
    wanted = tuple(dict.fromkeys(plugins))
    catalog = catalog_with(wanted, config.release)
    profiles = tuple(_with_plugins(profile, wanted, catalog, config) for profile in config.profiles)
    return replace(config, profiles=profiles)


def only_where_named(
    config: KubeSchedulerConfiguration, installed: Mapping[str, type[Plugin]]
) -> tuple[KubeSchedulerConfiguration, tuple[type[Plugin], ...]]:
    """The installed plugins that some profile enables, and a configuration that disables them in all others.

    Otherwise `enable_everywhere` would enable them in those, too.
    """
    by_profile = [set(profile.plugins.enabled_names()) for profile in config.profiles]
    used = [name for name in installed if any(name in enabled for enabled in by_profile)]
    profiles = []
    for profile, enabled in zip(config.profiles, by_profile, strict=True):
        everywhere = profile.plugins.multi_point
        absent = tuple(PluginRef(name=name) for name in used if name not in enabled)
        everywhere = replace(everywhere, disabled=(*everywhere.disabled, *absent))
        profiles.append(replace(profile, plugins=replace(profile.plugins, multi_point=everywhere)))
    return replace(config, profiles=tuple(profiles)), tuple(installed[name] for name in used)


def _with_plugins(
    profile: Profile,
    wanted: tuple[type[Plugin], ...],
    catalog: TableCatalog,
    config: KubeSchedulerConfiguration,
) -> Profile:
    sets = [getattr(profile.plugins, point) for point in profile.plugins.__struct_fields__]
    named = {plugin.name for plugins in sets for plugin in (*plugins.enabled, *plugins.disabled)}
    added = [plugin.name for plugin in wanted if plugin.name not in named]
    everywhere = profile.plugins.multi_point
    everywhere = replace(everywhere, enabled=(*everywhere.enabled, *(PluginRef(name=name) for name in added)))
    given = {entry.name for entry in profile.plugin_config}
    defaults = {
        plugin.name: default_arguments(plugin.name, catalog, config.gates)
        for plugin in wanted
        if plugin.name not in given
    }
    return replace(
        profile,
        plugins=replace(profile.plugins, multi_point=everywhere),
        plugin_config=(
            *profile.plugin_config,
            *(PluginConfig(name, args) for name, args in defaults.items() if args is not None),
        ),
    )


# Importing


def _is_path(source: str) -> bool:
    return source.endswith(".py") or os.sep in source


class _UncachedLoader(SourceFileLoader):
    """Compiles the file itself: a cached version may be that of an edit within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _from_file(spec: str, source: str, fresh: bool) -> ModuleType:
    """The module of a file. It is loaded once, unless `fresh` is set."""
    path = Path(source).expanduser().resolve()
    if not path.is_file():
        raise _problem(spec, f"there is no file {source}")
    name = f"{_FILE_MODULE}{path}"
    before = sys.modules.get(name)
    if before is not None and not fresh:
        return before
    if path.suffix != ".py":
        raise _problem(spec, f"{source} is not a Python file: its name must end in .py")
    loader = _UncachedLoader(name, str(path))
    found = importlib.util.spec_from_loader(name, loader)
    assert found is not None
    module = importlib.util.module_from_spec(found)
    # Before it is executed: classes look their module up while they are created.
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except plugin_exceptions() as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise _problem(spec, _import_problem(error)) from error
    return module


def _from_import(spec: str, source: str) -> ModuleType:
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{source}.".startswith(f"{error.name}."):
            raise _problem(
                spec, f"there is no module {error.name}; for a file of your own, write path/to/file.py:Class"
            ) from None
        raise _problem(spec, _import_problem(error)) from error
    except plugin_exceptions() as error:
        raise _problem(spec, _import_problem(error)) from error


# Validation


def _checked(spec: str, found: object) -> type[Plugin]:
    if not _is_plugin(found):
        raise _problem(spec, f"{getattr(found, '__name__', found)} is not a subclass of Plugin")
    if not points_of(found):
        raise _problem(spec, f"{found.__name__} implements no extension point")
    if any(found.name in release.registry for release in RELEASES.values()):
        raise ConfigError(f"plugin {spec}: {_name_taken(found.name)}")
    return found


def _is_plugin(found: object) -> TypeGuard[type[Plugin]]:
    return isinstance(found, type) and issubclass(found, Plugin) and found not in (Plugin, NodePlugin)


def _others(module: ModuleType) -> str:
    """The plugins that a module has instead of the requested one."""
    names = sorted(name for name, found in vars(module).items() if _is_plugin(found))
    return f", but {', '.join(names)}" if names else ""


def _name_taken(name: str) -> str:
    return f"a plugin named {name} already exists"


def _import_problem(error: BaseException) -> str:
    text = f"it cannot be imported: {type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return text  # which has file and line
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_code_of_plugin(frame)]
    return f"{text} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else text


def _is_code_of_plugin(frame: traceback.FrameSummary) -> bool:
    file = frame.filename
    return not file.startswith((_PACKAGE, "<frozen", os.path.dirname(importlib.__file__)))


def _problem(spec: str, problem: str) -> InputError:
    return InputError(problem, object_key=f"plugin {spec}")


def library_plugins() -> dict[str, type[Plugin]]:
    """All of them, by name."""
    return {name: entry.load() for name, entry in LIBRARY.items()}


def named_library_plugins(config: KubeSchedulerConfiguration | None) -> dict[str, type[Plugin]]:
    """Those that a profile of the configuration enables, by name. No others are imported."""
    profiles = () if config is None else config.profiles
    named = {name for profile in profiles for name in profile.plugins.enabled_names()}
    return {name: entry.load() for name, entry in LIBRARY.items() if name in named}
