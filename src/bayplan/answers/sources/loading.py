"""Loads a cluster: from files, or from the API server of a kubeconfig."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from bayplan.answers.sources.files import STDIN, read_cluster
from bayplan.answers.sources.loaded import LoadedCluster, Origin
from bayplan.answers.sources.options import SourceOptions
from bayplan.answers.sources.settings import SchedulerSettings, load_settings
from bayplan.api.meta import DEFAULT_NAMESPACE
from bayplan.api.releases import Release
from bayplan.errors import InputError
from bayplan.garbage import no_garbage_collection
from bayplan.scheduler.plugin_library import named_library_plugins

TWO_READERS: Final = "standard input can be read only once"
NO_SOURCE: Final = (
    "no cluster: pass -f FILE, or --kubeconfig FILE for a live one "
    "(there is neither $KUBECONFIG nor {default})"
)


def load_cluster(options: SourceOptions) -> LoadedCluster:
    """The cluster that the options name, with the scheduler settings that they name.

    Raises:
        InputError: a file is missing or malformed, or standard input is named twice.
        ConfigError: the configuration or the kubeconfig is invalid.
        APIError: the API server cannot be read.
    """
    return with_settings(*_read(options))


def load_releases(options: SourceOptions) -> Callable[[Release], LoadedCluster]:
    """The cluster and the settings that the options name, as any release reads them.

    Raises:
        as `load_cluster`. The function that is returned raises ConfigError where the configuration is not
        valid as that release.
    """
    return partial(as_release, *_read(options))


def _read(options: SourceOptions) -> tuple[LoadedCluster, SchedulerSettings]:
    if options.files.count(STDIN) + (options.config_file == STDIN) > 1:
        raise InputError(TWO_READERS)
    settings = load_settings(options.config_file, options.plugin_specs, options.own_flags, options.release)
    with no_garbage_collection():
        return read_cluster(options.files) if options.files else load_live(options, settings), settings


def with_settings(loaded: LoadedCluster, settings: SchedulerSettings) -> LoadedCluster:
    """The cluster with other scheduler settings."""
    release = settings.release or loaded.release
    settings = settings.for_release(release)
    return replace(
        loaded,
        release=release,
        config=settings.config_for(loaded.config, release),
        plugins=settings.plugins,
        warnings=(*loaded.warnings, *settings.warnings),
    )


def as_release(loaded: LoadedCluster, settings: SchedulerSettings, release: Release) -> LoadedCluster:
    """The cluster and the settings as another release reads them."""
    read = replace(loaded, release=release) if loaded.reload is None else loaded.reload(release)
    return with_settings(read, replace(settings, release=release))


def load_live(options: SourceOptions, settings: SchedulerSettings) -> LoadedCluster:
    """Lists the cluster of a kubeconfig."""
    # Imported here: a client of API servers takes as long to import as a snapshot of a cluster to read.
    from bayplan.answers.sources.live import list_cluster
    from bayplan.client.kubeconfig import load_access

    kubeconfig = options.kubeconfig or default_kubeconfig(context=options.context)
    access = load_access(kubeconfig, context=options.context)
    plugins = (*settings.plugins, *named_library_plugins(settings.config).values())
    kinds = [kind for plugin in plugins for kind in plugin.kinds]
    listing = list_cluster(access, kinds)
    return LoadedCluster(
        options.context or access.server,
        listing.objects,
        source=access.server,
        origin=Origin.LIVE,
        listed=listing.listed,
        server_version=listing.server_version,
        release=listing.release,
        warnings=listing.warnings,
    )


def default_namespace(options: SourceOptions) -> str:
    """The namespace of what is named without one: that of the context, as in kubectl; for files `default`."""
    if options.files:
        return DEFAULT_NAMESPACE
    from bayplan.client.kubeconfig_file import read_config

    config = read_config(Path(options.kubeconfig or default_kubeconfig(context=options.context)))
    wanted = options.context or config.current_context
    found = next((one.context.namespace for one in config.contexts if one.name == wanted), "")
    return found or DEFAULT_NAMESPACE


def default_kubeconfig(environ: Mapping[str, str] | None = None, context: str = "") -> str:
    """The file that kubectl would read: of several in `$KUBECONFIG`, the first that has the context.

    kubectl also merges the files; here a context's cluster and user must be in the same file.

    Raises:
        InputError: there is none.
    """
    environ = os.environ if environ is None else environ
    named = filter(None, environ.get("KUBECONFIG", "").split(os.pathsep))
    files = [name for name in named if Path(name).is_file()]
    if len(files) > 1:
        from bayplan.client.kubeconfig_file import read_config

        configs = {name: read_config(Path(name)) for name in files}
        wanted = context or next((one.current_context for one in configs.values() if one.current_context), "")
        having = (name for name, one in configs.items() if any(c.name == wanted for c in one.contexts))
        return next(having, files[0])
    if files:
        return files[0]
    default = Path("~/.kube/config").expanduser()
    if default.is_file() and not environ.get("KUBECONFIG"):
        return str(default)
    raise InputError(NO_SOURCE.format(default=default))
