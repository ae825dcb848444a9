"""How kubectl gets to a local cluster: its entry in a kubeconfig, for as long as the cluster lives.

A cluster without a data directory is gone when it ends, and so is its entry. One that is kept keeps its
entry, too: the next start with the same data directory replaces it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

from bayplan.embedded.server import kubeconfig
from bayplan.embedded.server.kubeconfig import Entry
from bayplan.embedded.up.cluster import LocalCluster
from bayplan.errors import BayplanError

_log = logging.getLogger(__name__)


class KubeconfigFile:
    """The file that a user has named, and how the cluster is to be called there."""

    def __init__(self, path: Path, name: str | None = None, *, use_context: bool = False) -> None:
        self._path = path
        self._name = name
        self._use_context = use_context

    def check(self) -> None:
        """Raises InputError where the file cannot be added to; better before a cluster is started."""
        kubeconfig.check(self._path, self._name)

    @contextlib.asynccontextmanager
    async def of(self, cluster: LocalCluster) -> AsyncIterator[str]:
        """Has the cluster's entry in the file; yields what to write behind `kubectl --kubeconfig`."""
        endpoint = cluster.server.endpoint
        # In a thread: to find out whether a cluster of the same name runs takes a connection to it.
        entry = await asyncio.to_thread(
            kubeconfig.add, self._path, endpoint, self._name, use_context=self._use_context
        )
        try:
            yield _arguments(self._path, entry)
        finally:
            if not cluster.is_kept:
                await asyncio.to_thread(_remove, entry)


def _remove(entry: Entry) -> None:
    try:
        kubeconfig.remove(entry)
    except FileNotFoundError:
        pass  # the file was deleted, and the entry with it
    except (BayplanError, OSError) as error:
        _log.warning('context "%s" is left in %s: %s', entry.name, entry.path, error)


def _arguments(path: Path, entry: Entry) -> str:
    """The path as a user would type it, and the context where it is not the current one."""
    shown = str(path)
    with contextlib.suppress(ValueError):
        shown = os.path.join(".", path.absolute().relative_to(Path.cwd()))
    return shlex.quote(shown) if entry.is_current else f"{shlex.quote(shown)} --context {entry.name}"
