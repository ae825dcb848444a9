"""Documents on disk: SQLite in WAL mode, with many writes sharing one commit.

A write is accepted at once and committed soon: all writes of one turn of the event loop, and all that arrive
during a commit, share the next one. The commit waits for the disk in its own thread, so the loop continues.
Before a write is acknowledged, `wait` waits for its version, so kill -9 loses no acknowledged write, and with
`fsync` neither does a power failure. After an error of the disk all waiting and later writes fail.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from bayplan.embedded.server.database import (
    COMMITTED_NAME,
    FILE_NAME,
    Contents,
    DamagedError,
    Row,
    StorageError,
    committed_line,
    open_database,
)
from bayplan.embedded.server.documents import Document, Journal
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.salvage import salvage
from bayplan.embedded.server.statuses import UnavailableError
from bayplan.files import private_directory, warn_if_exposed

__all__ = ["DamagedError", "SQLiteJournal", "StorageError"]

_PUT: Final = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE: Final = "DELETE FROM objects WHERE api_version = ? AND plural = ? AND key = ?"
_KNOWN: Final = "SELECT checksum FROM objects WHERE api_version = ? AND plural = ? AND key = ?"
_COUNT: Final = "UPDATE counter SET version = ?, objects = ?, digest = ?, checksum = ?"

_Place = tuple[str, str, str]


class SQLiteJournal(Journal):
    """The journal in one directory. It needs a running event loop; one process at a time can use it."""

    def __init__(self, directory: Path, *, fsync: bool = True, salvages: bool = False) -> None:
        """`salvages`: keep the intact part of a damaged database, instead of raising an error.

        Raises:
            DamagedError: the database is not what was written.
            StorageError: it cannot be used, or another process uses it.
        """
        self._path = directory / FILE_NAME
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._pending: dict[_Place, Row | None] = {}
        self._pending_version = 0
        self._is_busy = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: Exception | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        try:
            private_directory(directory)
            warn_if_exposed(directory, "data directory")
            self._database, contents = _opened(directory, fsync=fsync, salvages=salvages)
            self._witness = os.open(directory / COMMITTED_NAME, os.O_WRONLY | os.O_NOFOLLOW)
        except (OSError, sqlite3.Error) as error:
            self._thread.shutdown()
            raise StorageError(f"{self._path}: {_why(error)}") from error
        except BaseException:
            self._thread.shutdown()
            raise
        self._kept, self._totals = contents
        self._committed = self._totals.version

    @property
    def committed(self) -> int:
        return self._committed

    @property
    def failure(self) -> Exception | None:
        return self._failure

    def documents(self) -> Iterator[tuple[str, str, Document]]:
        """All stored objects: apiVersion, plural and document, resource by resource. Only once."""
        kept, self._kept = self._kept, []
        for row in kept:
            yield row.api_version, row.plural, Document(row.key, row.version, row.body)

    def record(self, resource: Resource, document: Document, *, removed: bool) -> None:
        if self._failure is not None:
            raise _write_error(self._failure)
        place = (resource.api_version, resource.plural, document.key)
        self._pending[place] = None if removed else Row(*place, document.version, document.body)
        self._pending_version = document.version
        if not self._is_busy:
            self._is_busy = True
            self._idle.clear()
            asyncio.get_running_loop().call_soon(self._flush)

    async def wait(self, version: int) -> None:
        if self._failure is not None:
            raise _write_error(self._failure)
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((version, waiter))
        await waiter

    async def close(self) -> None:
        """Commits pending writes and closes the files."""
        await self._idle.wait()
        self._thread.shutdown()
        self._database.close()
        os.close(self._witness)

    def _flush(self) -> None:
        rows, self._pending = self._pending, {}
        version = self._pending_version
        loop = asyncio.get_running_loop()
        commit = loop.run_in_executor(self._thread, self._commit, rows, version)
        commit.add_done_callback(lambda done: self._done(done, version))

    def _commit(self, rows: dict[_Place, Row | None], version: int) -> None:
        """Runs in the thread."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            totals = self._totals.plus(version, 0, 0)
            for place, row in rows.items():
                known = database.execute(_KNOWN, place).fetchone()
                if known is not None:
                    totals = totals.plus(version, -1, -known[0])
                if row is not None:
                    checksum = row.checksum()
                    totals = totals.plus(version, 1, checksum)
                    database.execute(_PUT, (*row, checksum))
                elif known is not None:
                    database.execute(_REMOVE, place)
            database.execute(_COUNT, totals.columns())
            database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        self._totals = totals
        # After the commit: it may be behind the database, never ahead of it.
        os.pwrite(self._witness, committed_line(version), 0)

    def _done(self, commit: asyncio.Future[None], version: int) -> None:
        error = commit.exception()
        if error is not None:
            self._failure = StorageError(f"{self._path}: {_why(error)}")
            self._release(lambda waiter: waiter.set_exception(_write_error(self._failure)))
            self._idle.set()
            return
        self._committed = version
        self._release(lambda waiter: waiter.set_result(None), version)
        if self._pending:
            self._flush()
        else:
            self._is_busy = False
            self._idle.set()

    def _release(self, resolve: Callable[[asyncio.Future[None]], None], version: int | None = None) -> None:
        """Resolves the waiters for versions up to this one; all of them, without one."""
        waiting = self._waiting
        kept = deque[tuple[int, asyncio.Future[None]]]()
        while waiting:
            wanted, waiter = waiting.popleft()
            if version is not None and wanted > version:
                kept.append((wanted, waiter))
            elif not waiter.done():
                resolve(waiter)
        self._waiting = kept


def _opened(directory: Path, *, fsync: bool, salvages: bool) -> tuple[sqlite3.Connection, Contents]:
    try:
        return open_database(directory, fsync=fsync)
    except DamagedError as damage:
        if not salvages:
            raise
        salvage(directory, damage)
        return open_database(directory, fsync=fsync)


def _write_error(error: Exception | None) -> UnavailableError:
    message = f"Internal error occurred: the write may be lost, nothing more is accepted: {error}"
    return UnavailableError(message, 500, reason="InternalError")


def _why(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error)
