"""TLS as Go's programs use it: certificates and keys from files or data, loaded, watched and renewed.

`ClientTLS` is for connections to the API server and to extenders, `server_context` for our own servers. What
is particular to one user is with it: certificates of the endpoints and the CAs of their clients in
`process/serving`, those that the embedded server makes for itself in `embedded/server`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Final

from bayplan.errors import ConfigError
from bayplan.files import WatchedFiles, warn_if_exposed

SOON: Final = timedelta(days=30)
"""When to warn before a certificate expires; for short-lived ones, after four fifths of their lifetime."""

_log = logging.getLogger(__name__)


# Connections to a server


@dataclass(frozen=True, slots=True)
class TLSSettings:
    """Trusted CAs and client certificate. Data takes precedence over a file, which is then not read."""

    ca_file: str = ""
    ca_data: bytes = b""
    insecure: bool = False
    """Do not verify the server."""
    server_name: str = ""
    """The server name to request and expect, if it differs from the one in the URL."""
    cert_file: str = ""
    cert_data: bytes = b""
    key_file: str = ""
    key_data: bytes = field(default=b"", repr=False)

    @property
    def files(self) -> list[str]:
        """The files that are read."""
        given = (self.ca_file, self.ca_data), (self.cert_file, self.cert_data), (self.key_file, self.key_data)
        return [path for path, data in given if path and not data]


class ClientTLS:
    """Makes the TLS contexts of connections to one server.

    Configured CAs replace the system's. Files are checked for changes at each new connection, so that rotated
    certificates are used without a restart. If the new ones cannot be used (a certificate was replaced, but
    its key was not yet), the old ones are used until the files change again.

    Args:
        settings: CAs and certificate.
        defer_certificate: read a client certificate that is in files at the first connection, not here.

    Raises:
        ConfigError: the settings, or the contents of a file, cannot be used.
    """

    def __init__(self, settings: TLSSettings, *, defer_certificate: bool = False) -> None:
        if settings.insecure and (settings.ca_file or settings.ca_data):
            raise ConfigError("specifying a root certificates file with the insecure flag is not allowed")
        self.server_name = settings.server_name or None
        self._settings = settings
        self._files = WatchedFiles(settings.files)
        self._context: ssl.SSLContext | None = None
        if defer_certificate and not (settings.cert_data or settings.key_data):
            _client_context(replace(settings, cert_file="", key_file=""))
        else:
            self._context = _client_context(settings)

    def context(self) -> ssl.SSLContext:
        """The context for a connection that is opened now.

        Raises:
            ConfigError: the client certificate was deferred, and cannot be used.
        """
        if self._context is None or self._files.have_changed():
            try:
                self._context = _client_context(self._settings)
            except ConfigError as error:
                if self._context is None:
                    raise
                _log.warning("cannot use the new certificates, continuing with the old ones: %s", error)
        return self._context

    def use_certificate(self, certificate: bytes, key: bytes) -> None:
        """Uses this client certificate from now on, instead of the configured one.

        Raises:
            ConfigError: it cannot be used.
        """
        settings = replace(self._settings, cert_data=certificate, key_data=key, cert_file="", key_file="")
        files = WatchedFiles(settings.files)
        self._context = _client_context(settings)
        self._settings, self._files = settings, files


def _client_context(settings: TLSSettings) -> ssl.SSLContext:
    """As Go: trusts exactly the given certificates, whether they are roots or not, and ignores common
    names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.hostname_checks_common_name = False
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.ca_data or settings.ca_file:
        _trust(context, settings.ca_data or _content(settings.ca_file))
    else:
        context.load_default_certs()
    if settings.cert_data or settings.cert_file:
        try:
            show(context, settings.cert_data or settings.cert_file, settings.key_data or settings.key_file)
        except OSError as error:
            raise ConfigError(f"tls: cannot use the client certificate: {_why(error)}") from error
    return context


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"open {path}: {(error.strerror or 'failed').lower()}") from error


def _trust(context: ssl.SSLContext, pem: bytes) -> None:
    """Trusts these certificates. PEM is ASCII but for comments around it."""
    try:
        context.load_verify_locations(cadata=pem.decode("ascii", errors="ignore"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"unable to load root certificates: {_why(error)}") from error


# Certificates of our own


def server_context(certificate: bytes | str, key: bytes | str) -> ssl.SSLContext:
    """A context for a server with this certificate; as for `show`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(context, certificate, key)
    return context


def show(context: ssl.SSLContext, certificate: bytes | str, key: bytes | str) -> None:
    """Uses this certificate, each part being the content or the path of a file.

    Raises:
        OSError: a file cannot be read, or the two do not match.
    """
    with _as_file(certificate) as certificate_file, _as_file(key) as key_file:
        # An empty password: without one OpenSSL would prompt for that of an encrypted key.
        context.load_cert_chain(certificate_file, key_file, password="")
    if isinstance(key, str):
        warn_if_exposed(key, "private key")
    warn_of_expiry(certificate)


_logged: set[tuple[int, bool]] = set()
"""Serial numbers of certificates, and whether they had expired when it was logged."""


def warn_of_expiry(certificate: bytes | str, now: datetime | None = None) -> None:
    """Logs once that a certificate expires soon, and once that it has expired. It is still used."""
    # Imported here: most schedulers identify themselves by a token, and start faster without it.
    from cryptography import x509

    try:
        pem = Path(certificate).read_bytes() if isinstance(certificate, str) else certificate
        found = x509.load_pem_x509_certificates(pem)[0]
    except (OSError, ValueError, IndexError):
        return  # OpenSSL reads more formats than this, and reports errors
    now = now or datetime.now(UTC)
    end = found.not_valid_after_utc
    if end > now + min(SOON, (end - found.not_valid_before_utc) / 5):
        return
    has_expired = end <= now
    if (found.serial_number, has_expired) not in _logged:
        _logged.add((found.serial_number, has_expired))
        where = f" in {certificate}" if isinstance(certificate, str) else ""
        subject = found.subject.rfc4514_string()
        verb = "expired" if has_expired else "expires soon,"
        _log.warning("the certificate of %s%s %s on %s", subject, where, verb, f"{end:%Y-%m-%d %H:%M} UTC")


@contextlib.contextmanager
def _as_file(given: bytes | str) -> Iterator[str]:
    """The path of a file with this content, since `ssl` reads certificates from files only.

    A private key should not be on disk, and a container with a read-only root file system has no directory
    for temporary files: on Linux the file is in memory, and its only path is in /proc.
    """
    if isinstance(given, str):
        yield given
        return
    with contextlib.ExitStack() as stack:
        file = _memory_file(stack)
        if file is None:
            file = stack.enter_context(tempfile.NamedTemporaryFile())  # mode 0600, deleted once loaded
        file.write(given)
        file.flush()
        yield file.name if isinstance(file.name, str) else _MEMORY_PATH.format(file.name)


_MEMORY_PATH: Final = "/proc/self/fd/{}"


def _memory_file(stack: contextlib.ExitStack) -> IO[bytes] | None:
    """None if the system has no memory files, or no /proc to open them by."""
    if sys.platform != "linux" or not os.path.isdir("/proc/self/fd"):
        return None
    return stack.enter_context(os.fdopen(os.memfd_create("bayplan-tls"), "wb"))


def _why(error: Exception) -> str:
    """The error of `ssl` about certificates and keys, without numbers and source locations."""
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
