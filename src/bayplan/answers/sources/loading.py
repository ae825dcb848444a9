"""Loads a cluster, from files or from the API server of a kubeconfig, and the scheduler settings to evaluate
it with.

A kube-scheduler configuration may name plugins and extenders that exist only in another scheduler. A plugin
that does not exist here is left out, an extender is not called, and a warning names each of them. `loaded.py`
has the result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bayplan.answers.sources.files import STDIN, read_cluster
from bayplan.answers.sources.groups import GROUPS, in_dialects, release_for
from bayplan.answers.sources.loaded import LoadedCluster, Origin
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.api.meta import DEFAULT_NAMESPACE, Object
from bayplan.api.node import Node
from bayplan.api.releases import DEFAULT_RELEASE, RELEASES, Release
from bayplan.config import (
    KubeSchedulerConfiguration,
    OwnFlags,
    Profile,
    TableCatalog,
    build_profiles,
    default_config,
    parse_config,
)
from bayplan.config.load import read_config_text
from bayplan.config.model import ALL, PluginSet
from bayplan.errors import ConfigError, InputError
from bayplan.framework.plugin_api import Plugin
from bayplan.garbage import no_garbage_collection
from bayplan.net.http_logs import shown_url
from bayplan.scheduler.plugin_sources import (
    catalog_with,
    installed_plugins,
    load_plugin,
    named_library_plugins,
    only_where_named,
)

TWO_READERS: Final = "standard input can be read only once"
NO_SOURCE: Final = (
    "no cluster: pass -f FILE, or --kubeconfig FILE for a live one "
    "(there is neither $KUBECONFIG nor {default})"
)
_ABSENT: Final = (
    "plugin {name} of the configuration is not available: evaluated without it. Pass --plugin SOURCE:CLASS "
    "if you have it"
)
_MINOR: Final = re.compile(r"v1\.(\d{1,4})(\.|$)")
_KUBELETS: Final = (
    "the newest kubelet has version {kubelet}: evaluated as Kubernetes {release}. Pass --emulated-version if "
    "the scheduler has another version"
)
_EXTENDER: Final = "extender {url} is not called: its filters and scores are missing from the result"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Files, or an API server; and the settings of the scheduler."""

    files: tuple[str, ...] = ()
    """`-f`: files and directories, all of them one cluster; `-` is standard input."""
    kubeconfig: str = ""
    """A kubeconfig file; empty: `$KUBECONFIG` or `~/.kube/config`, as kubectl."""
    context: str = ""
    """A context of the kubeconfig; empty: its current one."""
    config_file: str | None = None
    plugin_specs: tuple[str, ...] = ()
    own_flags: OwnFlags = field(default_factory=OwnFlags)
    """bayplan's own settings on the command line."""
    release: Release | None = None
    """`--emulated-version`; None: that of the cluster."""
    time_limit: float | None = None
    """Seconds for reading a live cluster; None: no limit but that of each request."""


def load_cluster(options: SourceOptions) -> LoadedCluster:
    """The cluster that the options name, with the scheduler settings that they name.

    Raises:
        InputError: a file is missing or malformed, or standard input is named twice.
        ConfigError: the configuration or the kubeconfig is invalid.
        APIError: the API server cannot be read.
    """
    return with_settings(*_read(options))


async def load_cluster_async(options: SourceOptions) -> LoadedCluster:
    """The same, for callers that have an event loop: several live clusters can be read at the same time."""
    settings = _settings(options)
    with no_garbage_collection():
        if options.files:
            return with_settings(read_cluster(options.files), settings)
        return with_settings(await load_live(options, settings), settings)


def load_releases(options: SourceOptions) -> Callable[[Release], LoadedCluster]:
    """The cluster and the settings that the options name, as any release reads them.

    Raises:
        as `load_cluster`. The function that is returned raises ConfigError where the configuration is not
        valid as that release.
    """
    return partial(as_release, *_read(options))


def _read(options: SourceOptions) -> tuple[LoadedCluster, SchedulerSettings]:
    settings = _settings(options)
    with no_garbage_collection():
        if options.files:
            return read_cluster(options.files), settings
        import asyncio

        return asyncio.run(load_live(options, settings)), settings


def _settings(options: SourceOptions) -> SchedulerSettings:
    if options.files.count(STDIN) + (options.config_file == STDIN) > 1:
        raise InputError(TWO_READERS)
    return load_settings(options.config_file, options.plugin_specs, options.own_flags, options.release)


def with_settings(loaded: LoadedCluster, settings: SchedulerSettings) -> LoadedCluster:
    """The cluster with other scheduler settings."""
    release = settings.release or loaded.release
    more = () if settings.release or loaded.server_version else kubelet_warnings(loaded.objects, release)
    release = release_for(release, loaded.objects, settings.config_for(loaded.config, release))
    settings = settings.for_release(release)
    config = _with_queues(settings.config_for(loaded.config, release), loaded.queues_texts)
    dialects = () if config is None else config.bayplan.pod_groups
    return replace(
        loaded,
        objects=in_dialects(loaded.objects, dialects),
        release=release,
        config=config,
        plugins=settings.plugins,
        config_file=settings.config_file,
        reload=partial(as_release, loaded, settings),
        warnings=(*loaded.warnings, *settings.warnings, *more),
    )


def _with_queues(
    config: KubeSchedulerConfiguration | None, texts: Mapping[str, str]
) -> KubeSchedulerConfiguration | None:
    """The configuration with the content of the ConfigMap that it names, if that was read."""
    queues = None if config is None else config.bayplan.queues
    if config is None or queues is None or queues.config_map not in texts:
        return config
    # Imported here: few configurations have queues.
    from bayplan.queues.yunikorn.config import DEFAULT_CONFIG

    text = texts[queues.config_map] or DEFAULT_CONFIG
    bayplan = msgspec.structs.replace(config.bayplan, queues=queues.with_text(text))
    return msgspec.structs.replace(config, bayplan=bayplan)


def kubelet_warnings(objects: Iterable[Object], release: Release) -> list[Warning]:
    """A warning if the release was only assumed, and no kubelet has its version: kubelets are not newer than
    the scheduler, and a cluster has seldom only older ones."""
    versions = {item.status.node_info.kubelet_version for item in objects if isinstance(item, Node)}
    known = [(int(found[1]), text) for text in versions if (found := _MINOR.match(text))]
    if not known or max(known)[0] == release.minor:
        return []
    newest = max(known)[1]
    text = _KUBELETS.format(kubelet=newest, release=release)
    return [Warning(text, reason=Reason.OTHER_VERSION, object=newest)]


def as_release(loaded: LoadedCluster, settings: SchedulerSettings, release: Release) -> LoadedCluster:
    """The cluster and the settings as another release reads them."""
    read = replace(loaded, release=release) if loaded.reload is None else loaded.reload(release)
    return with_settings(read, replace(settings, release=release))


async def load_live(options: SourceOptions, settings: SchedulerSettings) -> LoadedCluster:
    """Lists the cluster of a kubeconfig."""
    # Imported here: a client of API servers takes as long to import as a snapshot of a cluster to read.
    from bayplan.answers.sources.live import list_cluster_async
    from bayplan.client.kubeconfig import load_access

    kubeconfig = options.kubeconfig or default_kubeconfig(context=options.context)
    access = load_access(kubeconfig, context=options.context)
    plugins = (*settings.plugins, *named_library_plugins(settings.config).values())
    kinds = [kind for plugin in plugins for kind in plugin.kinds]
    queues = None if settings.config is None else settings.config.bayplan.queues
    listing = await list_cluster_async(
        access,
        kinds,
        config_map="" if queues is None else queues.config_map,
        time_limit=options.time_limit,
    )
    return LoadedCluster(
        options.context or access.server,
        listing.objects,
        source=access.server,
        origin=Origin.LIVE,
        listed=listing.listed,
        server_version=listing.server_version,
        release=listing.release,
        queues_texts=listing.queues_texts,
        warnings=listing.warnings,
    )


def default_namespace(options: SourceOptions) -> str:
    """The namespace of what is named without one: that of the context, as in kubectl; for files `default`."""
    if options.files:
        return DEFAULT_NAMESPACE
    from bayplan.client.kubeconfig import read_config

    kubeconfig = options.kubeconfig or default_kubeconfig(context=options.context)
    if not kubeconfig:
        return DEFAULT_NAMESPACE
    config = read_config(Path(kubeconfig))
    wanted = options.context or config.current_context
    found = next((one.context.namespace for one in config.contexts if one.name == wanted), "")
    return found or DEFAULT_NAMESPACE


def default_kubeconfig(environ: Mapping[str, str] | None = None, context: str = "") -> str:
    """The file that kubectl would read: of several in `$KUBECONFIG`, the first that has the context.

    kubectl also merges the files; here a context's cluster and user must be in the same file. Empty in a pod
    without a kubeconfig: its service account is used.

    Raises:
        InputError: there is none.
    """
    environ = os.environ if environ is None else environ
    named = filter(None, environ.get("KUBECONFIG", "").split(os.pathsep))
    files = [name for name in named if Path(name).is_file()]
    if len(files) > 1:
        from bayplan.client.kubeconfig import read_config

        configs = {name: read_config(Path(name)) for name in files}
        wanted = context or next((one.current_context for one in configs.values() if one.current_context), "")
        having = (name for name, one in configs.items() if any(c.name == wanted for c in one.contexts))
        return next(having, files[0])
    if files:
        return files[0]
    default = Path("~/.kube/config").expanduser()
    if default.is_file() and not environ.get("KUBECONFIG"):
        return str(default)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return ""
    raise InputError(NO_SOURCE.format(default=default))


# The scheduler's settings


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """A configuration, plugins besides the built-in ones, and what of the configuration is not used."""

    config: KubeSchedulerConfiguration | None = None
    """None: the default configuration, or that of a scenario."""
    own_flags: OwnFlags = field(default_factory=OwnFlags)
    """Single settings of bayplan's own, which change the configuration of a scenario, too."""
    plugins: tuple[type[Plugin], ...] = ()
    warnings: tuple[Warning, ...] = ()
    release: Release | None = None
    """`--emulated-version`; None: that of the cluster."""
    config_file: str = ""
    reload: Callable[[Release], SchedulerSettings] | None = None
    """Reads the configuration file as another release."""

    def for_release(self, release: Release) -> SchedulerSettings:
        """These settings as a release reads them: it decides what the configuration leaves out."""
        if self.reload is None or self.config is None or self.config.release == release:
            return self
        return self.reload(release)

    def config_for(
        self, scenario: KubeSchedulerConfiguration | None, release: Release
    ) -> KubeSchedulerConfiguration | None:
        """The configuration to use, where a scenario may bring one; None: the default one."""
        if self.config is not None:
            return self.config
        if self.own_flags == OwnFlags():
            return scenario
        return self.own_flags.apply(scenario or default_config(release=release))


def load_settings(
    config_file: str | None = None,
    plugin_specs: Sequence[str] = (),
    own_flags: OwnFlags | None = None,
    release: Release | None = None,
    *,
    allow_absent: bool = True,
) -> SchedulerSettings:
    """Reads `--config FILE` and `--plugin SOURCE:CLASS`; `release` is `--emulated-version`.

    A plugin that the configuration names and that does not exist here is a warning, or an error if
    `allow_absent` is false.

    Raises:
        InputError: the file is missing or malformed, or a plugin cannot be loaded.
        ConfigError: the configuration is invalid.
    """
    plugins = tuple(dict.fromkeys(load_plugin(spec) for spec in plugin_specs))
    own = own_flags or OwnFlags()
    if config_file is None:
        return SchedulerSettings(plugins=plugins, own_flags=own, release=release)
    text = read_config_text(config_file)

    def read(as_release: Release) -> SchedulerSettings:
        settings = _read_settings(text, config_file, plugins, own, as_release, allow_absent)
        return replace(settings, release=release, config_file=config_file, reload=read)

    # The release of the cluster may not be known yet, nor whether it has pod groups, and `for_release` reads
    # the file again: a configuration that is valid only as another release than the default one, or only with
    # the gate for groups, is no error here.
    problem: ConfigError | None = None
    assumptions = [release] if release is not None else [DEFAULT_RELEASE, *RELEASES.values()]
    if allow_absent:
        assumptions += [one.with_gates(one.gates | {GROUPS}) for one in assumptions]
    for assumed in assumptions:
        try:
            return read(assumed)
        except ConfigError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _read_settings(
    text: str,
    source: str,
    plugins: tuple[type[Plugin], ...],
    own: OwnFlags,
    release: Release,
    allow_absent: bool,
) -> SchedulerSettings:
    installed = installed_plugins()
    catalog = catalog_with((*plugins, *installed.values()), release)
    config = own.apply(parse_config(text, source, catalog, release))
    config, absent = without_absent_plugins(config, catalog) if allow_absent else (config, [])
    try:
        build_profiles(config, catalog)
    except ConfigError as error:
        raise error.within(source) from None
    given = {plugin.name for plugin in plugins}
    config, used = only_where_named(
        config, {name: plugin for name, plugin in installed.items() if name not in given}
    )
    warnings = (
        *(Warning(_ABSENT.format(name=name), reason=Reason.ABSENT_PLUGIN, object=name) for name in absent),
        *extender_warnings(config),
    )
    return SchedulerSettings(config, own, (*plugins, *used), warnings)


def extender_warnings(config: KubeSchedulerConfiguration | None) -> list[Warning]:
    """A warning for each extender of the configuration: none is called."""
    extenders = () if config is None else config.extenders
    urls = (shown_url(one.url_prefix) for one in extenders)
    return [Warning(_EXTENDER.format(url=url), reason=Reason.NOT_RUN, object=url) for url in urls]


def without_absent_plugins(
    config: KubeSchedulerConfiguration, catalog: TableCatalog
) -> tuple[KubeSchedulerConfiguration, list[str]]:
    """The configuration without plugins that the catalog does not have, and the names of these."""
    absent = {
        name: None
        for profile in config.profiles
        for name in profile.plugins.enabled_names()
        if name not in catalog.names
    }
    if not absent:
        return config, []
    profiles = tuple(_without(profile, absent) for profile in config.profiles)
    return msgspec.structs.replace(config, profiles=profiles), list(absent)


def _without(profile: Profile, absent: Iterable[str]) -> Profile:
    gone = frozenset(absent)
    sets: dict[str, PluginSet] = {}
    for point in profile.plugins.__struct_fields__:
        plugins: PluginSet = getattr(profile.plugins, point)
        sets[point] = msgspec.structs.replace(
            plugins,
            enabled=tuple(one for one in plugins.enabled if one.name not in gone),
            disabled=tuple(one for one in plugins.disabled if one.name == ALL or one.name not in gone),
        )
    return msgspec.structs.replace(
        profile,
        plugins=msgspec.structs.replace(profile.plugins, **sets),
        plugin_config=tuple(entry for entry in profile.plugin_config if entry.name not in gone),
    )
