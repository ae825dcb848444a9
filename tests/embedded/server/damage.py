"""Damaged data directories: what disks, copies and users do to files, drawn from a seed."""

from __future__ import annotations

import asyncio
import atexit
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar

from bayplan.embedded.server.database import COMMITTED_NAME, FILE_NAME, Row, open_database
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import CONFIG_MAPS, NODES, Resource
from bayplan.embedded.server.sqlite import SQLiteJournal

PAGE = 4096
WAL = f"{FILE_NAME}-wal"
WRITES = 250


@dataclass(frozen=True)
class Store:
    """A data directory, with all that was ever written to it."""

    directory: Path
    contents: frozenset[Row]
    version: int
    written: frozenset[Row]

    def copy_to(self, directory: Path) -> Path:
        shutil.copytree(self.directory, directory)
        return directory


class Recording(SQLiteJournal):
    """Records all that is written."""

    written: ClassVar[set[Row]] = set()

    def record(self, resource: Resource, document: Document, *, removed: bool) -> None:
        if not removed:
            place = (resource.api_version, resource.plural, document.key)
            self.written.add(Row(*place, document.version, document.body))
        super().record(resource, document, removed=removed)


@cache
def stores() -> dict[str, Store]:
    """After a clean end, after a crash early and late, and after a restart that crashed at once."""
    root = Path(mkdtemp(prefix="bayplan-damage-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    found: dict[str, Path] = {}

    async def live() -> None:
        data = root / "data"
        journal: SQLiteJournal = Recording(data)
        api = open_api(journal, clock=lambda: 1.8e9, seed=7)
        rng = random.Random(7)
        for number in range(WRITES):
            size = rng.choice((10, 100, 1000, 20_000))
            content = {"metadata": {"name": f"c{number}"}, "data": {"x": rng.randbytes(size).hex()}}
            api.create(CONFIG_MAPS, content, "default")
            if number % 3 == 0:
                api.create(NODES, {"metadata": {"name": f"n{number}"}})
            if number % 5 == 4:
                api.delete(CONFIG_MAPS, f"c{number - 2}", "default")
            if number % 7 == 6:
                api.patch(CONFIG_MAPS, f"c{number}", "default", {"data": {"y": "changed"}})
            if number % 10 == 0:
                await api.store.durable()
            if number == WRITES // 2:
                await api.store.durable()
                found["early"] = shutil.copytree(data, root / "early")
        await api.store.durable()
        found["crashed"] = shutil.copytree(data, root / "crashed")
        await journal.close()
        found["closed"] = shutil.copytree(data, root / "closed")
        journal = SQLiteJournal(data)
        found["restarted"] = shutil.copytree(data, root / "restarted")
        await journal.close()

    asyncio.run(live())
    contents: dict[str, tuple[frozenset[Row], int]] = {}
    for name, directory in found.items():
        copy = shutil.copytree(directory, root / f"{name}-read")
        database, (rows, totals) = open_database(copy, fsync=False)
        database.close()
        contents[name] = (frozenset(rows), totals.version)
    written = frozenset(Recording.written)
    return {name: Store(directory, *contents[name], written) for name, directory in found.items()}


Damage = Callable[[Path, random.Random], None]


def _change(file: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(file.read_bytes())
    if content:
        change(content)
        file.write_bytes(content)


def _file(directory: Path, rng: random.Random) -> Path:
    there = [each for name in (FILE_NAME, WAL) if (each := directory / name).exists() and each.stat().st_size]
    return rng.choice(there)


def flip_bits(directory: Path, rng: random.Random) -> None:
    def flip(content: bytearray) -> None:
        for _ in range(rng.choice((1, 1, 3, 50))):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)

    _change(_file(directory, rng), flip)


def flip_in_header(directory: Path, rng: random.Random) -> None:
    def flip(content: bytearray) -> None:
        content[rng.randrange(min(100, len(content)))] ^= 1 << rng.randrange(8)

    _change(_file(directory, rng), flip)


def overwrite_page(directory: Path, rng: random.Random) -> None:
    def overwrite(content: bytearray) -> None:
        start = rng.randrange(0, len(content), PAGE)
        end = min(start + PAGE, len(content))
        content[start:end] = rng.choice((bytes(end - start), rng.randbytes(end - start)))

    _change(_file(directory, rng), overwrite)


def swap_pages(directory: Path, rng: random.Random) -> None:
    def swap(content: bytearray) -> None:
        pages = len(content) // PAGE
        one, two = rng.randrange(pages) * PAGE, rng.randrange(pages) * PAGE
        content[one : one + PAGE], content[two : two + PAGE] = (
            content[two : two + PAGE],
            content[one : one + PAGE],
        )

    _change(directory / FILE_NAME, swap)


def truncate(directory: Path, rng: random.Random) -> None:
    file = _file(directory, rng)
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(rng.choice((0, size // 2 // PAGE * PAGE, rng.randrange(size), size - 1)))


def append(directory: Path, rng: random.Random) -> None:
    with _file(directory, rng).open("ab") as file:
        file.write(rng.randbytes(rng.choice((1, 24, PAGE, 3 * PAGE))))


def delete(directory: Path, rng: random.Random) -> None:
    there = [each for name in (FILE_NAME, WAL, COMMITTED_NAME) if (each := directory / name).exists()]
    rng.choice(there).unlink()


def restore_older(directory: Path, rng: random.Random) -> None:
    """Some files of an older copy, as by a backup that was interrupted."""
    older = stores()["early"].directory
    shutil.copyfile(older / (name := rng.choice((FILE_NAME, WAL))), directory / name)


def damage_committed(directory: Path, rng: random.Random) -> None:
    def flip(content: bytearray) -> None:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)

    _change(directory / COMMITTED_NAME, flip)


DAMAGES: tuple[Damage, ...] = (
    flip_bits,
    flip_in_header,
    overwrite_page,
    swap_pages,
    truncate,
    append,
    delete,
    restore_older,
    damage_committed,
)
