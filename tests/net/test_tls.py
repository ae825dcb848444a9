"""Key pairs: loaded without a writable directory, and named when they expire or others can read them."""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bayplan.net.tls import show, warn_of_expiry
from bayplan.process.serving.tls import make_pair

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)


def context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def test_a_pair_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> None:
        raise AssertionError("a temporary file")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", nowhere)
    pair = make_pair()
    show(context(), pair.certificate, pair.key)


def test_where_there_are_no_memory_files_a_temporary_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    pair = make_pair()
    show(context(), pair.certificate, pair.key)


@pytest.mark.parametrize(
    ("age_days", "warning"),
    [
        pytest.param(0, None, id="new"),
        pytest.param(334, None, id="a month left"),
        pytest.param(336, "expires soon, on 2031-05-30 12:00 UTC", id="less than a month left"),
        pytest.param(366, "expired on 2031-04-30 12:00 UTC", id="expired"),
    ],
)
def test_a_certificate_that_expires_is_named_once(
    caplog: pytest.LogCaptureFixture, age_days: int, warning: str | None
) -> None:
    pair = make_pair(now=NOW - timedelta(days=age_days))
    for _ in range(2):
        warn_of_expiry(pair.certificate, NOW)
    assert [message.partition(" of CN=localhost@")[2].partition(" ")[2] for message in caplog.messages] == (
        [warning] if warning else []
    )


def test_expiry_is_reported_files_and_of_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every certificate that is presented is checked; a file is named."""
    pair = make_pair(now=datetime.now(UTC) - timedelta(days=400))
    show(context(), pair.certificate, pair.key)
    assert "expired on" in caplog.text
    caplog.clear()
    other = make_pair(now=datetime.now(UTC) - timedelta(days=400))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(other.certificate)
    key.write_bytes(other.key)
    key.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        show(context(), str(certificate), str(key))
    assert f"in {certificate} expired on" in caplog.text
    assert f"private key {key} is accessible to other users (mode 0644)" in caplog.text
