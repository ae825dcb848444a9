"""`bayplan run --record`: what the scheduler saw and decided, as a file."""

from __future__ import annotations

import errno
import gzip
import time
from pathlib import Path

import pytest

from bayplan.api.pod import Pod
from bayplan.process.history import Attempt, Change, History, Result
from bayplan.process.recording import Recorder, read_recording
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node, make_pod
from tests.client.http.api_server import ApiServer

from .running import ALONE, SECRET, bound, play, scheduling, until


def test_a_run_is_recorded_without_secrets(tmp_path: Path) -> None:
    """The first state, every change and every decision; neither credentials nor what kubectl keeps."""
    store = MemoryStore()
    store.create(make_node("n", cpu="2", memory="8Gi"))
    file = tmp_path / "run.jsonl.gz"
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"env": "{SECRET}"}}'}

    async def main() -> None:
        async with scheduling(ApiServer(store), tmp_path, *ALONE, f"--record={file}") as run:
            store.create(make_pod("small", cpu="1", annotations=applied))
            await until(lambda: "small" in bound(store), run)
            store.create(make_pod("large", cpu="9"))
            await until(lambda: bool(store.get(Pod, "large", "default").status.conditions), run)
            run.signal()
            await run.end()

    play(main())
    header, entries = read_recording(file)
    found = list(entries)
    assert header.release.startswith("1.3")
    attempts = [(one.pod, one.result, one.node) for one in found if isinstance(one, Attempt)]
    assert attempts == [
        ("default/small", Result.SCHEDULED, "n"),
        ("default/large", Result.UNSCHEDULABLE, ""),
    ]
    changes = [one for one in found if isinstance(one, Change)]
    assert any(isinstance(one.after, Pod) and one.after.spec.node_name == "n" for one in changes)
    assert SECRET not in gzip.decompress(file.read_bytes()).decode()


def test_a_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    async def main() -> tuple[int, str]:
        file = tmp_path / "missing" / "run.jsonl"
        async with scheduling(ApiServer(MemoryStore()), tmp_path, *ALONE, f"--record={file}") as run:
            return await run.end(), run.log

    status, log = play(main())
    assert status == 1
    assert "cannot be written" in log


def test_a_full_disk_ends_the_recording_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        def write(self, body: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        flush = close = lambda self: None

    history = History(time.time, max_entries=0)
    recorder = Recorder(tmp_path / "file", release="1.37", name="")
    recorder.close()
    recorder._file = Full()  # type: ignore[assignment]
    history.on_entry = recorder.add
    history.put(make_pod("a"))
    history.put(make_pod("b"))
    assert recorder.has_ended
    assert [one.message for one in caplog.records] == [
        f"the recording {tmp_path / 'file'} ends: it cannot be written: No space left on device"
    ]
    assert list(history.entries(0)) == [], "a recorded history keeps no entries in memory"
