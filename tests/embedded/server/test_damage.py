"""A damaged data directory is rejected or serves what was written: nothing else, and never a hang."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayplan.embedded.server.database import (
    COMMITTED_NAME,
    FILE_NAME,
    Contents,
    DamagedError,
    Row,
    StorageError,
    open_database,
    read_committed,
)
from bayplan.embedded.server.embedded import EmbeddedServer, open_api
from bayplan.embedded.server.kinds import CONFIG_MAPS
from bayplan.embedded.server.sqlite import SQLiteJournal, salvage

from .damage import DAMAGES, WAL, Damage, Store, append, stores

SEEDS = int(os.environ.get("BAYPLAN_DAMAGES", "12"))
"""For each kind of damage."""
HANG_SECONDS = 120


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def read(directory: Path) -> Contents:
    database, contents = open_database(directory, fsync=False)
    database.close()
    return contents


def damaged(store: Store, directory: Path, damage: Damage, rng: random.Random) -> Path:
    store.copy_to(directory)
    damage(directory, rng)
    return directory


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_what_is_served_is_what_was_written(tmp_path: Path, damage: Damage) -> None:
    """And salvage keeps only what was written at some time, in a store that is whole again."""
    rejected = 0
    for seed in range(SEEDS):
        rng = random.Random(f"{damage.__name__} {seed}")
        store = rng.choice(list(stores().values()))
        directory = damaged(store, tmp_path / str(seed), damage, rng)
        try:
            rows, totals = read(directory)
        except StorageError as error:
            rejected += 1
            if isinstance(error, DamagedError):
                _salvage(directory, store, error, seed)
            continue
        assert (frozenset(rows), totals.version) == (store.contents, store.version), f"seed {seed}"
    # What is behind the end of a file is not read.
    assert rejected > 0 or damage is append


def _salvage(directory: Path, store: Store, error: DamagedError, seed: int) -> None:
    acknowledged = read_committed(directory) or 0
    salvage(directory, error)
    rows, totals = read(directory)
    assert set(rows) <= store.written, f"seed {seed}"
    assert totals.version >= acknowledged, f"seed {seed}"
    assert (directory / f"{FILE_NAME}.damaged-1").exists() or not rows, f"seed {seed}"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (FILE_NAME, "it is missing or empty"),
        (WAL, r"it ends at resourceVersion 0, but \d+ was written; is its write-ahead log \(-wal\) missing"),
        (COMMITTED_NAME, "bayplan.committed is missing or damaged"),
    ],
)
def test_a_file_that_is_missing_is_named(tmp_path: Path, name: str, problem: str) -> None:
    directory = stores()["crashed"].copy_to(tmp_path / "data")
    (directory / name).unlink()
    with pytest.raises(DamagedError, match=problem) as raised:
        read(directory)
    assert str(raised.value).startswith(f"{directory / FILE_NAME}: the database is damaged: ")
    assert "--salvage" in str(raised.value)


def with_wrong_row(directory: Path, change: str) -> Path:
    """Changes by others in which SQLite detects no error."""
    database = sqlite3.connect(directory / FILE_NAME)
    database.execute(change)
    database.commit()
    database.close()
    return directory


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE objects SET body = 7 WHERE key = 'default/c0'", "the checksum of an object is wrong"),
        (
            "UPDATE objects SET body = CAST('{}' AS BLOB) WHERE key = 'default/c0'",
            "the checksum of configmaps default/c0 is wrong",
        ),
        ("UPDATE objects SET version = version + 1 WHERE key = 'n0'", "the checksum of nodes n0 is wrong"),
        ("UPDATE objects SET key = 'n1' WHERE key = 'n0'", "the checksum of nodes n1 is wrong"),
        ("DELETE FROM objects WHERE key = 'n0'", r"it has \d+ objects that are not the \d+ it had"),
        ("UPDATE counter SET version = 1", "the counter of resourceVersions is wrong"),
        ("DELETE FROM counter", "the counter of resourceVersions is wrong"),
        ("CREATE TABLE other (x)", "its tables are not the ones that were made"),
        ("PRAGMA user_version = 99", "format 99 is not known"),
    ],
)
def test_what_sqlite_does_not_detect_is_detected(tmp_path: Path, change: str, problem: str) -> None:
    directory = with_wrong_row(stores()["closed"].copy_to(tmp_path / "data"), change)
    with pytest.raises(StorageError, match=problem):
        read(directory)


def test_salvage_keeps_what_is_intact_and_reports_what_it_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = stores()["closed"]
    directory = store.copy_to(tmp_path / "data")
    with_wrong_row(directory, "UPDATE objects SET body = CAST('{}' AS BLOB) WHERE key = 'default/c0'")
    before = (directory / FILE_NAME).read_bytes()

    async def scenario() -> list[str]:
        async with EmbeddedServer(directory, salvages=True) as server:
            return [document.key for document in server.api.documents(CONFIG_MAPS)]

    with caplog.at_level(logging.WARNING):
        kept = asyncio.run(scenario())
    expected = {row.key for row in store.contents if row.plural == "configmaps"} - {"default/c0"}
    assert set(kept) == expected
    assert "dropped, because they are not what was written: configmaps default/c0" in caplog.text
    assert (directory / f"{FILE_NAME}.damaged-1").read_bytes() == before
    assert sorted(file.name for file in directory.iterdir() if file.name.startswith("salvage")) == []


def test_without_salvage_a_server_does_not_start(tmp_path: Path) -> None:
    directory = stores()["closed"].copy_to(tmp_path / "data")
    with_wrong_row(directory, "DELETE FROM objects WHERE key = 'n0'")

    async def scenario() -> None:
        async with EmbeddedServer(directory):
            raise AssertionError("it started")

    with pytest.raises(DamagedError):
        asyncio.run(scenario())


FORMAT_0 = """
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


def made_by_an_earlier_version(directory: Path, rows: list[Row], version: int) -> Path:
    """As 0.1.0 made it; it crashed, so there is a log as well."""
    directory.mkdir(mode=0o700)
    database = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(FORMAT_0)
    database.executemany("INSERT INTO objects VALUES (?, ?, ?, ?, ?)", rows)
    database.execute("UPDATE counter SET version = ?", (version,))
    database.close()
    return directory


def test_a_directory_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    """Once: from then on it has checksums."""
    store = stores()["closed"]
    directory = made_by_an_earlier_version(tmp_path / "data", list(store.contents), store.version)
    for _ in range(2):
        rows, totals = read(directory)
        assert (frozenset(rows), totals.version) == (store.contents, store.version)
    with_wrong_row(directory, "DELETE FROM objects WHERE key = 'n0'")
    with pytest.raises(DamagedError):
        read(directory)


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b'{"metadata": {"name": "n0", "resourceVersion": "9"}}'])
def test_a_row_of_an_earlier_version_that_is_invalid_is_rejected(tmp_path: Path, body: bytes) -> None:
    rows = [Row("v1", "nodes", "n0", 7, body)]
    directory = made_by_an_earlier_version(tmp_path / "data", rows, 7)
    with pytest.raises(DamagedError, match="nodes n0 cannot be read"):
        read(directory)


def test_a_first_start_that_ended_at_once_is_no_damage(tmp_path: Path) -> None:
    """Before it had made its tables, or its file."""
    for number, sql in enumerate(("", "PRAGMA journal_mode = WAL")):
        directory = tmp_path / str(number)
        directory.mkdir()
        database = sqlite3.connect(directory / FILE_NAME)
        database.execute(sql)
        database.close()
        assert read(directory).rows == []
        assert read(directory).rows == []


def test_every_crash_is_survived(tmp_path: Path) -> None:
    """A copy at any moment, as kill -9 leaves it, opens without an error."""

    async def live() -> None:
        journal = SQLiteJournal(tmp_path / "data")
        api = open_api(journal, clock=lambda: 1.8e9, seed=1)
        for number in range(40):
            api.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}"}}, "default")
            await api.store.durable()
            copy = Store(tmp_path / "data", frozenset(), 0, frozenset()).copy_to(tmp_path / f"copy{number}")
            rows, totals = read(copy)
            assert (len(rows), totals.version) == (len(set(rows)), api.store.version)
        await journal.close()

    asyncio.run(live())
