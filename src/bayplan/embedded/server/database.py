"""The database of a data directory: its format, and what has to be true of it before it is used.

SQLite notices some damage and overlooks the rest: a flipped bit in a value, a page that was lost, a log that
is missing. What is served must be what was written, so everything is checked when a directory is opened:

- SQLite's own `quick_check`, and the schema word for word;
- a checksum of each row, over all of its columns;
- the number of rows and the sum of their checksums, kept with the resourceVersion in `counter`;
- `bayplan.committed`, a file of one line with the last resourceVersion that was acknowledged. It is written
  after each commit: a database that is behind it has lost writes, as one whose write-ahead log is missing.

What fails is rejected (`DamagedError`), and `sqlite.salvage` recovers the intact part. Formats of earlier
versions are taken over: `PRAGMA user_version` is the number of the format.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bayplan.errors import BayplanError
from bayplan.files import write_private

FILE_NAME: Final = "bayplan.sqlite3"
COMMITTED_NAME: Final = "bayplan.committed"
FORMAT: Final = 1
LOCKED_SECONDS: Final = 0.5
"""How long to wait for another process to release the database."""

_SCHEMAS: Final = (
    """
CREATE TABLE objects (
    api_version TEXT NOT NULL,
    plural      TEXT NOT NULL,
    key         TEXT NOT NULL,
    version     INTEGER NOT NULL,
    body        BLOB NOT NULL,
    PRIMARY KEY (api_version, plural, key)
) WITHOUT ROWID;
CREATE TABLE counter (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 0),
    version  INTEGER NOT NULL
);
""",
    """
CREATE TABLE objects (
    api_version TEXT NOT NULL,
    plural      TEXT NOT NULL,
    key         TEXT NOT NULL,
    version     INTEGER NOT NULL,
    body        BLOB NOT NULL,
    checksum    INTEGER NOT NULL,
    PRIMARY KEY (api_version, plural, key)
) WITHOUT ROWID;
CREATE TABLE counter (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 0),
    version  INTEGER NOT NULL,
    objects  INTEGER NOT NULL,
    digest   INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
""",
)
"""By number of the format."""
HEADER_BYTES: Final = 100
MAGIC: Final = b"SQLite format 3\0"
MODE_OFFSET: Final = 18
WAL_MODE: Final = b"\x02\x02"
"""Of a database in WAL mode. SQLite throws the log of any other away."""
_INT64: Final = 1 << 64


class StorageError(BayplanError):
    """The files in the data directory cannot be used."""


class DamagedError(StorageError):
    """The files in the data directory are not what was written."""

    def __init__(self, path: Path, damage: str) -> None:
        self.damage = damage
        super().__init__(
            f"{path}: the database is damaged: {damage}. Restore the data directory from a copy, or start "
            "with --salvage to keep the objects that are whole; the damaged files are then set aside"
        )


class Row(NamedTuple):
    """One object as it is stored."""

    api_version: str
    plural: str
    key: str
    version: int
    body: bytes

    def checksum(self) -> int:
        """A checksum of all columns, so that a row under a wrong key is found, too."""
        place = "\0".join((self.api_version, self.plural, self.key, str(self.version), ""))
        digest = blake2b(place.encode(), digest_size=8)
        digest.update(self.body)
        return int.from_bytes(digest.digest(), "big", signed=True)


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals over all rows."""

    version: int = 0
    """The resourceVersion of the last write."""
    objects: int = 0
    digest: int = 0
    """The sum of all checksums, in 64 bits."""

    def plus(self, version: int, objects: int, checksums: int) -> Totals:
        half = _INT64 >> 1
        digest = (self.digest + checksums + half) % _INT64 - half
        return Totals(version, self.objects + objects, digest)

    def columns(self) -> tuple[int, int, int, int]:
        row = Row("", "counter", "", self.version, f"{self.objects} {self.digest}".encode())
        return self.version, self.objects, self.digest, row.checksum()


class Contents(NamedTuple):
    rows: list[Row]
    totals: Totals


def connect(path: Path, *, fsync: bool) -> sqlite3.Connection:
    """An exclusive connection."""
    database = sqlite3.connect(path, timeout=LOCKED_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("locking_mode = EXCLUSIVE", "trusted_schema = OFF", "cell_size_check = ON"):
            database.execute(f"PRAGMA {pragma}")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'OFF'}")
        database.execute("BEGIN IMMEDIATE")
        database.execute("COMMIT")
    except sqlite3.Error:
        database.close()
        raise
    return database


def open_database(directory: Path, *, fsync: bool) -> tuple[sqlite3.Connection, Contents]:
    """Opens the database of a directory, or creates it, and checks all of it.

    Raises:
        DamagedError: it is not what was written.
        StorageError: another process uses it, or a later version of bayplan wrote it.
        sqlite3.OperationalError: the disk fails.
    """
    path = directory / FILE_NAME
    if path.exists() and path.stat().st_size:
        _check_header(path)
    elif not _is_unused(directory):
        raise DamagedError(path, "it is missing or empty")
    # It contains secrets: only the owner may read it and the files that SQLite creates beside it.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
    try:
        database = connect(path, fsync=fsync)
    except sqlite3.DatabaseError as error:
        raise storage_error(path, error) from error
    try:
        return database, _checked(database, directory)
    except sqlite3.DatabaseError as error:
        database.close()
        raise storage_error(path, error) from error
    except BaseException:
        database.close()
        raise


def create(
    database: sqlite3.Connection, rows: Iterable[Row] = (), version: int = 0, *, replaces: bool = False
) -> Totals:
    """Makes the tables, with these rows in them, in one transaction; `replaces`: there are older ones."""
    totals = Totals(version)
    database.execute("BEGIN IMMEDIATE")
    if replaces:
        database.execute("DROP TABLE objects")
        database.execute("DROP TABLE counter")
    for statement in _SCHEMAS[FORMAT].split(";"):
        database.execute(statement)
    for row in rows:
        checksum = row.checksum()
        database.execute("INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?)", (*row, checksum))
        totals = totals.plus(version, 1, checksum)
    database.execute("INSERT INTO counter VALUES (0, ?, ?, ?, ?)", totals.columns())
    database.execute(f"PRAGMA user_version = {FORMAT}")
    database.execute("COMMIT")
    return totals


def storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    """What an error of SQLite means to the user."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(f"{path}: another process uses this data directory")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY):
        return StorageError(f"{path}: {error}")
    return DamagedError(path, str(error))


# Checks


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    if not header.startswith(MAGIC):
        raise DamagedError(path, "file is not a database")
    if header[MODE_OFFSET : MODE_OFFSET + 2] != WAL_MODE:
        raise DamagedError(path, "its header is not the one that was written")


def _checked(database: sqlite3.Connection, directory: Path) -> Contents:
    path = directory / FILE_NAME
    (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise DamagedError(path, " ".join(str(problem).split()))
    (number,) = database.execute("PRAGMA user_version").fetchone()
    if not 0 <= number <= FORMAT:
        raise StorageError(
            f"{path}: format {number} is not known: a later version of bayplan has made it, or it is damaged"
        )
    tables = _schema(database)
    committed = read_committed(directory)
    if not tables and number == 0:
        if not _is_unused(directory):
            raise DamagedError(path, _behind(0, committed))
        write_committed(directory, 0)  # first: a database without it has lost something
        return Contents([], create(database))
    if tables != _expected_schema(number):
        raise DamagedError(path, "its tables are not the ones that were made")
    if number == 0:
        return _with_checksums(database, directory)
    contents = _read_all(database, path)
    version = contents.totals.version
    if committed is None or version < committed:
        raise DamagedError(path, _behind(version, committed))
    return contents


def _behind(version: int, committed: int | None) -> str:
    if committed is None:
        return f"{COMMITTED_NAME} is missing or damaged, so writes may be missing"
    return (
        f"it ends at resourceVersion {version}, but {committed} was written; "
        "is its write-ahead log (-wal) missing?"
    )


def _schema(database: sqlite3.Connection) -> set[Any]:
    return set(database.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


def _expected_schema(number: int) -> set[Any]:
    plain = sqlite3.connect(":memory:")
    try:
        plain.executescript(_SCHEMAS[number])
        return _schema(plain)
    finally:
        plain.close()


def _is_unused(directory: Path) -> bool:
    """Whether nothing was ever written here: the first start may have ended before it created the tables."""
    return not (directory / COMMITTED_NAME).exists() or read_committed(directory) == 0


def _read_all(database: sqlite3.Connection, path: Path) -> Contents:
    """All rows, checked by their checksums and the totals."""
    counters = database.execute("SELECT only_one, version, objects, digest, checksum FROM counter").fetchall()
    totals = Totals(*counters[0][1:4]) if len(counters) == 1 and _are_ints(counters[0]) else Totals()
    if len(counters) != 1 or counters[0] != (0, *totals.columns()):
        raise DamagedError(path, "the counter of resourceVersions is wrong")
    rows: list[Row] = []
    found = Totals(totals.version)
    for row, checksum in stored_rows(database, "SELECT * FROM objects"):
        if row is None or row.checksum() != checksum:
            raise DamagedError(path, f"the checksum of {described(row)} is wrong")
        rows.append(row)
        found = found.plus(totals.version, 1, checksum)
    if found != totals:
        raise DamagedError(path, f"it has {found.objects} objects that are not the {totals.objects} it had")
    return Contents(rows, totals)


def stored_rows(database: sqlite3.Connection, query: str) -> Iterator[tuple[Row | None, int]]:
    """Rows and their checksums; None in the place of one that cannot be a row."""
    cursor = database.cursor()
    database.text_factory = bytes  # texts may not be UTF-8 any more
    try:
        for *columns, checksum in cursor.execute(query):
            yield _row(columns), checksum if isinstance(checksum, int) else 0
    finally:
        database.text_factory = str
        cursor.close()


def _row(columns: list[Any]) -> Row | None:
    api_version, plural, key, version, body = columns
    if not isinstance(version, int) or not isinstance(body, bytes):
        return None
    try:
        return Row(api_version.decode(), plural.decode(), key.decode(), version, body)
    except (UnicodeDecodeError, AttributeError):
        return None


def _are_ints(columns: Iterable[object]) -> bool:
    return all(isinstance(column, int) for column in columns)


def described(row: Row | None) -> str:
    """A row as text for messages. A damaged row may have any name."""
    if row is None:
        return "an object"
    name = f"{row.plural} {row.key}"
    return name if name.isprintable() else repr(name)


# Earlier formats


def _with_checksums(database: sqlite3.Connection, directory: Path) -> Contents:
    """Adds checksums to a database of format 0. A row without one is valid if its object has the same key."""
    path = directory / FILE_NAME
    counters = database.execute("SELECT version FROM counter").fetchall()
    if len(counters) != 1 or not _are_ints(counters[0]):
        raise DamagedError(path, "the counter of resourceVersions is wrong")
    version = counters[0][0]
    rows = []
    for row, _ in stored_rows(database, "SELECT *, 0 FROM objects"):
        if row is None or not is_consistent(row) or row.version > version:
            raise DamagedError(path, f"{described(row)} cannot be read")
        rows.append(row)
    write_committed(directory, version)  # first: a database without it has lost something
    return Contents(rows, create(database, rows, version, replaces=True))


def is_consistent(row: Row) -> bool:
    """Whether the columns of a row agree with its object."""
    try:
        content = msgspec.json.decode(row.body)
        meta = content["metadata"]
        name, namespace = meta["name"], meta.get("namespace")
        key = f"{namespace}/{name}" if namespace else name
        return bool(key == row.key and meta["resourceVersion"] == str(row.version))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return False


# The last acknowledged resourceVersion


def committed_line(version: int) -> bytes:
    """Always of the same length, so that it can be overwritten in place."""
    text = f"{version:020d}"
    return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def write_committed(directory: Path, version: int) -> None:
    write_private(directory / COMMITTED_NAME, committed_line(version))


def read_committed(directory: Path) -> int | None:
    """None if it is missing or damaged."""
    try:
        line = (directory / COMMITTED_NAME).read_bytes()
        version = int(line.partition(b" ")[0])
    except (OSError, ValueError):
        return None
    return version if line == committed_line(version) else None
