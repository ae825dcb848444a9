"""Documents on disk: what is kept, which writes are waited for, and a disk that fails."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NODES
from bayplan.embedded.server.sqlite import SQLiteJournal, StorageError
from bayplan.errors import ServerError

from .test_objects import definition


def test_everything_is_there_again(tmp_path: Path) -> None:
    """Objects, custom kinds with theirs, and the version; what was deleted is not."""

    async def write() -> int:
        journal = SQLiteJournal(tmp_path)
        api = open_api(journal, clock=lambda: 1.8e9)
        api.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
        groups = api.catalog.of_kind("scheduling.x-k8s.io/v1alpha1", "PodGroup")
        api.create(groups, {"metadata": {"name": "g"}, "spec": {"minMember": 3}}, "default")
        api.create(NODES, {"metadata": {"name": "n1"}})
        api.create(NODES, {"metadata": {"name": "n2"}})
        api.delete(NODES, "n1")
        await journal.close()
        return api.store.version

    async def read(version: int) -> None:
        journal = SQLiteJournal(tmp_path)
        api = open_api(journal, clock=lambda: 1.8e9)
        assert api.store.version == version
        assert [node["metadata"]["name"] for node in api.list(NODES)] == ["n2"]
        groups = api.catalog.of_kind("scheduling.x-k8s.io/v1alpha1", "PodGroup")
        assert api.get(groups, "g", "default")["spec"] == {"minMember": 3}
        made = api.create(NODES, {"metadata": {"name": "n3"}})
        assert int(made["metadata"]["resourceVersion"]) == version + 1
        await journal.close()

    asyncio.run(read(asyncio.run(write())))


def test_one_waits_for_what_one_wrote(tmp_path: Path) -> None:
    """Nothing is durable in the same turn; waiting makes it so, and many writes share a commit."""

    async def scenario() -> None:
        journal = SQLiteJournal(tmp_path)
        api = open_api(journal, clock=lambda: 1.8e9)
        await api.store.durable()
        for number in range(100):
            api.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}"}}, "default")
        assert journal.committed < api.store.version
        await asyncio.gather(*(api.store.durable() for _ in range(10)))
        assert journal.committed == api.store.version
        await journal.close()

    asyncio.run(scenario())


def test_no_other_user_may_read_it(tmp_path: Path) -> None:
    """There are secrets in it."""

    async def scenario() -> None:
        journal = SQLiteJournal(tmp_path)
        open_api(journal, clock=lambda: 1.8e9)
        await journal.wait(1)
        assert {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {
            "bayplan.committed": 0,
            "bayplan.sqlite3": 0,
            "bayplan.sqlite3-wal": 0,
        }
        await journal.close()

    asyncio.run(scenario())


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = SQLiteJournal(tmp_path)
        with pytest.raises(StorageError, match="another process uses this data directory"):
            SQLiteJournal(tmp_path)
        await journal.close()

    asyncio.run(scenario())


def test_a_foreign_file_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "bayplan.sqlite3").write_bytes(b"this is no database, whatever its name" * 50)
        with pytest.raises(StorageError, match="file is not a database"):
            SQLiteJournal(tmp_path)

    asyncio.run(scenario())


class FullDisk(SQLiteJournal):
    def _commit(self, *_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")


def test_a_disk_that_fails_is_reported_to_all(tmp_path: Path) -> None:
    """Waiting clients are not left waiting, and nothing more is taken."""

    async def scenario() -> None:
        journal = FullDisk(tmp_path)
        api = open_api(journal, clock=lambda: 1.8e9)
        with pytest.raises(ServerError, match="disk is full"):
            await api.store.durable()
        with pytest.raises(ServerError, match="nothing more is accepted"):
            api.create(NODES, {"metadata": {"name": "n1"}})
        await journal.close()

    asyncio.run(scenario())
