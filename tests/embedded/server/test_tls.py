"""The certificates and the token of a data directory: made once, made again only when they have to be."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from bayplan.embedded.server.embedded import token_in
from bayplan.embedded.server.tls import certificates_in
from bayplan.errors import ConfigError


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def test_certificates_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificates_in(tmp_path)
    made = contents(tmp_path)
    assert sorted(made) == ["ca.crt", "server.crt", "server.key"]
    certificates_in(tmp_path)
    assert (contents(tmp_path), caplog.messages) == (made, [])


@pytest.mark.parametrize(
    ("years", "text"), [(9.5, "expire on "), (11, "have expired on ")], ids=["soon", "expired"]
)
def test_certificates_that_expire_are_renewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, years: float, text: str
) -> None:
    now = datetime.now(UTC)
    certificates_in(tmp_path)
    later = now + timedelta(days=365 * years)
    with caplog.at_level(logging.WARNING):
        files = certificates_in(tmp_path, now=later)
    (message,) = caplog.messages
    assert text in message
    assert "kubeconfigs have to be written again" in message
    for path in (files.ca, files.certificate):
        assert x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc > later


@pytest.mark.parametrize(
    ("name", "content"),
    [("server.crt", b"broken"), ("server.key", b""), ("ca.crt", None)],
    ids=["no certificate", "an empty key", "the CA of another"],
)
def test_files_that_do_not_belong_together_are_made_again(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    """As after a crash between two writes."""
    data, other = tmp_path / "data", tmp_path / "other"
    for directory in (data, other):
        directory.mkdir()
        certificates_in(directory)
    (data / name).write_bytes((other / name).read_bytes() if content is None else content)
    files = certificates_in(data)
    files.context()
    ca, certificate = (
        x509.load_pem_x509_certificate(path.read_bytes()) for path in (files.ca, files.certificate)
    )
    certificate.verify_directly_issued_by(ca)


def test_another_host_needs_another_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificates_in(tmp_path)
    files = certificates_in(tmp_path, hosts=("10.1.2.3",))
    assert "is not for 10.1.2.3" in caplog.text
    names = x509.load_pem_x509_certificate(files.certificate.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "10.1.2.3" in map(str, names.value.get_values_for_type(x509.IPAddress))


@pytest.mark.parametrize("content", ["", "\n", "  \n"])
def test_an_empty_token_file_gets_a_token(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    token = token_in(tmp_path)
    assert len(token) >= 32
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0
    assert token_in(tmp_path) == token


@pytest.mark.parametrize("content", [b"a b\n", b"\xff\xfe", b"a\nb\n"])
def test_what_cannot_be_a_token_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(ConfigError, match="token"):
        token_in(tmp_path)


def test_a_token_is_not_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("known-to-others")
    (tmp_path / "token").symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        token_in(tmp_path)
