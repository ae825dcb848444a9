"""Salvages the intact part of a damaged database: read row by row, and written to a new one.

Only rows with a correct checksum are kept, so nothing is served that was not written; but some may be
missing, and an object may be older than its last acknowledged write. Dropped objects are logged if their
names can be read. The damaged files stay beside the new ones, as `bayplan.sqlite3.damaged-N`.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
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
    DamagedError,
    Row,
    connect,
    create,
    described,
    is_consistent,
    read_committed,
    stored_rows,
    write_committed,
)
from bayplan.embedded.server.kinds import BUILT_IN

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
