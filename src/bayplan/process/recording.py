"""A history as a file: one JSON object in each line, gzipped if the name ends in .gz.

    {"recording": {"formatVersion": 1, "bayplan": …, "release": "1.37", "name": …, "time": …}}
    {"put": "Pod", "object": {…}}                       the first state
    {"begin": 1763438400.0}                             here it is complete
    {"put": "Pod", "object": {…}, "time": …}            an object was created or changed
    {"delete": "Pod", "key": "shop/web-1", "time": …}
    {"attempt": {"pod": …, "result": …, …}, "time": …}
    {"end": "full"}                                     the file has reached its maximum size

Objects have only the fields that scheduling reads, as in a snapshot: no environment variables, no Secrets, no
ConfigMaps. The annotation in which kubectl keeps the whole manifest is left out, too.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
from msgspec.structs import replace

from bayplan import __version__
from bayplan.api.documents import GZIP_MAGIC
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.errors import InputError
from bayplan.process.history import Attempt, Change, Entry, History, HistoryHandler, Result
from bayplan.scheduler.loop import Scheduler

FORMAT_VERSION: Final = 1
FLUSH_SECONDS: Final = 1.0
MAX_BYTES: Final = 512 * 1024 * 1024
"""Of a recording before compression; then it ends."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_ONE: Final = "it is not a recording: the first line has no header"
_NEWER: Final = "the recording has format {found}; this version reads format {known}: update bayplan"

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


class Recorder:
    """Writes a history to a file while it grows.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: Path, *, release: str, name: str, max_bytes: int = MAX_BYTES) -> None:
        packed = path.suffix == ".gz"
        try:
            self._file: BinaryIO = _binary(gzip.open(path, "wb") if packed else path.open("wb"))  # noqa: SIM115
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
        self._path = path
        self._left = max_bytes
        self.has_ended = False
        """Whether it is full, or could not be written any more: nothing more is written."""
        self._release = release
        self._name = name

    def begin(self, history: History) -> None:
        """Writes the current state."""
        header = {
            "formatVersion": FORMAT_VERSION,
            "bayplan": __version__,
            "release": self._release,
            "name": self._name,
            "time": history.now,
        }
        self._write({"recording": header})
        for item in history.objects.values():
            self._write({"put": _name_of(type(item)), "object": _bare(item)})
        self._write({"begin": history.now})

    def add(self, entry: Entry) -> None:
        """Writes an entry."""
        if isinstance(entry, Attempt):
            fields: dict[str, Any] = {
                "pod": entry.pod,
                "uid": entry.uid,
                "result": entry.result.value,
                "node": entry.node,
                "message": entry.message,
                "evaluated": entry.evaluated,
                "feasible": entry.feasible,
                "victims": entry.victims,
                "waited": entry.waited,
                "observed": entry.observed,
            }
            self._write({"attempt": fields, "time": entry.time})
            return
        kind = _name_of(entry.key[0])
        if entry.after is None:
            self._write({"delete": kind, "key": entry.key[1], "time": entry.time})
        else:
            self._write({"put": kind, "object": _bare(entry.after), "time": entry.time})

    def _write(self, line: dict[str, Any]) -> None:
        if self.has_ended:
            return
        body = _encode(line)
        self._left -= len(body) + 1
        if self._left < 0:
            self.has_ended = True
            _log.warning("the recording %s has reached its maximum size and ends", self._path)
            body = _encode({"end": "full"})
        self._try(lambda: self._file.write(body + b"\n"))

    def flush(self) -> None:
        self._try(self._file.flush)

    def close(self) -> None:
        self._try(self._file.close)

    def _try(self, write: Callable[[], object]) -> None:
        """A full disk ends the recording, not what is recorded."""
        try:
            write()
        except OSError as error:
            self.has_ended = True
            _log.error("the recording %s ends: it cannot be written: %s", self._path, error.strerror)


def _binary(file: object) -> BinaryIO:
    return cast(BinaryIO, file)


def _name_of(record: type[Object]) -> str:
    """The name of a kind; with its group if another kind has the same name."""
    kind = KINDS.of(record)
    return kind.name if KINDS.get(kind.name) == kind else f"{kind.group}/{kind.name}"


def _record_of(name: str) -> type[Object]:
    group, _, plain = name.rpartition("/")
    kind = KINDS.get(plain, group or None)
    if kind is None:
        raise ValueError(f"unknown kind {name}")
    return kind.record


def _bare(item: Object) -> Object:
    if _LAST_APPLIED not in item.metadata.annotations:
        return item
    kept = {key: text for key, text in item.metadata.annotations.items() if key != _LAST_APPLIED}
    return replace(item, metadata=replace(item.metadata, annotations=kept))


class SchedulerRecording:
    """Records a scheduler in this process, with what its own informers deliver (`bayplan run --record`).

    No entry stays in memory, only the objects, which it shares with the informers.
    """

    def __init__(self, path: Path, release: str, clock: Callable[[], float]) -> None:
        self._recorder = Recorder(path, release=release, name="bayplan run")
        self.history = History(clock, max_entries=0)

    def observe(self, scheduler: Scheduler) -> None:
        """Follows its informers. Its callbacks have to be those of `history`."""
        for informer in scheduler.informers:
            informer.report_also(HistoryHandler(self.history, derives=False))

    async def run(self) -> None:
        """Writes the current state, and from then on what happens, until it is cancelled."""
        recorder = self._recorder
        recorder.begin(self.history)
        self.history.on_entry = recorder.add
        while not recorder.has_ended:
            await asyncio.sleep(FLUSH_SECONDS)
            recorder.flush()
        self.history.on_entry = None
        await asyncio.Event().wait()

    def close(self) -> None:
        self._recorder.close()


class Header(msgspec.Struct, rename="camel"):
    """The first line."""

    format_version: int
    bayplan: str = ""
    release: str = ""
    name: str = ""
    time: float = 0.0


class _Line(msgspec.Struct):
    recording: Header | None = None
    put: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    delete: str = ""
    key: str = ""
    attempt: dict[str, Any] | None = None
    begin: float | None = None
    end: str = ""
    time: float = 0.0


def read_recording(path: Path) -> tuple[Header, Iterator[Entry | float]]:
    """The header, and then the entries; the number is the time at which the first state was complete.

    Raises:
        InputError: the file is missing, or is not a recording.
    """
    lines = _lines(path)
    first = next(lines, None)
    if first is None or first[1].recording is None:
        raise InputError(_NOT_ONE, source=str(path))
    header = first[1].recording
    if header.format_version > FORMAT_VERSION:
        raise InputError(_NEWER.format(found=header.format_version, known=FORMAT_VERSION), source=str(path))
    return header, _entries(path, lines)


def _lines(path: Path) -> Iterator[tuple[int, _Line]]:
    decode = msgspec.json.Decoder(_Line).decode
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            unpacked = gzip.GzipFile(fileobj=raw) if is_packed else raw
            for number, line in enumerate(unpacked, 1):
                try:
                    yield number, decode(line)
                except msgspec.MsgspecError as error:
                    if not line.endswith(b"\n"):
                        return  # the process that wrote it was killed
                    text = f"line {number}: {error}" if number > 1 else _NOT_ONE
                    raise InputError(text, source=str(path)) from None
    except (OSError, EOFError) as error:
        raise InputError(f"cannot be read: {error}", source=str(path)) from None


def _entries(path: Path, lines: Iterator[tuple[int, _Line]]) -> Iterator[Entry | float]:
    for number, line in lines:
        try:
            if line.begin is not None:
                yield line.begin
            elif line.put:
                record = _record_of(line.put)
                item = msgspec.json.decode(line.object, type=record)
                yield Change(0, line.time, (record, item.key), None, item)
            elif line.delete:
                yield Change(0, line.time, (_record_of(line.delete), line.key), None, None)
            elif line.attempt is not None:
                fields = line.attempt | {
                    "result": Result(line.attempt["result"]),
                    "victims": tuple(line.attempt.get("victims", ())),
                }
                yield Attempt(0, line.time, **fields)
        except (KeyError, ValueError, TypeError, msgspec.MsgspecError) as error:
            raise InputError(f"line {number}: {error}", source=str(path)) from None
