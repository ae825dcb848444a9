"""Documents on disk: SQLite in WAL mode, with many writes sharing one commit.

A write is taken at once and committed soon: all writes of one turn of the loop, and all that come while a
commit is under way, share the next one. The commit waits for the disk in a thread of its own, so the loop
goes on. Who acknowledges a write waits for its version first (`wait`); kill -9 therefore loses nothing that
was acknowledged, and with `fsync` neither does a power failure.

A disk that fails takes no more writes: everybody who waits is told, and so is everybody who comes later.
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

from bayplan.errors import BayplanError
from bayplan.files import private_directory, warn_if_exposed
from bayplan.server.documents import Document, Journal
from bayplan.server.kinds import Resource
from bayplan.server.statuses import UnavailableError

FILE_NAME: Final = "bayplan.sqlite3"

_LOCKED_SECONDS: Final = 0.5
"""How long to wait for another process that is about to end; then it is taken for one that stays."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS objects (
    api_version TEXT NOT NULL,
    plural      TEXT NOT NULL,
    key         TEXT NOT NULL,
    version     INTEGER NOT NULL,
    body        BLOB NOT NULL,
    PRIMARY KEY (api_version, plural, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 0),
    version  INTEGER NOT NULL
);
INSERT OR IGNORE INTO counter VALUES (0, 0);
"""
_PUT: Final = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)"
_REMOVE: Final = "DELETE FROM objects WHERE api_version = ? AND plural = ? AND key = ?"
_COUNT: Final = "UPDATE counter SET version = ?"

_Row = tuple[str, str, str, int, bytes]


class StorageError(BayplanError):
    """The files in the data directory cannot be used."""


class SQLiteJournal(Journal):
    """The journal in one directory. Made and used on a running loop; one process at a time has it."""

    def __init__(self, directory: Path, *, fsync: bool = True) -> None:
        self._path = directory / FILE_NAME
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._committed = 0
        self._pending: dict[tuple[str, str, str], _Row | None] = {}
        self._pending_version = 0
        self._is_busy = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: Exception | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        try:
            private_directory(directory)
            warn_if_exposed(directory, "data directory")
            # There are secrets in it: nobody else may read it, nor the files that SQLite puts beside it.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            self._database = sqlite3.connect(
                self._path, timeout=_LOCKED_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._prepare(fsync=fsync)
        except (OSError, sqlite3.Error) as error:
            self._thread.shutdown()
            raise StorageError(f"{self._path}: {_why(error)}") from error

    def _prepare(self, *, fsync: bool) -> None:
        database = self._database
        try:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'OFF'}")
            database.executescript(_SCHEMA)
            (self._committed,) = database.execute("SELECT version FROM counter").fetchone()
        except sqlite3.Error:
            database.close()
            raise

    @property
    def committed(self) -> int:
        return self._committed

    @property
    def failure(self) -> Exception | None:
        return self._failure

    def documents(self) -> Iterator[tuple[str, str, Document]]:
        """All that is kept: apiVersion, plural and document, resource by resource."""
        rows = self._database.execute("SELECT api_version, plural, key, version, body FROM objects")
        for api_version, plural, key, version, body in rows:
            yield api_version, plural, Document(key, version, body)

    def record(self, resource: Resource, document: Document, *, removed: bool) -> None:
        if self._failure is not None:
            raise _broken(self._failure)
        place = (resource.api_version, resource.plural, document.key)
        self._pending[place] = None if removed else (*place, document.version, document.body)
        self._pending_version = document.version
        if not self._is_busy:
            self._is_busy = True
            self._idle.clear()
            asyncio.get_running_loop().call_soon(self._flush)

    async def wait(self, version: int) -> None:
        if self._failure is not None:
            raise _broken(self._failure)
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((version, waiter))
        await waiter

    async def close(self) -> None:
        """Commits what is left and gives the files back."""
        await self._idle.wait()
        self._thread.shutdown()
        self._database.close()

    def _flush(self) -> None:
        rows, self._pending = self._pending, {}
        version = self._pending_version
        loop = asyncio.get_running_loop()
        commit = loop.run_in_executor(self._thread, self._commit, rows, version)
        commit.add_done_callback(lambda done: self._done(done, version))

    def _commit(self, rows: dict[tuple[str, str, str], _Row | None], version: int) -> None:
        """Runs in the thread."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(_PUT, (row for row in rows.values() if row is not None))
            database.executemany(_REMOVE, (place for place, row in rows.items() if row is None))
            database.execute(_COUNT, (version,))
            database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _done(self, commit: asyncio.Future[None], version: int) -> None:
        error = commit.exception()
        if error is not None:
            self._failure = StorageError(f"{self._path}: {_why(error)}")
            self._release(lambda waiter: waiter.set_exception(_broken(self._failure)))
            self._idle.set()
            return
        self._committed = version
        self._release(lambda waiter: waiter.set_result(None), version)
        if self._pending:
            self._flush()
        else:
            self._is_busy = False
            self._idle.set()

    def _release(self, tell: Callable[[asyncio.Future[None]], None], version: int | None = None) -> None:
        """Tells those who wait for a version up to this one; everybody, without one."""
        waiting = self._waiting
        kept = deque[tuple[int, asyncio.Future[None]]]()
        while waiting:
            wanted, waiter = waiting.popleft()
            if version is not None and wanted > version:
                kept.append((wanted, waiter))
            elif not waiter.done():
                tell(waiter)
        self._waiting = kept


def _broken(error: Exception | None) -> UnavailableError:
    message = f"Internal error occurred: the write may be lost, nothing more is accepted: {error}"
    return UnavailableError(message, 500, reason="InternalError")


def _why(error: BaseException) -> str:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return "another process uses this data directory"
    return str(getattr(error, "strerror", None) or error)
