"""Private files: whole or not at all, never through a link, and readable by their owner only."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from bayplan.files import create_private, private_directory, read_private, warn_if_exposed, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("write", [write_private, create_private])
def test_only_the_owner_may_read_it(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    old = os.umask(0)
    try:
        write(tmp_path / "key", b"secret")
    finally:
        os.umask(old)
    assert (mode(tmp_path / "key"), (tmp_path / "key").read_bytes()) == (0o600, b"secret")
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "key").symlink_to(victim)
    write_private(tmp_path / "key", b"secret")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "key").is_symlink()


def test_the_file_that_is_written_first_cannot_be_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by a process that guesses its name."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".key.guessed").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "key", b"secret")
    assert victim.read_text() == "precious"


def test_what_exists_is_not_created_again(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("precious")
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "key", b"secret")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("key", "precious")]


def test_no_directory_is_made_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_private(tmp_path / "not" / "there", b"secret")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    write_private(tmp_path / "key", b"old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_private(tmp_path / "key", b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("key", b"old")]


def test_secrets_are_not_read_through_links(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("secret")
    (tmp_path / "token").symlink_to("real")
    with pytest.raises(OSError, match="symbolic links"):
        read_private(tmp_path / "token")


def test_a_new_directory_is_private_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        private_directory(tmp_path / "a" / "new")
        (tmp_path / "old").mkdir(mode=0o755)
        private_directory(tmp_path / "old")
    finally:
        os.umask(old)
    assert (mode(tmp_path / "a" / "new"), mode(tmp_path / "old")) == (0o700, 0o755)


def test_a_key_that_others_can_read_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = tmp_path / "key.pem"
    key.write_text("secret")
    key.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        warn_if_exposed(key, "private key")
        warn_if_exposed(key, "private key")
    assert caplog.messages == [
        f"private key {key} is accessible to other users (mode 0640): run chmod go= {key}"
    ]
    caplog.clear()
    (tmp_path / "good.pem").touch(mode=0o600)
    warn_if_exposed(tmp_path / "good.pem", "private key")
    warn_if_exposed(tmp_path / "missing.pem", "private key")
    assert caplog.messages == []
