"""TLS as Go's programs speak it: what everybody who speaks it here has in common.

Whom to trust, what to show and when to read files again is another matter each time: `client/tls.py` towards
the API server, `extender/tls.py` towards extenders, `serving/tls.py` towards those who ask us.
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
from typing import IO, Final, TypeAlias

from cryptography import x509

from bayplan.files import warn_if_exposed

Stamp: TypeAlias = tuple[int, ...]

SOON: Final = timedelta(days=30)
"""When to warn of the end of a certificate; of one that lives shorter, at four fifths of its life."""

_log = logging.getLogger(__name__)


def client_context() -> ssl.SSLContext:
    """Go trusts exactly the certificates it is given, be they roots or not, and looks at no common name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.hostname_checks_common_name = False
    return context


def trust(context: ssl.SSLContext, pem: bytes) -> None:
    """Trusts these certificates. PEM is ASCII but for comments around it."""
    context.load_verify_locations(cadata=pem.decode("ascii", errors="ignore"))


def show(context: ssl.SSLContext, certificate: bytes | str, key: bytes | str) -> None:
    """Shows this certificate, each part being the content or the path of a file.

    Raises:
        OSError: a file cannot be read, or the two do not belong together.
    """
    with _as_file(certificate) as certificate_file, _as_file(key) as key_file:
        # An empty password: without one OpenSSL would ask at the terminal for that of an encrypted key.
        context.load_cert_chain(certificate_file, key_file, password="")
    if isinstance(key, str):
        warn_if_exposed(key, "private key")
    warn_of_expiry(certificate)


_told: set[tuple[int, bool]] = set()
"""Serial numbers of certificates, and whether they had expired when we said so."""


def warn_of_expiry(certificate: bytes | str, now: datetime | None = None) -> None:
    """Logs once that a certificate expires soon, and once that it has expired. It is used all the same."""
    try:
        pem = Path(certificate).read_bytes() if isinstance(certificate, str) else certificate
        found = x509.load_pem_x509_certificates(pem)[0]
    except (OSError, ValueError, IndexError):
        return  # OpenSSL, which reads more forms than this, has its say
    now = now or datetime.now(UTC)
    end = found.not_valid_after_utc
    if end > now + min(SOON, (end - found.not_valid_before_utc) / 5):
        return
    has_expired = end <= now
    if (found.serial_number, has_expired) not in _told:
        _told.add((found.serial_number, has_expired))
        where = f" in {certificate}" if isinstance(certificate, str) else ""
        subject = found.subject.rfc4514_string()
        verb = "expired" if has_expired else "expires soon,"
        _log.warning("the certificate of %s%s %s on %s", subject, where, verb, f"{end:%Y-%m-%d %H:%M} UTC")


@contextlib.contextmanager
def _as_file(given: bytes | str) -> Iterator[str]:
    """The path of a file with this content, since `ssl` reads certificates from files only.

    A private key belongs on no disk, and a container with a read-only root file system has no directory for
    temporary files: on Linux the file is in memory, and has no name but the one in /proc.
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
    """None where the system has no memory files, or no /proc to open them by."""
    if sys.platform != "linux" or not os.path.isdir("/proc/self/fd"):
        return None
    return stack.enter_context(os.fdopen(os.memfd_create("bayplan-tls"), "wb"))


def stamp(path: str) -> Stamp:
    """What changes when a file is replaced, or missing for a moment."""
    try:
        stat = os.stat(path)
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def why(error: OSError) -> str:
    """What `ssl` has against certificates and keys, without numbers and places in its source."""
    return getattr(error, "reason", None) or error.strerror or str(error)
