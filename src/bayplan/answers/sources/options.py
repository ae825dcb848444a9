"""The source of a cluster, as a plain value; `cli/source_options.py` has the command-line options."""

from __future__ import annotations

from dataclasses import dataclass, field

from bayplan.api.releases import Release
from bayplan.config import OwnFlags


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
