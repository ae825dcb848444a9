"""Documents on disk: SQLite in WAL mode, with many writes sharing one commit.

A write is accepted at once and committed soon: all writes of one turn of the event loop, and all that arrive
during a commit, share the next one. The commit waits for the disk in its own thread, so the loop continues.
Before a write is acknowledged, `wait` waits for its version, so kill -9 loses no acknowledged write, and with
`fsync` neither does a power failure. After an error of the disk all waiting and later writes fail.

`salvage` recovers the intact part of a damaged database: it reads row by row, and writes a new one. Only rows
with a correct checksum are kept, so nothing is served that was not written; but some may be missing, and an
object may be older than its last acknowledged write. Dropped objects are logged if their names can be read.
The damaged files stay beside the new ones, as `bayplan.sqlite3.damaged-N`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from bayplan.embedded.server.database import (
    COMMITTED_NAME,
    FILE_NAME,
    HEADER_BYTES,
    MAGIC,
    MODE_OFFSET,
    WAL_MODE,
    Contents,
    DamagedError,
    Row,
    StorageError,
    committed_line,
    connect,
    create,
    described,
    is_consistent,
    open_database,
    read_committed,
    stored_rows,
    write_committed,
)
from bayplan.embedded.server.documents import Document, Journal
from bayplan.embedded.server.kinds import BUILT_IN, Resource
from bayplan.embedded.server.statuses import UnavailableError
from bayplan.files import private_directory, warn_if_exposed

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
        self._schedule(document.version)

    def advance(self, version: int) -> None:
        if self._failure is not None:
            raise _write_error(self._failure)
        self._schedule(version)

    def _schedule(self, version: int) -> None:
        self._pending_version = version
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
        if self._pending_version > version:
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


_BESIDE: Final = ("", "-wal")
"""The files of a database; SQLite creates the others again."""
_SKIPPED_VERSIONS: Final = 1_000_000
"""Added to the resourceVersion if the last one is unknown: it must never decrease."""
_MAX_NAMED: Final = 20

_log = logging.getLogger(__name__)


@dataclass
class _Found:
    """What was read from a damaged database."""

    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    """Names of damaged objects."""
    version: int = 0
    expected: int | None = None
    """How many objects there were, if that can be read."""

    def take(self, row: Row | None, is_whole: bool) -> None:
        if row is None or not is_whole:
            self.wrong.add(described(row))
            return
        place = (row.api_version, row.plural, row.key)
        known = self.rows.get(place)
        if known is None or known.version < row.version:
            self.rows[place] = row
        self.version = max(self.version, row.version)


def salvage(directory: Path, damage: DamagedError) -> None:
    """Replaces the damaged database of a directory by one with its intact rows.

    Raises:
        OSError, sqlite3.Error: the new one cannot be written.
    """
    path = directory / FILE_NAME
    with tempfile.TemporaryDirectory(prefix="salvage-", dir=directory) as temporary:
        copy, new = Path(temporary, "copy"), Path(temporary, "new")
        for suffix in _BESIDE:
            if (there := _with_suffix(path, suffix)).exists():
                shutil.copyfile(there, _with_suffix(copy, suffix))
        _mend_header(copy)
        found = _read(copy)
        committed = read_committed(directory)
        version = max(found.version, committed or 0) + (_SKIPPED_VERSIONS if committed is None else 0)
        database = connect(new, fsync=True)
        try:
            create(database, found.rows.values(), version)
        finally:
            database.close()
        new.chmod(0o600)
        aside = _rename_damaged(path)
        write_committed(directory, version)
        new.replace(path)
    _log_result(damage, found, aside)


def _mend_header(copy: Path) -> None:
    """Restores the WAL mode in the header: without it SQLite discards the write-ahead log."""
    if copy.exists() and copy.stat().st_size >= HEADER_BYTES:
        with copy.open("r+b") as file:
            file.write(MAGIC)
            file.seek(MODE_OFFSET)
            file.write(WAL_MODE)


def _read(copy: Path) -> _Found:
    """As many rows as can be read: damage ends a query, so there are many queries, from both ends."""
    found = _Found()
    if not copy.exists():
        return found
    try:
        database = connect(copy, fsync=False)
    except sqlite3.Error:
        return found
    try:
        has_checksums = _has_checksums(database)
        columns = "*" if has_checksums else "*, 0"
        for query in _queries():
            try:
                for row, checksum in stored_rows(database, f"SELECT {columns} FROM objects {query}"):
                    is_whole = row is not None and (
                        row.checksum() == checksum if has_checksums else is_consistent(row)
                    )
                    found.take(row, is_whole)
            except sqlite3.Error:
                continue
        _read_counter(database, found)
    finally:
        database.close()
    kept = {described(row) for row in found.rows.values()}
    found.wrong -= kept
    return found


def _has_checksums(database: sqlite3.Connection) -> bool:
    try:
        return any(column[1] == "checksum" for column in database.execute("PRAGMA table_info(objects)"))
    except sqlite3.Error:
        return True


def _queries() -> Iterator[str]:
    order = "ORDER BY api_version {0}, plural {0}, key {0}"
    for direction in ("ASC", "DESC"):
        yield order.format(direction)
    for resource in BUILT_IN:
        for direction in ("ASC", "DESC"):
            # Of the catalog, so there is nothing to quote.
            where = f"WHERE api_version = '{resource.api_version}' AND plural = '{resource.plural}'"
            yield f"{where} {order.format(direction)}"


def _read_counter(database: sqlite3.Connection, found: _Found) -> None:
    try:
        version, objects = database.execute("SELECT version, objects FROM counter").fetchone()
    except (sqlite3.Error, TypeError):
        return
    if isinstance(version, int) and isinstance(objects, int) and 0 <= objects < 1 << 40:
        found.version = max(found.version, version if 0 <= version < 1 << 62 else 0)
        found.expected = objects


def _rename_damaged(path: Path) -> Path:
    """Renames the old files. The database stays until the new one replaces it; its log must not be used for
    the new one."""
    aside = next(
        each for number in count(1) if not (each := path.with_name(f"{path.name}.damaged-{number}")).exists()
    )
    if path.exists():
        try:
            os.link(path, aside)
        except OSError:  # a file system without links
            shutil.copyfile(path, aside)
            aside.chmod(0o600)
    log = _with_suffix(path, "-wal")
    if log.exists():
        log.replace(_with_suffix(aside, "-wal"))
    committed = path.with_name(COMMITTED_NAME)
    if committed.exists():
        shutil.copyfile(committed, _with_suffix(aside, "-committed"))
    return aside


def _log_result(damage: DamagedError, found: _Found, aside: Path) -> None:
    kept, wrong = len(found.rows), sorted(found.wrong)
    missing = max(0, (found.expected or 0) - kept - len(wrong))
    _log.warning("the database was damaged: %s", damage.damage)
    _log.warning("%d objects are kept; the damaged files are %s*", kept, aside)
    if wrong:
        names = ", ".join(wrong[:_MAX_NAMED])
        more = f" and {len(wrong) - _MAX_NAMED} more" if len(wrong) > _MAX_NAMED else ""
        _log.warning("dropped, because they are not what was written: %s%s", names, more)
    if missing:
        _log.warning("%d more objects cannot be read", missing)
    elif found.expected is None:
        _log.warning("how many objects there were cannot be read: some may be missing")


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


__all__ = ["DamagedError", "SQLiteJournal", "StorageError"]
