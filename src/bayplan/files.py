"""Atomic writes, and files that only their owner may read.

Used for keys, tokens and kubeconfigs. A new file is written next to its final path and then renamed, so that
a reader never sees a partial file and a crash leaves the old one. The temporary name cannot be guessed, and
the file is never opened through a link: in a directory that others can write to they can plant neither.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

PRIVATE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700
_OTHERS: Final = 0o077
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)

LOCK_SECONDS: Final = 3.0
"""Time for other programs to release the file."""
_LOCK_RETRY_SECONDS: Final = 0.05

Stamp: TypeAlias = tuple[int, ...]

_log = logging.getLogger(__name__)


class LockedError(OSError):
    """Another program is changing the file."""


def write_private(path: Path, content: bytes) -> None:
    """Creates or replaces a file that only its owner may read.

    Raises:
        OSError: its directory does not exist, or cannot be written to.
    """
    with _written_beside(path, content) as temporary:
        temporary.replace(path)
    _sync_directory(path.parent)


def create_private(path: Path, content: bytes) -> None:
    """Creates a file that only its owner may read.

    Raises:
        FileExistsError: it exists already, and is not changed.
    """
    with _written_beside(path, content) as temporary:
        try:
            os.link(temporary, path, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:  # a file system without links: the file is visible while it is being written
            with os.fdopen(os.open(path, _NEW, PRIVATE), "wb") as file:
                file.write(content)
    _sync_directory(path.parent)


def replace_content(path: Path, content: bytes) -> None:
    """Replaces the content of an existing file, and keeps its mode and owner."""
    known = path.stat()
    with _written_beside(path, content) as temporary:
        os.chmod(temporary, stat.S_IMODE(known.st_mode))
        if (known.st_uid, known.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(PermissionError):  # a group that we are not in
                os.chown(temporary, known.st_uid, known.st_gid)
        temporary.replace(path)
    _sync_directory(path.parent)


def private_directory(path: Path) -> None:
    """Creates a directory that only its owner may enter; an existing one is not changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=PRIVATE_DIRECTORY)


def read_private(path: Path) -> bytes:
    """The content of a file with a secret. Links are not followed.

    Raises:
        OSError: it cannot be read, or is a link.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def stamp(path: str | os.PathLike[str]) -> Stamp:
    """A value that changes when a file is replaced or modified; empty while there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size


class WatchedFiles:
    """Finds out whether any of these files was replaced or modified."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._stamps = {path: stamp(path) for path in paths}

    def have_changed(self) -> bool:
        """Whether one has changed since the last call."""
        before, self._stamps = self._stamps, {path: stamp(path) for path in self._stamps}
        return self._stamps != before


def is_exposed(path: str | os.PathLike[str]) -> bool:
    """Whether a file can be read or written, or a directory entered, by others than its owner."""
    try:
        return bool(os.stat(path).st_mode & _OTHERS)
    except OSError:
        return False


_warned: set[str] = set()


def warn_if_exposed(path: str | os.PathLike[str], what: str) -> None:
    """Logs once per file that others can read a secret. It is still used, as in Kubernetes."""
    name = os.fspath(path)
    if name not in _warned and is_exposed(name):
        _warned.add(name)
        mode = stat.S_IMODE(os.stat(name).st_mode)
        _log.warning(
            "%s %s is accessible to other users (mode %04o): run chmod go= %s", what, name, mode, name
        )


@contextlib.contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Holds the lock that kubectl, kind and minikube respect: `PATH.lock` exists while it is held.

    Raises:
        LockedError: another program held it for too long.
        OSError: the directory does not exist, or cannot be written to.
    """
    lock = path.with_name(f"{path.name}.lock")
    deadline = time.monotonic() + seconds
    while True:
        try:
            os.close(os.open(lock, _NEW, 0o600))
            break
        except FileExistsError:
            if time.monotonic() >= deadline:
                problem = "another program is changing the file; if none is, delete this lock"
                raise LockedError(0, problem, str(lock)) from None
        time.sleep(_LOCK_RETRY_SECONDS)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


@contextlib.contextmanager
def _written_beside(path: Path, content: bytes) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, _NEW, PRIVATE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    """After a power failure a file exists only if its directory was synced."""
    with contextlib.suppress(OSError):  # not supported by every file system
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
