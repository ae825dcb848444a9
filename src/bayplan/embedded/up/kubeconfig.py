"""The entry of a local cluster in a kubeconfig, for the lifetime of the cluster.

The entry of a cluster without a data directory is removed when the cluster ends. With a data directory it
stays, and the next start with the same directory replaces it.
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
    """A kubeconfig, and the name of the cluster in it."""

    def __init__(self, path: Path, name: str | None = None, *, use_context: bool = False) -> None:
        self._path = path
        self._name = name
        self._use_context = use_context

    def check(self) -> None:
        """Raises InputError if the entry cannot be added to the file, before a cluster is started."""
        kubeconfig.check(self._path, self._name)

    @contextlib.asynccontextmanager
    async def of(self, cluster: LocalCluster) -> AsyncIterator[str]:
        """Adds the cluster's entry to the file; yields the arguments for `kubectl --kubeconfig`."""
        endpoint = cluster.server.endpoint
        # In a thread: it connects to a cluster of the same name, to see whether that is running.
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
