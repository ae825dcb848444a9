"""Who may see the page.

A link with a token works once: it logs a browser in, which then has a cookie that expires. The token is
replaced by a new one, so that the next link can be shown. Requests are accepted only with the Host that the
server listens on, so that a name which an attacker points at this machine (DNS rebinding) is rejected, and
not from pages of other sites.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final

SESSION_SECONDS: Final = 12 * 3600
MAX_SESSIONS: Final = 1000
"""Above this, the oldest login ends."""
_SAFE: Final = ("same-origin", "none")

POLICY: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response."""


def in_url(host: str) -> str:
    """A host as it is written in addresses and in the Host header."""
    return f"[{host}]" if ":" in host else host.lower()


class Access:
    """The logins of one server.

    Args:
        secure: whether it is served over TLS.
        lifetime: seconds until a login expires.
    """

    def __init__(
        self,
        *,
        secure: bool = False,
        lifetime: float = SESSION_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.hosts: frozenset[str] = frozenset()
        """The values of the Host header that are accepted."""
        self.on_login: Callable[[], None] | None = None
        """Called when a link was used: the token is another one now."""
        self._secure = secure
        self._lifetime = lifetime
        self._clock = clock
        self._sessions: dict[str, float] = {}
        self.port = 0
        self._new_token()

    def listen(self, port: int, *names: str) -> None:
        """The server listens on this port, under these names besides those of loopback."""
        self.port = port
        all_names = [in_url(name) for name in ("127.0.0.1", "localhost", "::1", *names)]
        self.hosts = frozenset(f"{name}:{port}" for name in all_names)
        if port == (443 if self._secure else 80):
            self.hosts |= frozenset(all_names)  # browsers leave the default port out

    def _new_token(self) -> None:
        self.token = secrets.token_urlsafe(32)

    @property
    def cookie_name(self) -> str:
        """Cookies are sent to all ports of a host, so that the name has the port."""
        return f"bayplan-{self.port}"

    def origin_problem(self, headers: Mapping[str, str], method: str) -> str:
        """Why a request is rejected whoever sends it; empty if it is not."""
        host = headers.get("Host", "").lower()
        if host not in self.hosts:
            return "the Host of the request is not the one that this server listens on"
        origin = headers.get("Origin")
        scheme = "https" if self._secure else "http"
        if origin is not None and origin.lower() != f"{scheme}://{host}":
            return "the request comes from a page of another site"
        if headers.get("Sec-Fetch-Site", "none") not in _SAFE and (
            method != "GET" or headers.get("Sec-Fetch-Mode") != "navigate"
        ):
            return "the request comes from a page of another site"
        if method != "GET" and origin is None:
            return "a request that is not a GET needs an Origin"
        return ""

    def log_in(self, token: str) -> str | None:
        """The Set-Cookie header for a browser with this token; None if it is not valid (any more)."""
        if not hmac.compare_digest(token.encode(errors="replace"), self.token.encode()):
            return None
        self._new_token()
        now = self._clock()
        self._sessions = {one: end for one, end in self._sessions.items() if end > now}
        if len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = now + self._lifetime
        if self.on_login is not None:
            self.on_login()
        return self._cookie(session, int(self._lifetime))

    def is_logged_in(self, headers: Mapping[str, str]) -> bool:
        return self._session(headers) is not None

    def log_out(self, headers: Mapping[str, str]) -> str:
        """Ends the login of a request; the Set-Cookie header that removes its cookie."""
        session = self._session(headers)
        if session is not None:
            del self._sessions[session]
        return self._cookie("", 0)

    def _session(self, headers: Mapping[str, str]) -> str | None:
        try:
            found = SimpleCookie(headers.get("Cookie", "")).get(self.cookie_name)
        except CookieError:
            return None
        if found is None:
            return None
        end = self._sessions.get(found.value)
        if end is None or end <= self._clock():
            self._sessions.pop(found.value, None)
            return None
        return found.value

    def _cookie(self, value: str, seconds: int) -> str:
        secure = "; Secure" if self._secure else ""
        return f"{self.cookie_name}={value}; Path=/ui/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
