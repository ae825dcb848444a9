"""TLS as Go's programs use it: the part that all users of TLS share.

Trusted CAs, own certificates and reloading differ: `client/tls.py` for the API server, `extender/tls.py` for
extenders, `serving/tls.py` for our own server.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Final

from bayplan.files import warn_if_exposed

SOON: Final = timedelta(days=30)
"""When to warn before a certificate expires; for short-lived ones, after four fifths of their lifetime."""

_log = logging.getLogger(__name__)


def client_context() -> ssl.SSLContext:
    """As Go: trusts exactly the given certificates, whether they are roots or not, and ignores common
    names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.hostname_checks_common_name = False
    return context


def trust(context: ssl.SSLContext, pem: bytes) -> None:
    """Trusts these certificates. PEM is ASCII but for comments around it."""
    context.load_verify_locations(cadata=pem.decode("ascii", errors="ignore"))


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


def why(error: OSError) -> str:
    """The error of `ssl` about certificates and keys, without numbers and source locations."""
    return getattr(error, "reason", None) or error.strerror or str(error)
